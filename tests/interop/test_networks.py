"""ExecuTorch's lowering of each program against ours: every operator, argument, constant, layout, in order.

The networks in ``DELIBERATE`` differ on purpose; docs/partitioner.md says why, by the same keys. They may not stop
differing unnoticed, and no network may need more clones here than there.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from lowering.networks import NETWORKS, program
from lowering.random_networks import random_program
from torch.export import ExportedProgram

from refsim.formats.vkgraph.read import Blob, read_blob
from refsim.partition.check import check
from refsim.partition.load import load
from refsim.partition.lower import lower

from . import executorch_lowering as theirs

DOC = Path(__file__).parents[2] / "docs" / "partitioner.md"
BUNDLED = {path.stem: path for path in (DOC.parents[1] / "tests" / "data" / "models").glob("*.pt2")}
#: network -> the difference's key in docs/partitioner.md, and the operators there and here (q, dq: the conversions).
DELIBERATE = {
    "AddmmByInput": ("weight-by-input", "prepack " * 4 + "dq_channel addmm", "q linear dq"),
    "SquareMm": ("weight-by-input", "q linear dq", "q linear dq"),
    "Bmm": ("weight-by-input", "prepack " * 3 + "dq_channel bmm", "q linear dq"),
    "OddChannelsLinear": (
        "float-weight",
        "prepack " * 3 + "dq_channel linear q linear dq",
        "linear q linear dq",
    ),
    "LinearFiveDims": ("linear-dims", "q linear dq", "prepack view_copy _weight_int8pack_mm add view_copy"),
    "DynamicLinears": (
        "float-weight",
        "prepack " * 6 + "dq_channel linear relu dq_channel linear",
        "linear relu linear",
    ),
    "DynamicLinears3D": (
        "float-weight",
        "prepack " * 6 + "dq_channel linear relu dq_channel linear",
        "linear relu linear",
    ),
    "OddGroups": (
        "float-weight",
        "prepack " * 3 + "q conv2d dq dq_channel clone convolution",
        "q conv2d dq convolution",
    ),
    "TransposedWrongAxis": (
        "float-weight",
        "prepack " * 6 + "dq_channel clone conv_with_clamp dq_channel clone convolution",
        "conv_with_clamp convolution",
    ),
    "OddGroupInputs": ("group-inputs", "q conv2d dq", "convolution"),
    "AddRelu": ("add-relu", "q conv2d_pw add conv2d_pw dq", "q conv2d_pw add relu conv2d_pw dq"),
    "AddAlpha": ("alpha", "q conv2d_pw add dq", "q conv2d_pw add dq"),
    "FloatMm": ("weight-by-input", "q clone linear_q8ta_q8csw", "q clone linear_q8ta_q8csw"),
    "TwoHeads": ("float-head", *["q clone linear_q8ta_q8csw linear_q8ta_q8csw"] * 2),
}
#: Networks that ExecuTorch cannot lower at all.
CRASHES = {
    "OddDepthwise": "depthwise-channels",
    "Attention": "bmm-of-linear",
    "OddFloatHead": "float-head-bias",
}


SHORT = {
    "quantized_decomposed.quantize_per_tensor.default": "q",
    "quantized_decomposed.dequantize_per_tensor.default": "dq",
    "quantized_decomposed.dequantize_per_channel.default": "dq_channel",
}


def exported(name: str) -> ExportedProgram:
    return load(BUNDLED[name]) if name in BUNDLED else program(name)[0]


def ours(name: str) -> list[Blob]:
    return [read_blob(d.serialized.blob(name), name) for d in lower(exported(name), name).delegates]


def operators(blobs: list[Blob]) -> str:
    names = [call.name for blob in blobs for call in blob.graph.chain]
    return " ".join(SHORT.get(name) or name.split(".")[1].removeprefix("q8ta_") for name in names)


@pytest.mark.parametrize("name", [*(n for n in NETWORKS if n not in CRASHES), *BUNDLED])
def test_program(name: str) -> None:
    mine = ours(name)
    other = theirs.delegates(theirs.lower(exported(name)))
    if name in DELIBERATE:
        _key, there, here = DELIBERATE[name]
        assert (operators(other), operators(mine)) == (there, here)
        # where the operators are the same, it is an argument that differs
        assert [theirs.contents(b) for b in mine] != [theirs.contents(b) for b in other]
    else:
        for one, two in zip(mine, other, strict=True):
            assert theirs.chain(one) == theirs.chain(two)
            assert theirs.contents(one) == theirs.contents(two)
    assert sum(map(theirs.clones, mine)) <= sum(map(theirs.clones, other))


@pytest.mark.parametrize("seed", range(8))
def test_random_network(seed: int) -> None:
    drawn = random_program(seed)
    lowered = lower(drawn, "random")
    mine = [read_blob(d.serialized.blob(), "random") for d in lowered.delegates]
    other = theirs.delegates(theirs.lower(drawn))
    if "dq_channel" in operators(other):  # the difference called float-weight
        assert "dq_channel" not in operators(mine)
    else:
        assert [theirs.contents(b) for b in mine] == [theirs.contents(b) for b in other]
    assert sum(map(theirs.clones, mine)) <= sum(map(theirs.clones, other))
    assert not [d for d in check(lowered) if d.wrong]


@pytest.mark.parametrize("name", CRASHES)
def test_only_lowered_here(name: str) -> None:
    with pytest.raises(Exception, match=r"FusePatternsPass|^$"):  # an assertion without a message
        theirs.lower(exported(name))
    assert ours(name)


def test_every_difference_is_documented() -> None:
    text = DOC.read_text()
    for key in {*(key for key, *_operators in DELIBERATE.values()), *CRASHES.values()}:
        assert f"`{key}`" in text, key

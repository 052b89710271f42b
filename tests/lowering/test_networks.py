"""Every network: the q8ta operators that it becomes, what stays outside, and that each computes what it replaced."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import refsim
from refsim.check.finding import Level
from refsim.check.run import check_bytes, refused_values
from refsim.graph import memory
from refsim.graph.scalars import mended
from refsim.partition.check import check
from refsim.partition.container import write
from refsim.partition.lower import Lowered, lower
from refsim.partition.report import delegates, graphs, statistics

from .networks import NETWORKS, program

#: network -> fused operators in order, codes of what was not fused, codes of what runs outside.
EXPECTED: dict[str, tuple[str, str, str]] = {
    "ChainedLinears": ("linear linear linear", "", ""),
    "ChainedGemvs": ("linear_gemv linear_gemv linear_gemv", "", ""),
    "Addmm": ("linear", "", ""),
    "AddmmByInput": ("linear", "", ""),
    "SquareMm": ("linear", "", ""),
    "Bmm": ("linear", "", ""),
    "Linear3D": ("linear linear", "", ""),
    "Linear4D": ("linear linear", "", ""),
    "LeadingRows": ("linear_gemv", "", ""),
    "OddChannelsLinear": ("linear", "in-channels", ""),
    "FloatHead": ("linear linear_q8ta_q8csw", "", ""),
    "FloatHead3D": ("linear linear_q8ta_q8csw", "", ""),
    "FloatMm": ("linear_q8ta_q8csw", "", ""),
    "TwoHeads": ("linear_q8ta_q8csw linear_q8ta_q8csw", "", ""),
    "OddFloatHead": ("linear_q8ta_q8csw", "", ""),
    "LinearFiveDims": ("", "high-dim", ""),
    "DynamicLinears": ("", "input-float input-float", ""),
    "DynamicLinears3D": ("", "input-float input-float", ""),
    "GroupedConvolution": ("conv2d conv2d conv2d_pw", "", ""),
    "OddGroupInputs": ("", "in-channels", ""),
    "OddGroups": ("conv2d", "out-channels", ""),
    "DilatedConvolution": ("conv2d conv2d", "", ""),
    "DepthwiseConvolution": ("conv2d conv2d_dw conv2d_dw conv2d_pw", "", ""),
    "TransposedConvolution": ("conv2d_transposed conv2d_transposed", "", ""),
    "TransposedWrongAxis": ("", "weight-axis weight-axis", ""),
    "OddChannelsConvolution": ("conv2d conv2d_pw conv2d", "", ""),
    "OddDepthwise": ("", "out-channels", ""),
    "Batch": ("conv2d conv2d_pw add", "", ""),
    "Residuals": ("conv2d_pw add conv2d add conv2d_dw conv2d_pw add conv2d_pw", "", ""),
    "AddRelu": ("conv2d_pw add conv2d_pw", "", ""),
    "AddReluAtMinimum": ("conv2d_pw add conv2d_pw", "", ""),
    "ReluElsewhere": ("conv2d_pw add linear_gemv", "", ""),
    "AddAlpha": ("conv2d_pw add", "", ""),
    "BroadcastAdd": ("add", "", ""),
    "AddToItself": ("conv2d add conv2d", "", ""),
    "FourPixelShuffles": ("conv2d_pw pixel_shuffle " * 4 + "conv2d", "", ""),
    "TwoDelegates": ("conv2d conv2d_pw", "", "no-implementation"),
    "Classifier": ("conv2d conv2d linear_gemv", "", ""),
    "FloatIslands": ("conv2d conv2d_pw conv2d", "", ""),
    "Attention": ("linear linear linear", "weight-not-constant", ""),
    "FloatConvolution": ("add", "input-float", ""),
    "FiveDims": ("add relu add", "", ""),
    "SharedWeights": ("conv2d relu conv2d", "", ""),
    "SmallResNet": (
        "conv2d conv2d_pw conv2d conv2d_pw conv2d_pw add conv2d_pw conv2d conv2d_pw conv2d add "
        "conv2d_pw conv2d conv2d_pw add conv2d_pw conv2d conv2d_pw conv2d add linear_gemv",
        "",
        "",
    ),
}


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> tuple[str, Lowered]:
    name = request.param
    return name, lower(program(name)[0], name)


#: What the runtime refuses in a file, or gets wrong, by network: as in the files that ExecuTorch makes.
DEFECTS = (
    "Linear4D", "LeadingRows", "Batch", "GroupedConvolution", "OddGroupInputs", "OddGroups", "AddAlpha", "BroadcastAdd",
)  # fmt: skip
HEADS = ("FloatHead", "FloatMm", "TwoHeads", "OddFloatHead")
FOUND = {
    **{name: {"known-defect"} for name in DEFECTS},
    **{name: {"float-argument", "missing-shader"} for name in HEADS},
    "FloatHead3D": {"float-argument", "missing-shader", "known-defect"},
    **{name: {"pool-stride"} for name in ("Classifier", "FloatIslands")},
}


def test_what_the_runtime_refuses(network: tuple[str, Lowered]) -> None:
    name, lowered = network
    found = check_bytes(write(lowered), name)
    assert {f.rule for f in found if f.level is not Level.NOTE} == FOUND.get(name, set())


def test_every_network_is_listed() -> None:
    assert set(EXPECTED) == set(NETWORKS)


def test_operators(network: tuple[str, Lowered]) -> None:
    name, lowered = network
    fused, unfused, refused = EXPECTED[name]
    found = [f.operator.removeprefix("q8ta_") for d in lowered.delegates for f in d.fused]
    assert found == fused.split()
    assert [r.code for r in lowered.unfused] == unfused.split()
    assert [r.code for r in lowered.refusals] == refused.split()
    assert len(lowered.delegates) == (2 if name == "TwoDelegates" else 1)


def test_operators_compute_what_they_replaced(network: tuple[str, Lowered]) -> None:
    _name, lowered = network
    found = check(lowered)
    assert {d.node for d in found} >= {f.node for d in lowered.delegates for f in d.fused}
    for difference in found:
        assert difference.worst <= 1, difference
        if difference.operator != "quantize":  # which is asked about ties
            assert difference.steps[0] > 0.99 * sum(difference.steps.values()), difference


def test_outputs(network: tuple[str, Lowered], tmp_path: Path) -> None:
    """The whole file against the program in torch: rounding may differ by a step here and there, not more."""
    name, lowered = network
    path = tmp_path / "model.pte"
    path.write_bytes(write(lowered))
    exported, inputs = program(name)
    outputs = refsim.load(path).run([x.numpy() for x in inputs])
    with torch.no_grad():
        wanted = exported.module()(*inputs)
    for ours, theirs in zip(outputs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        spread = float(theirs.max() - theirs.min())
        assert ours.shape == tuple(theirs.shape) and ours.dtype == np.float32
        # a range has about 255 steps; what is folded around float operators is not rounded at all
        assert np.abs(ours - theirs.numpy()).max() <= 4 * spread / 255


def test_memory_and_costs(network: tuple[str, Lowered]) -> None:
    name, lowered = network
    built = graphs(lowered)
    for delegate, graph in zip(lowered.delegates, built, strict=True):
        cost = statistics(delegate.serialized.graph, graph)
        memory.check(delegate.serialized.graph, name)
        assert cost.memory_bytes <= cost.memory_bytes_unshared
        assert cost.clones == sum(not t.reused for t in delegate.transitions)
        assert cost.operators == cost.int8_operators + cost.float_operators
        assert cost.dispatches >= cost.int8_operators
        # constants are stored once, whoever reads them
        keys = [row.named_key for row in delegate.serialized.graph.constants]
        assert keys == list(delegate.serialized.data)
    rows = delegates(lowered, built)
    assert [row.statistics["operators"] for row in rows] == [len(g.nodes) for g in built]


def test_add_relu_is_exact() -> None:
    """An addition and a relu after it give the bytes of quantizing the relu of the sum: no relu is lost."""
    lowered = lower(program("AddRelu")[0], "AddRelu")
    (delegate,) = lowered.delegates
    add = next(f for f in delegate.fused if f.operator == "q8ta_add")
    assert add.notes and [d.worst for d in check(lowered) if d.node == add.node] == [0]


def test_shared_weights_are_stored_once() -> None:
    (delegate,) = lower(program("SharedWeights")[0]).delegates
    assert len(delegate.serialized.graph.constants) == 4  # weight, sums, scales, bias


@pytest.mark.long
@pytest.mark.parametrize("name", NETWORKS)
def test_a_runtime_loads_what_was_lowered_for_it(name: str) -> None:
    """WebGPU's refuses most of these networks as they are; what it refuses stays in float or outside."""
    exported, _ = program(name)
    data = write(lower(exported, name, (), partial(refused_values, release="webgpu")))
    assert not [one for one in check_bytes(data, name, "webgpu") if one.level is not Level.NOTE]
    assert not mended(data, name)[1]

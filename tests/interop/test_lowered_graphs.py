"""ExecuTorch's lowering of each program against ours: every operator, argument, constant, layout, in order.

The networks in ``DELIBERATE`` differ on purpose; docs/partitioner.md says why, by the same keys. They may not stop
differing unnoticed, and no network may need more clones here than there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchao.quantization.quant_primitives  # noqa: F401  (registers torchao's operators)
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from executorch.exir.passes import _quant_patterns_and_replacements  # noqa: F401  (registers embedding_4bit)
from lowering.dynamic_programs import PROGRAMS as DYNAMIC
from lowering.dynamic_programs import grouped
from lowering.idioms import IDIOMS
from lowering.network import Network, linear, network
from lowering.networks import NETWORKS, program
from lowering.quantize import OPERATORS, quantize
from torch import Tensor, nn
from torch.export import ExportedProgram, export
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerGroup
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import refsim
from refsim.formats.pte import schema
from refsim.formats.pte.read import Pte, read_pte
from refsim.formats.vkgraph.read import Blob, read_blob
from refsim.partition.check import check
from refsim.partition.container import write
from refsim.partition.load import load
from refsim.partition.lower import Lowered, lower

from . import executorch_lowering as theirs

Shape = tuple[int, int, int]  # C, H, W
#: A step: what it is made of, given the shape that it reads; None where it cannot read that.
Maker = Callable[[random.Random, Shape], nn.Module | None]
CHANNELS = (4, 5, 8, 12, 16)


def _conv(draw: random.Random, shape: Shape) -> nn.Module:
    size, dilation = draw.choice([(1, 1), (3, 1), (3, 2)])
    pad = (size - 1) * dilation // 2
    bias = draw.random() < 0.7
    return nn.Conv2d(shape[0], draw.choice(CHANNELS), size, draw.choice([1, 2]), pad, dilation, bias=bias)


def _function(forward: Callable[[Any, Tensor], Tensor]) -> nn.Module:
    return type("Function", (nn.Module,), {"forward": forward})()


MAKERS: tuple[Maker, ...] = (
    _conv,
    lambda draw, shape: nn.Sequential(_conv(draw, shape), nn.ReLU()),
    lambda draw, shape: nn.Conv2d(shape[0], draw.choice(CHANNELS), 1),
    lambda draw, shape: (
        nn.Conv2d(shape[0], shape[0], 3, padding=1, groups=shape[0]) if shape[0] % 4 == 0 else None
    ),
    lambda draw, shape: nn.Conv2d(shape[0], 8, 3, groups=2, padding=1) if shape[0] % 8 == 0 else None,
    lambda draw, shape: nn.ConvTranspose2d(shape[0], 8, 2, 2) if shape[1] < 16 else None,
    lambda draw, shape: nn.PixelShuffle(2) if shape[0] % 4 == 0 else None,
    lambda draw, shape: nn.MaxPool2d(2) if min(shape[1:]) > 3 else None,
    lambda draw, shape: nn.AvgPool2d(2) if min(shape[1:]) > 3 else None,
    lambda draw, shape: draw.choice([nn.ReLU(), nn.Sigmoid(), nn.Hardswish(), nn.Softmax(1), nn.Tanh()]),
    # erf has no kernel in a delegate: what reads it is another delegate
    lambda draw, shape: draw.choice(
        [_function(lambda m, x: x.clone()), _function(lambda m, x: torch.erf(x))]
    ),
)


class RandomNetwork(nn.Module):
    """Steps that read one of the last three values, or add two of equal shape; perhaps a linear at the end."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        torch.manual_seed(seed)
        self.example = torch.randn(1, draw.choice([3, 4, 8]), draw.choice([6, 7, 12]), draw.choice([6, 9]))
        self.steps = nn.ModuleList()
        self.reads: list[tuple[int, ...]] = []
        values = [self.example]
        while len(self.reads) < draw.randrange(5, 14):
            at = draw.randrange(max(0, len(values) - 3), len(values))
            twins = [
                other for other, value in enumerate(values) if value.shape == values[at].shape and other != at
            ]
            if twins and draw.random() < 0.25:
                step, reads = nn.Identity(), (at, draw.choice(twins))
            else:
                made = draw.choice(MAKERS)(draw, tuple(values[at].shape[1:]))
                if made is None:
                    continue
                step, reads = made, (at,)
            self.steps.append(step)
            self.reads.append(reads)
            values.append(self.step(len(self.reads) - 1, values))
        wide = values[-1].shape[1]
        self.head = nn.Linear(wide, 8) if wide % 4 == 0 and draw.random() < 0.5 else None

    def step(self, number: int, values: list[Tensor]) -> Tensor:
        first, *rest = (values[at] for at in self.reads[number])
        result: Tensor = self.steps[number](first)
        return result + rest[0] if rest else result

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for number in range(len(self.reads)):
            values.append(self.step(number, values))
        if self.head is None:
            return values[-1]
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(values[-1], 1), 1))


def random_program(seed: int) -> ExportedProgram:
    """The quantized program of a network; of some, a few kinds of operators stay float."""
    network = RandomNetwork(seed)
    left_out = random.Random(seed).sample(list(OPERATORS), 3) if seed % 4 == 3 else []
    return quantize(network, (network.example,), only=[op for op in OPERATORS if op not in left_out])


DOC = Path(__file__).parents[2] / "docs" / "partitioner.md"
BUNDLED = {path.stem: path for path in (DOC.parents[1] / "tests" / "data" / "models").glob("*.pt2")}
#: network -> the difference's key in docs/partitioner.md, and the operators there and here (q, dq: the conversions).
DELIBERATE = {
    "AddmmByInput": ("weight-by-input", "4x prepack dq_channel addmm", "q linear dq"),
    "SquareMm": ("weight-by-input", "q linear dq", "q linear dq"),
    "Bmm": ("weight-by-input", "3x prepack dq_channel bmm", "q linear dq"),
    "OddChannelsLinear": ("float-weight", "3x prepack dq_channel linear q linear dq", "linear q linear dq"),
    "LinearFiveDims": ("linear-dims", "q linear dq", "prepack view_copy _weight_int8pack_mm add view_copy"),
    **dict.fromkeys(
        ("DynamicLinears", "DynamicLinears3D"),
        ("float-weight", "6x prepack dq_channel linear relu dq_channel linear", "linear relu linear"),
    ),
    "OddGroups": (
        "float-weight", "3x prepack q conv2d dq dq_channel clone convolution", "q conv2d dq convolution",
    ),
    "TransposedWrongAxis": (
        "float-weight", "6x prepack dq_channel clone conv_with_clamp dq_channel clone convolution",
        "conv_with_clamp convolution",
    ),
    "OddGroupInputs": ("group-inputs", "q conv2d dq", "convolution"),
    "AddRelu": ("add-relu", "q conv2d_pw add conv2d_pw dq", "q conv2d_pw add relu conv2d_pw dq"),
    "AddAlpha": ("alpha", "q conv2d_pw add dq", "q conv2d_pw add dq"),
    "FloatMm": ("weight-by-input", "q clone linear_q8ta_q8csw", "q clone linear_q8ta_q8csw"),
    "TwoHeads": ("float-head", *["q clone linear_q8ta_q8csw linear_q8ta_q8csw"] * 2),
}  # fmt: skip
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
#: ExecuTorch traces a program again before it partitions it, and then asks for a size behind the first operator.
OTHER_ORDER = "seq_slice"

# --- weights of 4 bits in groups ---


def packed(m: Any, indices: Tensor) -> Tensor:
    """A table whose bytes have the even element in the high nibble."""
    return torch.ops.quantized_decomposed.embedding_4bit.dtype(
        m.w, m.scales, None, -8, 7, indices, dtype=torch.float32
    )


def _table(rows: int, k: int, group: int, *shape: int) -> Network:
    places = torch.arange(10).repeat(9)[: int(np.prod(shape))].reshape(shape)
    return network(
        lambda m, x: nn.functional.embedding(x, m.table.weight()),
        places,
        table=grouped(rows, k, False, group),
    )


def _product(rows: int, k: int, group: int, *shape: int, **more: Any) -> Network:
    return network(lambda m, x: m.a(x), (*shape, k), a=grouped(rows, k, False, group, **more))


def _mlp(*shape: int, inner: int = 32, out: int = 16) -> Network:
    """Two layers, the second without a bias."""
    return network(
        lambda m, x: m.down(nn.functional.silu(m.up(x))), (*shape, 64), up=linear(64, inner),
        down=linear(inner, out, bias=False),
    )  # fmt: skip


WEIGHTS: dict[str, Network] = {
    "table": _table(20, 64, 32, 5),
    "table of small groups": _table(11, 32, 4, 2, 3),
    "packed table": network(
        packed, torch.arange(6)[None], w=lambda: nn.Buffer(torch.randint(0, 256, (12, 64), dtype=torch.uint8)),
        scales=lambda: nn.Buffer(torch.rand(12, 2) + 0.1),
    ),
    "rows": _product(16, 64, 32, 6, bias=True),
    "one row": _product(12, 64, 16, 1),
    "K % 8 == 4": _product(8, 12, 12, 5, bias=True),
    "a plane": _product(16, 64, 32, 1, 3),
}  # fmt: skip
#: Rows are quantized too, by torchao: the network, and the size of a group.
ROWS_TOO: dict[str, tuple[Network, int]] = {
    "8da4w rows": (_mlp(6), 32),
    "8da4w one row": (_mlp(1), 32),
    "8da4w a leading dim of 1": (_mlp(1, 6), 32),
    "8da4w small groups": (_mlp(5, inner=48, out=8), 16),
    "8da4w an odd number of words": (_mlp(4, inner=96, out=12), 32),
    "8da4w a residual block": (
        network(
            lambda m, x: x + m.down(nn.functional.silu(m.up(m.norm(x)))), (6, 64), norm=partial(nn.LayerNorm, 64),
            up=linear(64, 32), down=linear(32, 64, bias=False),
        ),
        32,
    ),
}  # fmt: skip


def quantized_rows(row: Network, group: int = 32) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    module, inputs = row.made("rows")
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -0.3, 0.3)
    granularity = PerGroup(group)
    config = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=granularity)
    quantize_(module.eval(), config)
    return export(module, inputs), inputs


def weights(name: str) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    if name in ROWS_TOO:
        return quantized_rows(*ROWS_TOO[name])
    module, inputs = WEIGHTS[name].made(name)
    return export(module.eval(), inputs), inputs


def quantized_idiom(name: str) -> ExportedProgram:
    """As users do it: PT2E, XNNPACKQuantizer."""
    module, inputs = IDIOMS[name]()
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(export(module, inputs).module(), quantizer)
    with torch.no_grad():
        prepared(*inputs)
    return export(convert_pt2e(prepared), inputs)


EVERY: dict[str, Callable[[], ExportedProgram]] = {
    **{name: lambda name=name: program(name)[0] for name in NETWORKS},
    **{name: lambda path=path: load(path) for name, path in BUNDLED.items()},
    **{name: partial(quantized_idiom, name) for name in IDIOMS},
    **{name: lambda name=name: weights(name)[0] for name in (*WEIGHTS, *ROWS_TOO)},
    **DYNAMIC,
}


def plan_of(pte: Pte) -> list[tuple[Any, ...]]:
    """Inputs, calls and outputs of the plan; tensors are numbered by their first appearance."""
    plan = pte.plan()
    numbers: dict[int, int] = {}

    def describe(number: int) -> Any:
        value = plan.values[number]
        if isinstance(value, schema.Tensor):
            known = numbers.setdefault(number, len(numbers))
            return (known, value.sizes, value.scalar_type, value.shape_dynamism)
        if isinstance(value, schema.TensorList | schema.OptionalTensorList | schema.IntIdList):
            return [describe(item) if item >= 0 else None for item in value.items]
        return value

    found: list[tuple[Any, ...]] = [("in", *map(describe, plan.inputs))]
    for chain in plan.chains:
        for call in chain.instructions:
            name = str(plan.operators[call.op_index]) if isinstance(call, schema.KernelCall) else "delegate"
            found.append((name, *map(describe, call.args)))
    return [*found, ("out", *map(describe, plan.outputs))]


def border(pte: Pte) -> list[tuple[Any, ...]]:
    first, *_, last = plan_of(pte)
    return [first[1:], last[1:]]


def operators(blobs: list[Blob]) -> str:
    """The names, short; of what is prepacked, which comes first, the number."""
    names = [call.name for blob in blobs for call in blob.graph.chain]
    short = [SHORT.get(name) or name.split(".")[1].removeprefix("q8ta_") for name in names]
    count = short.count("prepack")
    return " ".join(short) if count < 2 else " ".join((f"{count}x prepack", *short[count:]))


@pytest.mark.parametrize("name", [name for name in EVERY if name not in CRASHES])
def test_the_same_graphs(name: str) -> None:
    exported = EVERY[name]()
    mine, other = read_pte(write(lower(exported, name)), name), theirs.lower(exported)
    blobs = [theirs.delegates(pte) for pte in (mine, other)]
    graphs = [[theirs.contents(blob) for blob in held] for held in blobs]
    if name in DELIBERATE:
        _key, there, here = DELIBERATE[name]
        assert [*map(operators, blobs)] == [here, there]
        assert graphs[0] != graphs[1]  # where the operators are the same, it is an argument that differs
    elif name == OTHER_ORDER:
        names = [[sorted(call[0] for call in graph) for graph in one] for one in graphs]
        assert names[0] == names[1] and graphs[0] != graphs[1]
    else:
        assert graphs[0] == graphs[1]
    if name in IDIOMS:
        assert plan_of(mine) == plan_of(other)
    elif name in DYNAMIC:
        assert border(mine) == border(other)
    clones = [sum(map(theirs.clones, held)) for held in blobs]
    assert clones[0] <= clones[1]


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
        theirs.lower(EVERY[name]())
    assert lower(EVERY[name](), name).delegates


def test_every_difference_is_documented() -> None:
    text = DOC.read_text()
    for key in {*(key for key, *_operators in DELIBERATE.values()), *CRASHES.values()}:
        assert f"`{key}`" in text, key


# --- weights of 4 bits: what the files compute, and what is refused ---


def both(
    lowered: Lowered, exported: ExportedProgram, inputs: tuple[Tensor, ...], folder: Path
) -> tuple[np.ndarray, np.ndarray]:
    """What the file of a program with one output gives, and what torch does."""
    (folder / "m.pte").write_bytes(write(lowered))
    (out,) = refsim.load(folder / "m.pte").run([x.numpy() for x in inputs])
    return out, exported.module()(*inputs).detach().numpy()


@pytest.mark.parametrize("name", [*WEIGHTS, *ROWS_TOO])
def test_what_the_file_computes(name: str, tmp_path: Path) -> None:
    """torch's bits for a lookup; of a sum the order is another one, and of a row the zero point may be."""
    exported, inputs = weights(name)
    lowered = lower(exported, name)
    assert not lowered.refusals and not lowered.unfused
    assert name in ROWS_TOO or not [row for row in check(lowered) if row.wrong]
    out, need = both(lowered, exported, inputs, tmp_path)
    off = 0.0 if "table" in name else 0.03 if name in ROWS_TOO else 2e-5
    assert out.shape == need.shape and np.abs(out - need).max() <= off * np.abs(need).max()


def test_heads_after_a_projection_keep_their_shape(tmp_path: Path) -> None:
    """A view behind the product is taken with it only if it gives back the rows; ExecuTorch takes any and fails."""
    heads = network(lambda m, x: m.a(x).view(6, 4, 16).permute(1, 0, 2), (6, 64), a=linear(64, 64))
    exported, inputs = quantized_rows(heads)
    out, need = both(lower(exported), exported, inputs, tmp_path)
    assert out.shape == need.shape == (4, 6, 16) and np.abs(out - need).max() < 0.02 * np.abs(need).max()


def _lowered(row: Network) -> Lowered:
    module, inputs = row.made("small")
    return lower(export(module.eval(), inputs))


#: Where ExecuTorch fails, or takes what its kernel does not: why here; of the last two, which is lowered, nothing.
NOT_FUSED: dict[str, tuple[Callable[[], Lowered], set[str]]] = {
    "outputs": (lambda: _lowered(_product(10, 64, 32, 3, bias=True)), {"out-channels"}),
    "inputs": (lambda: _lowered(_product(8, 32, 2, 3, bias=True)), {"in-channels"}),
    "outputs of rows": (lambda: lower(quantized_rows(_mlp(6, out=10))[0]), {"out-channels"}),
    "leading dims": (lambda: lower(quantized_rows(_mlp(2, 6))[0]), set()),
}


@pytest.mark.parametrize("what", NOT_FUSED)
def test_what_is_refused(what: str) -> None:
    make, codes = NOT_FUSED[what]
    lowered = make()
    assert {row.code for row in lowered.unfused} >= codes and bool(lowered.unfused) == bool(codes)
    if "rows" not in what and codes:
        assert not any("q4gsw" in fused.operator for d in lowered.delegates for fused in d.fused)


def test_a_zero_point_is_not_dropped() -> None:
    lowered = _lowered(_product(8, 32, 16, 3, zero_point=1))
    assert not any("q4gsw" in fused.operator for d in lowered.delegates for fused in d.fused)

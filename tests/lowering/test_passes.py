"""Each pass on a small program: what it changes, fuses or folds, what it leaves, and that its argument stays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn

from refsim.core.errors import GraphError
from refsim.partition.check import evaluate
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import dtype_of, shape_of, target_name
from refsim.partition.passes import decompose
from refsim.partition.passes.prepare import dim_order, functional, mixed_types, promote, remove_noops, scalars
from refsim.partition.passes.simplify import (
    dropped_dims,
    fold_qdq,
    fuse_clamp,
    fuse_rms_norm,
    fuse_views,
    remove_redundant,
    squeeze_inputs,
    squeeze_views,
)
from refsim.partition.passes.weights import (
    fold_constants,
    fuse_batch_norm,
    insert_prepack,
    linear,
    weight_only,
)

from .network import network

Q = torch.ops.quantized_decomposed.quantize_per_tensor.default
DQ = torch.ops.quantized_decomposed.dequantize_per_tensor.default
DQ_CHANNEL = torch.ops.quantized_decomposed.dequantize_per_channel.default
INT8 = (-128, 127, torch.int8)


def program(function: Callable[..., Any], *shapes: tuple[int, ...], **constants: Tensor) -> FxProgram:
    """The decomposed program of a function of its inputs; with ``constants``, of a module with these buffers first."""
    forward = function if constants else lambda m, *inputs: function(*inputs)
    parts = {name: partial(nn.Buffer, value) for name, value in constants.items()}
    return decompose.run(torch.export.export(*network(forward, *shapes, **parts).made("small")))


def names(given: FxProgram) -> list[str]:
    """The operators of a program, without the parts that are always the same."""
    return [target_name(n).removeprefix("aten.").removesuffix(".default") for n in given.calls()]


def prepared(function: Callable[..., Any], *shapes: tuple[int, ...], **constants: Tensor) -> FxProgram:
    return functional(program(function, *shapes, **constants))


def values(after: FxProgram, *inputs: Tensor) -> list[Tensor]:
    """What a program gives in torch."""
    known: dict[Any, Any] = dict(zip(after.inputs(), inputs, strict=True))
    return [evaluate(after, node, known) for node in after.outputs()]


PASSES = (
    functional, scalars, remove_noops, dim_order, linear, fuse_clamp, remove_redundant, fold_qdq, fuse_views,
    squeeze_views, fold_constants, insert_prepack,
)  # fmt: skip


@pytest.mark.parametrize("step", PASSES, ids=lambda m: m.__name__)
def test_passes_are_pure_and_idempotent(step: Any) -> None:
    def everything(m: Any, x: Tensor) -> Tensor:
        y = DQ(Q(x.view(4, 6) + 2, 0.5, 3, *INT8), 0.5, 3, *INT8)
        y = torch.relu(y.clone()).view(1, 4, 6).view(1, 4, 2, 3)
        z = torch.relu(nn.functional.conv2d(y, m.w)) + m.w.sum()
        return torch.addmm(m.b, z.reshape(2, 12), m.v.t())

    constants = {"w": torch.randn(4, 4, 1, 1), "v": torch.randn(5, 12), "b": torch.randn(5)}
    before = (program if step is functional else prepared)(everything, (2, 12), **constants)
    text, kept = str(before.graph), dict(before.constants)
    once = step(before)
    assert str(before.graph) == text and before.constants == kept
    assert once.graph is not before.graph
    once.graph.lint()
    assert names(step(once)) == names(once)


def _again(second: tuple[float, int]) -> Any:
    def f(x: Tensor) -> Tensor:
        y = DQ(Q(torch.relu(x), 0.5, 3, *INT8), 0.5, 3, *INT8)
        return DQ(Q(y, *second, *INT8), *second, *INT8)

    return f


def _noops(x: Tensor) -> Tensor:
    y = torch.ops.aten.slice_copy.Tensor(x, 1, 0, 3)  # all of it
    z = torch.ops.aten._to_copy.default(y, dtype=torch.float32)  # as it is
    return torch.relu(torch.ops.aten.slice_copy.Tensor(z, 1, 1, 3)).to(torch.float16)


def _clones(x: Tensor) -> Tensor:
    y = torch.relu(x.clone()).clone().expand(2, 3)
    return y.to(torch.float16).expand(4, 2, 3).clone()


def _kept(x: Tensor) -> Tensor:
    y = nn.functional.hardswish(nn.functional.pixel_shuffle(x, 2))
    return nn.functional.interpolate(y, scale_factor=2, mode="nearest")


def _read_twice(m: Any, x: Tensor) -> Tensor:
    y = nn.functional.conv2d(x, m.w)
    return torch.relu(y) + y


def _views(x: Tensor) -> Tensor:
    y = x.view(2, 6)
    return torch.abs(y).view(12) + y.view(12)


ROUND = "quantized_decomposed.quantize_per_tensor quantized_decomposed.dequantize_per_tensor"
#: Passes, a function, the shapes of its inputs and of its constants; the operators that are left.
LEFT: dict[str, tuple[tuple[Any, ...], Any, tuple[tuple[int, ...], ...], dict[str, tuple[int, ...]], str]] = {
    "what kernels want": ((), _kept, ((1, 4, 3, 3),), {}, "pixel_shuffle hardswish upsample_nearest2d.vec"),
    "noops": ((functional, remove_noops), _noops, ((2, 3),), {}, "slice_copy.Tensor relu _to_copy"),
    "quantized again": ((remove_noops,), _again((0.5, 3)), ((2, 3),), {}, f"relu {ROUND}"),
    "of another zero point": ((remove_noops,), _again((0.5, 4)), ((2, 3),), {}, f"relu {ROUND} {ROUND}"),
    "of another scale": ((remove_noops,), _again((0.25, 3)), ((2, 3),), {}, f"relu {ROUND} {ROUND}"),
    "layouts": (
        (dim_order,), lambda x: x.clone(memory_format=torch.channels_last).to(torch.float16), ((1, 2, 3, 4),), {},
        "dim_order_ops._clone_dim_order dim_order_ops._to_dim_order_copy",
    ),
    "redundant": (
        (functional, dim_order, remove_redundant), _clones, ((2, 3),), {},
        "relu dim_order_ops._to_dim_order_copy expand_copy",
    ),
    # a convolution packs its constants by itself
    "a constant that two read": (
        (insert_prepack,), lambda m, x: (nn.functional.conv2d(x, m.w) + m.c) * m.c, ((1, 2, 4, 4),),
        {"w": (3, 2, 1, 1), "c": (3, 1, 1)}, "et_vk.prepack convolution add.Tensor mul.Tensor",
    ),
    "a primary argument": (
        (insert_prepack,), lambda m, x: torch.mm(m.a, x), ((4, 3),), {"a": (2, 4)}, "et_vk.prepack mm"
    ),
    "read by others": ((fuse_clamp,), _read_twice, ((1, 2, 4, 4),), {"w": (3, 2, 1, 1)}, "convolution relu add.Tensor"),
    "views": (
        (functional, fuse_views), lambda x: torch.sqrt(torch.abs(x.view(2, 6).view(3, 4)).view(4, 3)).view(12),
        ((2, 2, 3),), {}, "view_copy abs sqrt",
    ),
    "views that others read": (
        (functional, fuse_views), _views, ((2, 2, 3),), {}, "view_copy abs view_copy view_copy add.Tensor",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_operators_that_are_left(name: str) -> None:
    steps, function, shapes, constants, left = LEFT[name]
    given = program(function, *shapes, **{key: torch.randn(shape) for key, shape in constants.items()})
    for step in steps:
        given = step(given)
    assert names(given) == left.split()


def test_dim_orders_take_the_place_of_memory_formats() -> None:
    first, second = dim_order(program(LEFT["layouts"][1], (1, 2, 3, 4))).calls()
    assert first.kwargs["dim_order"] == [0, 2, 3, 1] and "memory_format" not in first.kwargs
    assert second.kwargs["dtype"] == torch.float16


def test_decompose_refuses_a_program_with_state() -> None:
    def count(m: Any, x: Tensor) -> Tensor:
        m.count += 1
        return x + m.count

    with pytest.raises(GraphError, match="writes to its own state"):
        program(count, (1,), count=torch.zeros(1))


@pytest.mark.parametrize(
    ("function", "value"),
    [(lambda x: x + 1.5, 1.5), (lambda x: x * -2, -2), (lambda x: x.int() + 3, 3)],
)
def test_scalars(function: Any, value: float) -> None:
    after = scalars(program(function, (2, 3)))
    (constant,) = after.constants.values()
    assert constant.dtype == torch.tensor(value).dtype and torch.equal(constant, torch.tensor(value))
    assert list(after.calls())[-1].args[1].name in after.constants


@pytest.mark.parametrize(
    ("function", "converted"),
    [
        (lambda x: x * -2, ["int64 float32"]),
        (lambda x: x.int() // 3, ["int64 int32"]),
        (lambda x: x.int() / 3, ["int32 float32", "int64 float32"]),
        (lambda x: x.half() + x, ["float16 float32"]),
        (lambda x: x.int() + 1.5, ["int32 float32"]),
        (lambda x: x + 1.5, []),
        (lambda x: x.int() < 1.5, []),
    ],
)
def test_mixed_types(function: Any, converted: list[str]) -> None:
    before = scalars(program(function, (2, 3)))
    after = mixed_types(before)
    new = [n for n in after.calls() if n.name not in {m.name for m in before.graph.nodes}]
    assert [f"{dtype_of(n.args[0])} {dtype_of(n)}" for n in new] == converted
    assert [dtype_of(n) for n in after.outputs()] == [dtype_of(n) for n in before.outputs()]


@pytest.mark.parametrize(
    ("source", "shape", "becomes"),
    [
        ((1, 1, 3), (1, 3), ("squeeze_copy.dims", [1])),
        ((1, 4, 1, 3), (4, 3), ("squeeze_copy.dims", [0, 2])),
        ((2, 3, 1), (2, 3), None),  # a dim at the end stays
        ((2, 3), (2, 1, 3), ("unsqueeze_copy", 1)),
        ((2, 3), (2, 3, 1), ("unsqueeze_copy", -1)),
        ((2, 3), (1, 2, 3), None),  # one in front stays
        ((2, 3), (2, 1, 3, 1), None),
        ((2, 3), (3, 2), None),
    ],
)
def test_squeeze_views(source: tuple[int, ...], shape: tuple[int, ...], becomes: Any) -> None:
    after = squeeze_views(prepared(lambda x: x.view(shape), source))
    (node,) = after.calls()
    assert (*names(after), node.args[1]) == (becomes or ("view_copy", list(shape)))
    assert shape_of(node) == shape


def test_dropped_dims() -> None:
    assert dropped_dims((1, 2, 1, 3), (2, 3)) == [0, 2]
    assert dropped_dims((2, 3), (2, 3)) is None
    assert dropped_dims((2, 1), (2,)) is None and dropped_dims((2, 1), (2,), last=True) == [1]


@pytest.mark.parametrize(
    ("shape", "short"),
    [
        ((8, 1, 16), [8, 16]),
        ((1, 8, 16), None),
        ((1, 17, 1, 16), [17, 16]),
        ((2, 1, 3, 4), [2, 3, 4]),
        ((1, 1, 5, 6), None),
        ((1, 1, 1, 6), None),
        ((1, 4, 5, 6), None),
        ((1, 1, 5, 1), [5, 1]),
        ((6,), None),
    ],
)
def test_squeeze_inputs(shape: tuple[int, ...], short: list[int] | None) -> None:
    after = squeeze_inputs(program(lambda x: torch.nn.functional.gelu(x) + 1, shape))
    views = [node for node in after.calls() if target_name(node) == "aten.view_copy.default"]
    assert [list(node.args[1]) for node in views] == ([] if short is None else [short, list(shape)])
    x = torch.randn(shape)
    (made,), (node,) = values(after, x), after.outputs()
    assert torch.equal(made, torch.nn.functional.gelu(x) + 1) and shape_of(node) == made.shape


def test_promote() -> None:
    """Comparisons of unequal dtypes compute in float32; equal ones stay as they are."""
    after = promote(scalars(program(lambda x: (x.int() < x, x.int() < x.int() * x.int()), (2, 3))))
    new = [n for n in after.calls() if n.name.startswith("_to_copy") and dtype_of(n) == "float32"]
    assert len(new) == 1 and [target_name(user) for user in new[0].users] == ["aten.lt.Tensor"]


# --- one operator of several ---


@pytest.mark.parametrize(
    ("activation", "bounds"),
    [
        (torch.relu, (0.0, 1.7976931348623157e308)),
        (nn.functional.relu6, (0.0, 6.0)),
        (nn.functional.hardtanh, (-1.0, 1.0)),
    ],
)
def test_clamp(activation: Any, bounds: tuple[float, float]) -> None:
    def f(m: Any, x: Tensor) -> Tensor:
        return activation(nn.functional.conv2d(x, m.w))

    (node,) = fuse_clamp(program(f, (1, 2, 4, 4), w=torch.randn(3, 2, 3, 3))).calls()
    assert target_name(node) == "et_vk.conv_with_clamp.default"
    assert node.args[-2:] == bounds and len(node.args) == 11 and shape_of(node) == (1, 3, 2, 2)


def test_fold_constants() -> None:
    """Only what an operator packs as a weight: the bias is computed as well, the factor is left to the device."""
    scale, zero = torch.tensor([0.5, 0.25]), torch.zeros(2, dtype=torch.int64)
    weight = torch.tensor([[2, 4, 6], [8, 12, 16]], dtype=torch.int8)

    def f(m: Any, x: Tensor) -> Tensor:
        w = DQ_CHANNEL(m.w, m.s, m.z, 0, -127, 127, torch.int8)
        return torch.ops.aten.linear.default(x * m.s.sum(), w, m.s + 1)

    after = fold_constants(linear(prepared(f, (3, 3), w=weight, s=scale, z=zero))).clean()
    assert names(after)[-2:] == ["mul.Tensor", "linear"] and "add.Tensor" not in names(after)
    _x, folded, bias = (after.constants.get(str(arg)) for arg in list(after.calls())[-1].args)
    assert folded is not None and bias is not None
    assert torch.equal(folded, torch.tensor([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]])) and folded.is_contiguous()
    assert torch.equal(bias, torch.tensor([1.5, 1.25]))


@pytest.mark.parametrize("transposed", [False, True])
def test_fuse_batch_norm(transposed: bool) -> None:
    made = nn.ConvTranspose2d(4, 8, 2, 2) if transposed else nn.Conv2d(4, 8, 3, bias=False)
    parts = {"a": made, "n": nn.BatchNorm2d(8), "b": nn.Conv2d(8, 8, 1)}
    parts["n"].running_mean.normal_()
    parts["n"].running_var.uniform_(0.5, 2.0)

    def forward(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        y = m.b(m.n(m.a(x)))
        return m.n(y), y  # read twice: stays a norm

    row = network(forward, (1, 4, 6, 5), **{name: lambda part=part: part for name, part in parts.items()})
    module, (x,) = row.made("Normed")
    module.eval()
    before = functional(decompose.run(torch.export.export(module, (x,))))
    after = fuse_batch_norm(before)
    assert [name for name in names(before) if "norm" in name] == ["_native_batch_norm_legit_no_training"] * 2
    assert [name for name in names(after) if "norm" in name] == ["_native_batch_norm_legit_no_training"]
    for got, need in zip(values(after, x), module(x), strict=True):
        assert torch.allclose(got, need, atol=1e-5)


@pytest.mark.parametrize(
    ("low", "zero", "axis", "fused"),
    [(-100, 0, 0, True), (-8, 0, 0, False), (-100, 1, 0, False), (-100, 0, 1, False)],
)
def test_weight_only(low: int, zero: int, axis: int, fused: bool) -> None:
    constants = {"w": torch.randint(low, 8, (4, 4), dtype=torch.int8), "s": torch.rand(4) + 0.5}
    constants["w"][0, 0] = low
    constants |= {"z": torch.full((4,), zero), "bias": torch.randn(4)}

    def f(m: Any, x: Tensor) -> Tensor:
        w = DQ_CHANNEL(m.w, m.s, m.z, axis, -128, 127, torch.int8)
        return torch.nn.functional.linear(x, w, m.bias)

    before = linear(prepared(f, (3, 4), **constants))
    after = weight_only(before)
    assert names(after)[-2:] == (["_weight_int8pack_mm", "add.Tensor"] if fused else names(before)[-2:])
    x = torch.randn(3, 4)
    assert torch.allclose(values(after, x)[0], values(before, x)[0], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda m, x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * m.w, True),
        (lambda m, x: m.w * (torch.rsqrt(1e-6 + x.pow(2).mean(-1, keepdim=True)) * x), True),
        (lambda m, x: x * torch.rsqrt((x * x).mean(0, keepdim=True) + 1e-6) * m.w, False),
        (lambda m, x: x * torch.rsqrt((x * x).mean(-1) + 1e-6)[:, None] * m.w, False),
        (lambda m, x: x * torch.rsqrt((x * m.w).mean(-1, keepdim=True) + 1e-6) * m.w, False),
        (lambda m, x: x * torch.rsqrt(x.pow(3).mean(-1, keepdim=True) + 1e-6) * m.w, False),
        (lambda m, x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + m.w) * m.w, False),
    ],
)
def test_fuse_rms_norm(function: Any, found: bool) -> None:
    after = fuse_rms_norm(scalars(prepared(function, (3, 4), w=torch.rand(4))))
    assert ("et_vk.rms_norm" in names(after)) == found
    if found:
        (node,) = after.calls()
        x, weight, eps = node.args
        assert x in after.inputs() and str(weight) in after.constants and eps == pytest.approx(1e-6)


def test_linear() -> None:
    w, b = torch.randn(5, 4), torch.randn(5)

    def f(m: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.addmm(m.b, x, m.w.t()),
            torch.mm(x, m.w.t()),
            torch.mm(x, y),
            torch.mm(x, y.t().contiguous().t()),
        )

    after = linear(prepared(f, (3, 4), (4, 5), w=w, b=b))
    assert names(after)[:2] == ["linear", "linear"]
    first, second = list(after.calls())[:2]
    assert first.args[1] is second.args[1] and torch.equal(after.constants[first.args[1].name], w)
    assert torch.equal(after.constants[first.args[2].name], b) and len(second.args) == 2
    # a product of activations is no linear, transposed or not
    assert names(after).count("mm") == 2


@pytest.mark.parametrize("readers", [1, 2])
def test_views_around_a_linear_of_what_is_quantized_at_run_time(readers: int) -> None:
    """They go, unless something else reads the tensor."""

    def f(m: Any, x: Tensor, s: Tensor, z: Tensor) -> Tensor:
        y = torch.ops.quantized_decomposed.dequantize_per_tensor.tensor(
            x.to(torch.int8), s, z.to(torch.int64), *INT8
        )
        return sum(torch.mm(y.view(6, 4), m.w.t()).view(2, 3, 5) for _ in range(readers))

    after = linear(prepared(f, (2, 3, 4), (1,), (1,), w=torch.randn(5, 4)))
    shapes = [shape_of(node) for node in after.calls() if target_name(node) == "aten.linear.default"]
    assert shapes == ([(2, 3, 5)] if readers == 1 else [(6, 5)] * 2)


def test_fold_qdq() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        q = Q(torch.sigmoid(x), 0.5, 3, *INT8)
        same, other = DQ(q, 0.5, 3, *INT8), DQ(q, 0.25, 3, *INT8)
        return torch.exp(same), torch.exp(other)

    given = program(f, (2, 3))
    after = fold_qdq(given)
    assert names(given).count("quantized_decomposed.dequantize_per_tensor") == 2
    first, second = after.outputs()
    assert target_name(first.args[0]) == "aten.sigmoid.default"
    # other parameters on the way back are no round trip
    assert target_name(second.args[0]) == "quantized_decomposed.dequantize_per_tensor.default"

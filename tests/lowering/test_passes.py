"""Each pass on a small program: what it changes, what it leaves, and that its argument stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn

from refsim.core.errors import GraphError
from refsim.partition.check import evaluate
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import dtype_of, shape_of, target_name
from refsim.partition.passes import (
    decompose,
    dim_order,
    fold_constants,
    fold_qdq,
    functional,
    fuse_batch_norm,
    fuse_clamp,
    fuse_rms_norm,
    fuse_views,
    insert_prepack,
    linear,
    mixed_types,
    promote,
    remove_noops,
    remove_redundant,
    scalars,
    squeeze_inputs,
    squeeze_views,
    weight_only,
)
from refsim.partition.passes.squeeze_views import dropped_dims

Q = torch.ops.quantized_decomposed.quantize_per_tensor.default
DQ = torch.ops.quantized_decomposed.dequantize_per_tensor.default
INT8 = (-128, 127, torch.int8)


def program(function: Callable[..., Any], *shapes: tuple[int, ...], **constants: Tensor) -> FxProgram:
    """The decomposed program of a function of its inputs; with ``constants``, of a module with these buffers first."""

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, value in constants.items():
                self.register_buffer(name, value)

        def forward(self, *inputs: Tensor) -> Any:
            return function(self, *inputs) if constants else function(*inputs)

    inputs = tuple(torch.randn(shape) for shape in shapes)
    return decompose.run(torch.export.export(Module(), inputs))


def names(given: FxProgram) -> list[str]:
    """The operators of a program, without the parts that are always the same."""
    return [target_name(n).removeprefix("aten.").removesuffix(".default") for n in given.calls()]


def prepared(function: Callable[..., Any], *shapes: tuple[int, ...], **constants: Tensor) -> FxProgram:
    return functional.run(program(function, *shapes, **constants))


PASSES = (
    functional, scalars, remove_noops, dim_order, linear, fuse_clamp, remove_redundant, fold_qdq, fuse_views,
    squeeze_views, fold_constants, insert_prepack,
)  # fmt: skip


@pytest.mark.parametrize("step", PASSES, ids=lambda m: m.__name__.rpartition(".")[2])
def test_passes_are_pure_and_idempotent(step: Any) -> None:
    def everything(m: Any, x: Tensor) -> Tensor:
        y = DQ(Q(x.view(4, 6) + 2, 0.5, 3, *INT8), 0.5, 3, *INT8)
        y = torch.relu(y.clone()).view(1, 4, 6).view(1, 4, 2, 3)
        z = torch.relu(nn.functional.conv2d(y, m.w)) + m.w.sum()
        return torch.addmm(m.b, z.reshape(2, 12), m.v.t())

    constants = {"w": torch.randn(4, 4, 1, 1), "v": torch.randn(5, 12), "b": torch.randn(5)}
    before = program(everything, (2, 12), **constants)
    if step is not functional:
        before = functional.run(before)
    text, kept = str(before.graph), dict(before.constants)
    once = step.run(before)
    assert str(before.graph) == text and before.constants == kept
    assert once.graph is not before.graph
    once.graph.lint()
    assert names(step.run(once)) == names(once)


def test_decompose_keeps_what_kernels_want() -> None:
    def f(x: Tensor) -> Tensor:
        y = nn.functional.hardswish(nn.functional.pixel_shuffle(x, 2))
        return nn.functional.interpolate(y, scale_factor=2, mode="nearest")

    assert names(program(f, (1, 4, 3, 3))) == ["pixel_shuffle", "hardswish", "upsample_nearest2d.vec"]


def test_decompose_takes_the_rest_apart() -> None:
    given = program(
        lambda m, x: nn.functional.linear(x, m.w, m.b), (2, 3, 4), w=torch.randn(5, 4), b=torch.randn(5)
    )
    assert sorted(names(given)) == ["addmm", "permute", "view", "view"]
    assert {tuple(t.shape) for t in given.constants.values()} == {(5, 4), (5,)}
    assert [n.name for n in given.inputs()] == ["inputs_0"]


def test_decompose_refuses_a_program_with_state() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            return x + self.count

    with pytest.raises(GraphError, match="writes to its own state"):
        decompose.run(torch.export.export(Counter(), (torch.randn(1),)))


def test_functional() -> None:
    given = program(lambda x: x.view(6).view(2, 3).permute(1, 0).unsqueeze(0)[:, 1:], (2, 3))
    assert not [n for n in given.calls() if not n.target.is_view]
    after = functional.run(given)
    assert all(name.partition(".")[0].endswith("_copy") for name in names(after))
    assert [shape_of(n) for n in after.calls()] == [shape_of(n) for n in given.calls()]


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (lambda x: x + 1.5, torch.tensor(1.5)),
        (lambda x: x * -2, torch.tensor(-2)),
        (lambda x: x.int() + 3, torch.tensor(3)),
    ],
)
def test_scalars(function: Any, value: Tensor) -> None:
    after = scalars.run(program(function, (2, 3)))
    (constant,) = after.constants.values()
    assert constant.dtype == value.dtype and torch.equal(constant, value)
    last = list(after.calls())[-1]
    assert last.args[1].name in after.constants


def test_equal_scalars_are_constants_of_their_own() -> None:
    after = scalars.run(program(lambda x: (x + 1.5) * 1.5 + 2.5, (2, 3)))
    assert [float(t) for t in after.constants.values()] == [1.5, 1.5, 2.5]


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
    before = scalars.run(program(function, (2, 3)))
    after = mixed_types.run(before)
    new = [n for n in after.calls() if n.name not in {m.name for m in before.graph.nodes}]
    assert [f"{dtype_of(n.args[0])} {dtype_of(n)}" for n in new] == converted
    assert [dtype_of(n) for n in after.outputs()] == [dtype_of(n) for n in before.outputs()]


def test_noops() -> None:
    def f(x: Tensor) -> Tensor:
        y = torch.ops.aten.slice_copy.Tensor(x, 1, 0, 3)  # all of it
        z = torch.ops.aten._to_copy.default(y, dtype=torch.float32)  # as it is
        return torch.relu(torch.ops.aten.slice_copy.Tensor(z, 1, 1, 3)).to(torch.float16)

    given = prepared(f, (2, 3))
    assert names(given).count("slice_copy.Tensor") == names(given).count("_to_copy") == 2
    assert names(remove_noops.run(given)) == ["slice_copy.Tensor", "relu", "_to_copy"]


@pytest.mark.parametrize(
    ("second", "left"),
    [
        ((0.5, 3, *INT8), ["relu", "quantize", "dequantize"]),
        ((0.5, 4, *INT8), ["relu", "quantize", "dequantize", "quantize", "dequantize"]),
        ((0.25, 3, *INT8), ["relu", "quantize", "dequantize", "quantize", "dequantize"]),
    ],
)
def test_a_dequantize_that_is_quantized_again(second: tuple[Any, ...], left: list[str]) -> None:
    def f(x: Tensor) -> Tensor:
        y = DQ(Q(torch.relu(x), 0.5, 3, *INT8), 0.5, 3, *INT8)
        return DQ(Q(y, *second), *second)

    found = names(remove_noops.run(program(f, (2, 3))))
    assert [n.rpartition(".")[2].removesuffix("_per_tensor") for n in found] == left


def test_dim_order() -> None:
    def f(x: Tensor) -> Tensor:
        return x.clone(memory_format=torch.channels_last).to(torch.float16)

    first, second = dim_order.run(program(f, (1, 2, 3, 4))).calls()
    assert target_name(first) == "dim_order_ops._clone_dim_order.default"
    assert first.kwargs["dim_order"] == [0, 2, 3, 1] and "memory_format" not in first.kwargs
    assert target_name(second) == "dim_order_ops._to_dim_order_copy.default"
    assert second.kwargs["dtype"] == torch.float16


def test_linear() -> None:
    w, b = torch.randn(5, 4), torch.randn(5)

    def f(m: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return (
            torch.addmm(m.b, x, m.w.t()),
            torch.mm(x, m.w.t()),
            torch.mm(x, y),
            torch.mm(x, y.t().contiguous().t()),
        )

    after = linear.run(prepared(f, (3, 4), (4, 5), w=w, b=b))
    assert names(after)[:2] == ["linear", "linear"]
    first, second = list(after.calls())[:2]
    assert first.args[1] is second.args[1] and torch.equal(after.constants[first.args[1].name], w)
    assert torch.equal(after.constants[first.args[2].name], b) and len(second.args) == 2
    # a product of activations is no linear, transposed or not
    assert names(after).count("mm") == 2


@pytest.mark.parametrize(
    ("activation", "bounds"),
    [
        (torch.relu, (0.0, 1.7976931348623157e308)),
        (nn.functional.relu6, (0.0, 6.0)),
        (nn.functional.hardtanh, (-1.0, 1.0)),
    ],
)
def test_clamp(activation: Any, bounds: tuple[float, float]) -> None:
    after = fuse_clamp.run(
        program(
            lambda m, x: activation(nn.functional.conv2d(x, m.w)), (1, 2, 4, 4), w=torch.randn(3, 2, 3, 3)
        )
    )
    (node,) = after.calls()
    assert target_name(node) == "et_vk.conv_with_clamp.default"
    assert node.args[-2:] == bounds and len(node.args) == 11 and shape_of(node) == (1, 3, 2, 2)


def test_no_clamp_of_what_others_read() -> None:
    def f(m: Any, x: Tensor) -> Tensor:
        y = nn.functional.conv2d(x, m.w)
        return torch.relu(y) + y

    assert names(fuse_clamp.run(program(f, (1, 2, 4, 4), w=torch.randn(3, 2, 1, 1)))) == [
        "convolution",
        "relu",
        "add.Tensor",
    ]


def test_redundant() -> None:
    def f(x: Tensor) -> Tensor:
        y = torch.relu(x.clone()).clone().expand(2, 3)
        return y.to(torch.float16).expand(4, 2, 3).clone()

    given = dim_order.run(prepared(f, (2, 3)))
    assert names(remove_redundant.run(given)) == ["relu", "dim_order_ops._to_dim_order_copy", "expand_copy"]


def test_fold_qdq() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        q = Q(torch.sigmoid(x), 0.5, 3, *INT8)
        same, other = DQ(q, 0.5, 3, *INT8), DQ(q, 0.25, 3, *INT8)
        return torch.exp(same), torch.exp(other)

    given = program(f, (2, 3))
    after = fold_qdq.run(given)
    assert names(given).count("quantized_decomposed.dequantize_per_tensor") == 2
    first, second = after.outputs()
    assert target_name(first.args[0]) == "aten.sigmoid.default"
    # other parameters on the way back are no round trip
    assert target_name(second.args[0]) == "quantized_decomposed.dequantize_per_tensor.default"


def test_fold_constants() -> None:
    """Only what an operator packs as a weight: the bias is computed as well, the factor is left to the device."""
    scale, zero = torch.tensor([0.5, 0.25]), torch.zeros(2, dtype=torch.int64)
    weight = torch.tensor([[2, 4, 6], [8, 12, 16]], dtype=torch.int8)

    def f(m: Any, x: Tensor) -> Tensor:
        w = torch.ops.quantized_decomposed.dequantize_per_channel.default(
            m.w, m.s, m.z, 0, -127, 127, torch.int8
        )
        return torch.ops.aten.linear.default(x * m.s.sum(), w, m.s + 1)

    after = fold_constants.run(linear.run(prepared(f, (3, 3), w=weight, s=scale, z=zero))).clean()
    assert names(after)[-2:] == ["mul.Tensor", "linear"] and "add.Tensor" not in names(after)
    _x, folded, bias = (after.constants.get(str(arg)) for arg in list(after.calls())[-1].args)
    assert folded is not None and bias is not None
    assert torch.equal(folded, torch.tensor([[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]])) and folded.is_contiguous()
    assert torch.equal(bias, torch.tensor([1.5, 1.25]))


def test_fuse_views() -> None:
    def f(x: Tensor) -> Tensor:
        return torch.sqrt(torch.abs(x.view(2, 6).view(3, 4)).view(4, 3)).view(12)

    after = fuse_views.run(prepared(f, (2, 2, 3)))
    assert names(after) == ["view_copy", "abs", "sqrt"]
    assert [shape_of(n) for n in after.calls()] == [(12,)] * 3


def test_views_that_others_read_stay() -> None:
    def f(x: Tensor) -> Tensor:
        y = x.view(2, 6)
        return torch.abs(y).view(12) + y.view(12)

    assert names(fuse_views.run(prepared(f, (2, 2, 3)))).count("view_copy") == 3


@pytest.mark.parametrize(
    ("source", "shape", "becomes"),
    [
        ((1, 1, 3), (1, 3), ("squeeze_copy.dims", [1])),
        ((1, 4, 1, 3), (4, 3), ("squeeze_copy.dims", [0, 2])),
        ((2, 3, 1), (2, 3), None),  # a dim at the end stays
        ((2, 3), (2, 1, 3), ("unsqueeze_copy", 1)),
        ((2, 3), (2, 3, 1), ("unsqueeze_copy", 2)),
        ((2, 3), (1, 2, 3), None),  # one in front stays
        ((2, 3), (2, 1, 3, 1), None),
        ((2, 3), (3, 2), None),
    ],
)
def test_squeeze_views(source: tuple[int, ...], shape: tuple[int, ...], becomes: Any) -> None:
    (node,) = squeeze_views.run(prepared(lambda x: x.view(shape), source)).calls()
    expected = becomes or ("view_copy", list(shape))
    assert (target_name(node).removeprefix("aten.").removesuffix(".default"), node.args[1]) == expected
    assert shape_of(node) == shape


def test_dropped_dims() -> None:
    assert dropped_dims((1, 2, 1, 3), (2, 3)) == [0, 2]
    assert dropped_dims((2, 3), (2, 3)) is None
    assert dropped_dims((2, 1), (2,)) is None and dropped_dims((2, 1), (2,), last=True) == [1]


def test_prepack() -> None:
    def f(m: Any, x: Tensor) -> Tensor:
        y = nn.functional.conv2d(x, m.w, m.b)  # packs its constants by itself
        return (y + m.c) * m.c

    constants = {"w": torch.randn(3, 2, 1, 1), "b": torch.randn(3), "c": torch.randn(3, 1, 1)}
    after = insert_prepack.run(program(f, (1, 2, 4, 4), **constants))
    assert names(after) == ["et_vk.prepack", "convolution", "add.Tensor", "mul.Tensor"]
    prepack, convolution, add, mul = after.calls()
    assert add.args[1] is mul.args[1] is prepack
    assert all(arg.name in after.constants for arg in convolution.args[1:3])


def test_prepack_of_a_primary_argument() -> None:
    after = insert_prepack.run(program(lambda m, x: torch.mm(m.a, x), (4, 3), a=torch.randn(2, 4)))
    assert names(after) == ["et_vk.prepack", "mm"]


def values(after: FxProgram, *inputs: Tensor) -> list[Tensor]:
    """What a program gives in torch."""
    known: dict[Any, Any] = dict(zip(after.inputs(), inputs, strict=True))
    return [evaluate(after, node, known) for node in after.outputs()]


@pytest.mark.parametrize("transposed", [False, True])
def test_fuse_batch_norm(transposed: bool) -> None:
    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.ConvTranspose2d(4, 8, 2, 2) if transposed else nn.Conv2d(4, 8, 3, bias=False)
            self.n, self.b = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1)
            self.n.running_mean.normal_()
            self.n.running_var.uniform_(0.5, 2.0)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.b(self.n(self.a(x)))
            return self.n(y), y  # read twice: stays a norm

    module, x = Normed().eval(), torch.randn(1, 4, 6, 5)
    before = functional.run(decompose.run(torch.export.export(module, (x,))))
    after = fuse_batch_norm.run(before)
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
        w = torch.ops.quantized_decomposed.dequantize_per_channel.default(
            m.w, m.s, m.z, axis, -128, 127, torch.int8
        )
        return torch.nn.functional.linear(x, w, m.bias)

    before = linear.run(prepared(f, (3, 4), **constants))
    after = weight_only.run(before)
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
    after = fuse_rms_norm.run(scalars.run(prepared(function, (3, 4), w=torch.rand(4))))
    assert ("et_vk.rms_norm" in names(after)) == found
    if found:
        (node,) = after.calls()
        x, weight, eps = node.args
        assert x in after.inputs() and str(weight) in after.constants and eps == pytest.approx(1e-6)


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
    after = squeeze_inputs.run(program(lambda x: torch.nn.functional.gelu(x) + 1, shape))
    views = [node for node in after.calls() if target_name(node) == "aten.view_copy.default"]
    assert [list(node.args[1]) for node in views] == ([] if short is None else [short, list(shape)])
    x = torch.randn(shape)
    assert torch.equal(values(after, x)[0], torch.nn.functional.gelu(x) + 1)
    assert all(
        shape_of(node) == tuple(value.shape)
        for node, value in zip(after.outputs(), values(after, x), strict=True)
    )


def test_promote() -> None:
    """Comparisons of unequal dtypes compute in float32; equal ones stay as they are."""
    after = promote.run(scalars.run(program(lambda x: (x.int() < x, x.int() < x.int() * x.int()), (2, 3))))
    new = [n for n in after.calls() if n.name.startswith("_to_copy") and dtype_of(n) == "float32"]
    assert len(new) == 1 and [target_name(user) for user in new[0].users] == ["aten.lt.Tensor"]

"""Each pass on a small program: what it changes, what it leaves, and that its argument stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn

from refsim.core.errors import GraphError
from refsim.partition.nodes import dtype_of, shape_of, target_name
from refsim.partition.passes import decompose
from refsim.partition.passes.prepare import dim_order, functional, mixed_types, promote, remove_noops, scalars
from refsim.partition.passes.simplify import (
    dropped_dims,
    fold_qdq,
    fuse_clamp,
    fuse_views,
    remove_redundant,
    squeeze_inputs,
    squeeze_views,
)
from refsim.partition.passes.weights import fold_constants, insert_prepack, linear

from .small_programs import DQ, INT8, Q, names, prepared, program, values

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
    before = program(everything, (2, 12), **constants)
    if step is not functional:
        before = functional(before)
    text, kept = str(before.graph), dict(before.constants)
    once = step(before)
    assert str(before.graph) == text and before.constants == kept
    assert once.graph is not before.graph
    once.graph.lint()
    assert names(step(once)) == names(once)


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
    after = functional(given)
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
    after = scalars(program(function, (2, 3)))
    (constant,) = after.constants.values()
    assert constant.dtype == value.dtype and torch.equal(constant, value)
    last = list(after.calls())[-1]
    assert last.args[1].name in after.constants


def test_equal_scalars_are_constants_of_their_own() -> None:
    after = scalars(program(lambda x: (x + 1.5) * 1.5 + 2.5, (2, 3)))
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
    before = scalars(program(function, (2, 3)))
    after = mixed_types(before)
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
    assert names(remove_noops(given)) == ["slice_copy.Tensor", "relu", "_to_copy"]


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

    found = names(remove_noops(program(f, (2, 3))))
    assert [n.rpartition(".")[2].removesuffix("_per_tensor") for n in found] == left


def test_dim_order() -> None:
    def f(x: Tensor) -> Tensor:
        return x.clone(memory_format=torch.channels_last).to(torch.float16)

    first, second = dim_order(program(f, (1, 2, 3, 4))).calls()
    assert target_name(first) == "dim_order_ops._clone_dim_order.default"
    assert first.kwargs["dim_order"] == [0, 2, 3, 1] and "memory_format" not in first.kwargs
    assert target_name(second) == "dim_order_ops._to_dim_order_copy.default"
    assert second.kwargs["dtype"] == torch.float16


def test_redundant() -> None:
    def f(x: Tensor) -> Tensor:
        y = torch.relu(x.clone()).clone().expand(2, 3)
        return y.to(torch.float16).expand(4, 2, 3).clone()

    given = dim_order(prepared(f, (2, 3)))
    assert names(remove_redundant(given)) == ["relu", "dim_order_ops._to_dim_order_copy", "expand_copy"]


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
    (node,) = squeeze_views(prepared(lambda x: x.view(shape), source)).calls()
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
    after = insert_prepack(program(f, (1, 2, 4, 4), **constants))
    assert names(after) == ["et_vk.prepack", "convolution", "add.Tensor", "mul.Tensor"]
    prepack, convolution, add, mul = after.calls()
    assert add.args[1] is mul.args[1] is prepack
    assert all(arg.name in after.constants for arg in convolution.args[1:3])


def test_prepack_of_a_primary_argument() -> None:
    after = insert_prepack(program(lambda m, x: torch.mm(m.a, x), (4, 3), a=torch.randn(2, 4)))
    assert names(after) == ["et_vk.prepack", "mm"]


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
    assert torch.equal(values(after, x)[0], torch.nn.functional.gelu(x) + 1)
    assert all(
        shape_of(node) == tuple(value.shape)
        for node, value in zip(after.outputs(), values(after, x), strict=True)
    )


def test_promote() -> None:
    """Comparisons of unequal dtypes compute in float32; equal ones stay as they are."""
    after = promote(scalars(program(lambda x: (x.int() < x, x.int() < x.int() * x.int()), (2, 3))))
    new = [n for n in after.calls() if n.name.startswith("_to_copy") and dtype_of(n) == "float32"]
    assert len(new) == 1 and [target_name(user) for user in new[0].users] == ["aten.lt.Tensor"]

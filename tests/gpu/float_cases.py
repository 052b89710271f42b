"""Nodes of one operator each, as the device computes them, and numbers that arithmetic could get wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from refsim import aten
from refsim.core.layout import CHANNELS_PACKED, HEIGHT_PACKED, WIDTH_PACKED
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.ops.base.target import Target

LAYOUTS = (WIDTH_PACKED, CHANNELS_PACKED, HEIGHT_PACKED)
#: Numbers that rounding, division and comparisons could get wrong; the bits of a NaN are a device's own.
ODD = (
    0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 1e-38, -3e-39, 1e-45, 3.4e38, -3.4e38, 0.1, -2.9999998, math.pi, 1e20,
)  # fmt: skip
SPECIAL = (*ODD, math.inf, -math.inf, math.nan)
Kind = tuple[tuple[int, ...], np.dtype[Any]]
F, B, I = (np.dtype(kind) for kind in (np.float32, np.bool_, np.int32))  # noqa: E741
IMAGE, ROW = (2, 5, 6, 7), (5, 1, 7)
X, Y, THIRD = Ref(0), Ref(1), Ref(2)
#: Arguments of convolutions.
CONVOLVED = (X, Y, THIRD, (1, 2), (1, 2), (2, 3), False, (0, 0), 1)
POINTWISE = (X, Y, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
LINE = (X, Y, THIRD, (2,), (1,), (1,), False, (0,), 1)


def square(stride: int, groups: int) -> tuple[Any, ...]:
    return X, Y, THIRD, (stride, stride), (1, 1), (1, 1), False, (0, 0), groups


UNARY = (
    "relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "abs", "neg", "exp", "sigmoid", "silu", "tanh", "gelu",
    "sqrt", "rsqrt", "reciprocal", "log",
)  # fmt: skip
BINARY = (
    "add.Tensor", "div.Tensor", "eq.Tensor", "lt.Tensor", "le.Tensor", "gt.Tensor", "minimum.default",
    "maximum.default",
)  # fmt: skip
#: Name, inputs, arguments, and the output where these do not say what it is. An input is (shape, dtype), or the shape
#: of floats.
CASES: tuple[tuple[Any, ...], ...] = (
    *((f"aten.{name}.default", (IMAGE,), (X,)) for name in UNARY),
    *((f"aten.{name}", (IMAGE, IMAGE), (X, Y)) for name in BINARY),
    ("aten.hardtanh.default", (IMAGE,), (X, -2.0, 0.5)),
    ("aten.clamp.default", (IMAGE,), (X, None, 0.25)),
    ("aten.clamp.default", (IMAGE,), (X, -0.5)),
    ("aten.leaky_relu.default", (IMAGE,), (X, 0.3)),
    ("aten.add.Tensor", (IMAGE, (5, 1, 7)), (X, Y, 0.3)),
    ("aten.add.Scalar", (IMAGE,), (X, 0.1)),
    ("aten.sub.Tensor", ((5, 1, 7), IMAGE), (X, Y, 3)),
    ("aten.mul.Tensor", (IMAGE, (2, 5, 1, 1)), (X, Y)),
    ("aten.mul.Tensor", (IMAGE, ()), (X, Y)),
    ("aten.div.Tensor", (IMAGE,), (X, 3.0)),
    ("aten.clone.default", (IMAGE,), (X, None)),
    ("aten.view_copy.default", (IMAGE,), (X, (2, 210))),
    ("aten.view_copy.default", (IMAGE,), (X, (10, 42))),
    ("aten.view_copy.default", ((2, 210),), (X, IMAGE)),
    ("aten.view_copy.default", ((2, 3, 2, 2, 5),), (X, (6, 20))),
    ("aten.unsqueeze_copy.default", ((5, 6),), (X, 1)),
    ("aten.squeeze_copy.dims", ((2, 1, 6, 1),), (X, (1, 3))),
    ("aten.permute_copy.default", (IMAGE,), (X, (0, 2, 3, 1))),
    ("aten.permute_copy.default", ((2, 3, 4, 2, 3),), (X, (4, 0, 3, 1, 2))),
    ("aten.transpose.int", (IMAGE,), (X, 1, -1)),
    ("aten.t.default", ((5, 6),), (X,)),
    ("aten.slice_copy.Tensor", (IMAGE,), (X, -1, 1, 6, 2)),
    ("aten.select_copy.int", (IMAGE,), (X, 1, -2)),
    ("aten.expand_copy.default", ((5, 1, 7),), (X, (2, -1, 6, 7))),
    ("aten.cat.default", (IMAGE, (2, 3, 6, 7), (2, 1, 6, 7)), ((X, Y, THIRD), 1)),
    ("aten.split_with_sizes_copy.default", (IMAGE,), (X, (1, 4), 1)),
    ("aten.pixel_shuffle.default", ((2, 12, 3, 5),), (X, 2)),
    ("aten.mean.dim", (IMAGE,), (X, (-1, -2), True)),
    ("aten.mean.dim", (IMAGE,), (X, (2, 3))),
    ("aten.mean.dim", ((3, 150),), (X, -1)),
    ("aten.mean.dim", ((1, 19, 3, 2),), (X, (1,), True)),
    ("aten.sum.dim_IntList", (IMAGE,), (X, (0,))),
    ("aten.amax.default", (IMAGE,), (X, (1, 3))),
    ("aten.amin.default", (IMAGE,), (X, (2,), True)),
    ("aten.adaptive_avg_pool2d.default", (IMAGE,), (X, (1, 1))),
    ("aten.max_pool2d.default", (IMAGE,), (X, (3, 2), (2, 1), (1, 0))),
    ("aten.max_pool2d.default", (IMAGE,), (X, 2, 2, 0, 2, True)),
    ("aten.avg_pool2d.default", (IMAGE,), (X, (3, 3), (2, 2), (1, 1))),
    ("aten.avg_pool2d.default", (IMAGE,), (X, 3, 2, 1, True, False)),
    ("aten.avg_pool2d.default", (IMAGE,), (X, 3, 2, 1, False, True, 7)),
    ("aten.mm.default", ((5, 9), (9, 6)), (X, Y)),
    ("aten.bmm.default", ((3, 5, 9), (3, 9, 6)), (X, Y)),
    ("aten.matmul.default", ((2, 3, 5, 9), (9, 6)), (X, Y)),
    ("aten.linear.default", ((2, 5, 9), (6, 9)), (X, Y)),
    ("aten.linear.default", ((5, 9), (6, 9), (6,)), (X, Y, THIRD)),
    ("aten.addmm.default", ((6,), (5, 9), (9, 6)), (X, Y, THIRD)),
    ("aten.convolution.default", (IMAGE, (8, 5, 3, 2), (8,)), CONVOLVED),
    ("aten.convolution.default", (IMAGE, (130, 5, 3, 2), (130,)), CONVOLVED),
    ("aten.convolution.default", (IMAGE, (130, 5, 3, 3), (130,)), square(1, 1)),
    ("aten.convolution.default", (IMAGE, (3, 5, 1, 1)), POINTWISE),
    *(("aten.convolution.default", ((2, 6, 5, 7), (6, 1, 3, 3), (6,)), square(stride, 6)) for stride in (1, 2)),
    ("aten.convolution.default", ((2, 6, 5, 7), (4, 3, 3, 3), (4,)), square(1, 2)),
    ("aten.convolution.default", ((2, 5, 11), (4, 5, 3), (4,)), LINE),
    *(
        ("et_vk.conv_with_clamp.default", (IMAGE, (8, 5, 3, 2), (8,)), (*CONVOLVED, *bounds))
        for bounds in ((-1.0, 2.0), (None, 0.5), (0.0, 1e39))
    ),
    ("aten.conv2d.default", (IMAGE, (4, 5, 2, 2)), (X, Y, None, 2)),
    ("aten.upsample_nearest2d.vec", (IMAGE,), (X, None, (2.0, 3.0))),
    ("aten.upsample_bilinear2d.vec", (IMAGE,), (X, (11, 16), False, None)),
    ("aten.upsample_bilinear2d.vec", (IMAGE,), (X, (11, 16), True, None)),
    ("aten.upsample_bilinear2d.vec", (IMAGE,), (X, (4, 7), False, None)),
    ("aten.upsample_bilinear2d.default", (IMAGE,), (X, (3, 1), True)),
    ("aten.gelu.default", (IMAGE,), (X, "none")),
    ("aten.pow.Tensor_Scalar", (IMAGE,), (X, 0.5)),
    *(("aten._softmax.default", (IMAGE,), (X, dim, False)) for dim in (-1, 1, 2, 0)),
    *(("aten._log_softmax.default", (IMAGE,), (X, dim, False)) for dim in (-1, 1)),
    ("aten._softmax.default", ((3, 150),), (X, -1, False)),
    ("aten._softmax.default", ((150, 3),), (X, 0, False)),
    ("aten.native_layer_norm.default", ((2, 5, 70), (70,), (70,)), (X, (70,), Y, THIRD, 1e-5)),
    ("aten.native_layer_norm.default", ((9, 7), (7,)), (X, (7,), Y, None, 1e-5)),
    ("aten.native_layer_norm.default", ((3, 2, 17, 6),), (X, (6,), None, None, 0.0)),
    ("aten.native_group_norm.default", ((2, 18, 5, 7), (18,), (18,)), (X, Y, THIRD, 2, 18, 35, 3, 1e-5)),
    ("aten.native_group_norm.default", ((2, 8, 5, 2),), (X, None, None, 2, 8, 10, 2, 1e-5)),
    ("aten.eq.Tensor", ((IMAGE, I), (ROW, I)), (X, Y)),
    ("aten.eq.Scalar", (IMAGE,), (X, float("-inf"))),
    ("aten.ne.Tensor", (IMAGE, ROW), (X, Y)),
    ("aten.ne.Tensor", ((IMAGE, B), (IMAGE, B)), (X, Y)),
    ("aten.gt.Scalar", (IMAGE,), (X, 0)),
    ("aten.ge.Scalar", (IMAGE,), (X, -1e-45)),
    ("aten.logical_not.default", ((IMAGE, B),), (X,)),
    ("aten.logical_and.default", ((IMAGE, B), (ROW, B)), (X, Y)),
    ("aten.logical_or.default", ((IMAGE, B), (IMAGE, B)), (X, Y)),
    ("aten.where.self", ((IMAGE, B), IMAGE, IMAGE), (X, Y, THIRD)),
    ("aten.where.self", (((2, 5, 6, 1), B), IMAGE, ()), (X, Y, THIRD)),
    ("aten.where.self", ((IMAGE, B), (IMAGE, I), (ROW, I)), (X, Y, THIRD)),
    ("aten._to_copy.default", ((IMAGE, B),), (X,), (IMAGE, F)),
    ("dim_order_ops._to_dim_order_copy.default", ((IMAGE, I),), (X, 6)),
    ("aten.add.Tensor", ((ROW, I), (IMAGE, I)), (X, Y, 3)),
    ("aten.sub.Tensor", (((), I), (IMAGE, I)), (X, Y)),
    ("aten.view_copy.default", ((IMAGE, B),), (X, (10, 42))),
    ("aten.permute_copy.default", ((IMAGE, I),), (X, (0, 2, 3, 1))),
    ("aten.index.Tensor", (IMAGE, ((9,), I)), (X, (None, None, None, Y))),
    ("aten.index.Tensor", (IMAGE, ((3, 4), I)), (X, (None, Y, None, None))),
    ("aten.index.Tensor", ((IMAGE, I), ((4,), I)), (X, (Y,))),
    ("aten.index_select.default", ((IMAGE, B), ((3,), I)), (X, -2, Y)),
    ("aten.embedding.default", ((11, 6), ((2, 3), I)), (X, Y, -1)),
)  # fmt: skip


def kinds(given: Sequence[Any]) -> list[Kind]:
    """Shape and dtype of each input."""
    return [one if one and isinstance(one[-1], np.dtype) else (one, F) for one in given]


def results(name: str, given: Sequence[Kind], args: Any) -> list[Kind]:
    """Shape and dtype of what a node gives, by the reference."""
    arrays = [(np.zeros if dtype == I else np.ones)(shape, dtype) for shape, dtype in given]

    def plain(arg: Any) -> Any:
        if isinstance(arg, tuple):
            return tuple(map(plain, arg))
        return arrays[arg.id] if isinstance(arg, Ref) else arg

    with np.errstate(all="ignore"):
        made = aten.find(name, name).run([plain(arg) for arg in args], name, aten.Place())
    return [(array.shape, array.dtype) for array in made]


def tensor(number: int, shape: tuple[int, ...], dtype: Any, turn: int = 0, buffer: bool = False) -> Tensor:
    """Floats in layouts that follow each other from ``turn`` on."""
    if dtype != F:
        return Tensor(number, shape, np.dtype(dtype), None)
    return Tensor(number, shape, F, LAYOUTS[(turn + number) % len(LAYOUTS)], buffer=buffer)


def of_one_node(case: tuple[Any, ...], turn: int = 0, buffer: bool = False) -> Graph:
    """A graph of one of `CASES`."""
    name, given, args, *made = case
    made = made or results(name, kinds(given), args)
    tensors = {n: tensor(n, *kind, turn, buffer) for n, kind in enumerate((*kinds(given), *made))}
    inputs, outputs = tuple(range(len(given))), tuple(range(len(given), len(tensors)))
    return Graph("one node", tensors, (Node(0, 0, name, args, outputs),), inputs, outputs, Target())


def numbers(shape: tuple[int, ...], seed: int, odd: tuple[float, ...] = ODD) -> np.ndarray:
    rng = np.random.default_rng(seed)
    drawn = (rng.standard_normal(shape) * 3).astype(np.float32)
    return np.where(rng.random(shape) < 0.2, rng.choice(np.array(odd, np.float32), shape), drawn)


def words(shape: tuple[int, ...], dtype: Any, seed: int, odd: tuple[float, ...] = SPECIAL) -> np.ndarray:
    """Numbers of a dtype; integers are indices of any dim here."""
    rng = np.random.default_rng(seed)
    if dtype == F:
        return numbers(shape, seed, odd)
    return rng.random(shape) < 0.5 if dtype == B else rng.integers(-2, 2, shape, I)


def unlike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where two arrays have other bits, in flat order; the bits of a NaN are a device's own."""
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    if a.dtype != F:
        return np.flatnonzero(a != b)
    return np.flatnonzero((a.view(np.uint32) != b.view(np.uint32)) & ~(np.isnan(a) & np.isnan(b)))

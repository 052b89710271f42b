"""Nodes of one operator each, as the device computes them, and numbers that arithmetic could get wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from refsim.core.layout import CHANNELS_PACKED, HEIGHT_PACKED, WIDTH_PACKED
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.ops.base.target import Target

LAYOUTS = (WIDTH_PACKED, CHANNELS_PACKED, HEIGHT_PACKED)
#: Numbers that rounding, division and comparisons could get wrong; the bits of a NaN are a device's own.
ODD = (
    0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 1e-38, -3e-39, 1e-45, 3.4e38, -3.4e38, 0.1, -2.9999998, math.pi, 1e20,
)  # fmt: skip
SPECIAL = (*ODD, math.inf, -math.inf, math.nan)
F, B, I = (np.dtype(kind) for kind in (np.float32, np.bool_, np.int32))  # noqa: E741
IMAGE, ROW = (2, 5, 6, 7), (5, 1, 7)
X, Y, THIRD = Ref(0), Ref(1), Ref(2)
#: Arguments of convolutions.
CONVOLVED = (X, Y, THIRD, (1, 2), (1, 2), (2, 3), False, (0, 0), 1)
POINTWISE = (X, Y, None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
LINE = (X, Y, THIRD, (2,), (1,), (1,), False, (0,), 1)


def square(stride: int, groups: int) -> tuple[Any, ...]:
    return X, Y, THIRD, (stride, stride), (1, 1), (1, 1), False, (0, 0), groups


#: Name, shapes of the inputs, arguments, shapes of the outputs.
FLOATS: tuple[tuple[str, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]], ...] = (
    ("aten.relu.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.relu6.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.hardtanh.default", (IMAGE,), (X, -2.0, 0.5), (IMAGE,)),
    ("aten.hardtanh.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.clamp.default", (IMAGE,), (X, None, 0.25), (IMAGE,)),
    ("aten.clamp.default", (IMAGE,), (X, -0.5), (IMAGE,)),
    ("aten.hardswish.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.hardsigmoid.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.leaky_relu.default", (IMAGE,), (X, 0.3), (IMAGE,)),
    ("aten.abs.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.neg.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.add.Tensor", (IMAGE, IMAGE), (X, Y), (IMAGE,)),
    ("aten.add.Tensor", (IMAGE, (5, 1, 7)), (X, Y, 0.3), (IMAGE,)),
    ("aten.add.Scalar", (IMAGE,), (X, 0.1), (IMAGE,)),
    ("aten.sub.Tensor", ((5, 1, 7), IMAGE), (X, Y, 3), (IMAGE,)),
    ("aten.mul.Tensor", (IMAGE, (2, 5, 1, 1)), (X, Y), (IMAGE,)),
    ("aten.mul.Tensor", (IMAGE, ()), (X, Y), (IMAGE,)),
    ("aten.div.Tensor", (IMAGE, IMAGE), (X, Y), (IMAGE,)),
    ("aten.div.Tensor", (IMAGE,), (X, 3.0), (IMAGE,)),
    ("aten.minimum.default", (IMAGE, IMAGE), (X, Y), (IMAGE,)),
    ("aten.maximum.default", (IMAGE, IMAGE), (X, Y), (IMAGE,)),
    ("aten.clone.default", (IMAGE,), (X, None), (IMAGE,)),
    ("aten.view_copy.default", (IMAGE,), (X, (2, 210)), ((2, 210),)),
    ("aten.view_copy.default", (IMAGE,), (X, (10, 42)), ((10, 42),)),
    ("aten.view_copy.default", ((2, 210),), (X, IMAGE), (IMAGE,)),
    ("aten.view_copy.default", ((2, 3, 2, 2, 5),), (X, (6, 20)), ((6, 20),)),
    ("aten.unsqueeze_copy.default", ((5, 6),), (X, 1), ((5, 1, 6),)),
    ("aten.squeeze_copy.dims", ((2, 1, 6, 1),), (X, (1, 3)), ((2, 6),)),
    ("aten.permute_copy.default", (IMAGE,), (X, (0, 2, 3, 1)), ((2, 6, 7, 5),)),
    ("aten.permute_copy.default", ((2, 3, 4, 2, 3),), (X, (4, 0, 3, 1, 2)), ((3, 2, 2, 3, 4),)),
    ("aten.transpose.int", (IMAGE,), (X, 1, -1), ((2, 7, 6, 5),)),
    ("aten.t.default", ((5, 6),), (X,), ((6, 5),)),
    ("aten.slice_copy.Tensor", (IMAGE,), (X, -1, 1, 6, 2), ((2, 5, 6, 3),)),
    ("aten.select_copy.int", (IMAGE,), (X, 1, -2), ((2, 6, 7),)),
    ("aten.expand_copy.default", ((5, 1, 7),), (X, (2, -1, 6, 7)), (IMAGE,)),
    ("aten.cat.default", (IMAGE, (2, 3, 6, 7), (2, 1, 6, 7)), ((X, Y, THIRD), 1), ((2, 9, 6, 7),)),
    ("aten.split_with_sizes_copy.default", (IMAGE,), (X, (1, 4), 1), ((2, 1, 6, 7), (2, 4, 6, 7))),
    ("aten.pixel_shuffle.default", ((2, 12, 3, 5),), (X, 2), ((2, 3, 6, 10),)),
    ("aten.mean.dim", (IMAGE,), (X, (-1, -2), True), ((2, 5, 1, 1),)),
    ("aten.mean.dim", (IMAGE,), (X, (2, 3)), ((2, 5),)),
    ("aten.mean.dim", ((3, 150),), (X, -1), ((3,),)),
    ("aten.mean.dim", ((1, 19, 3, 2),), (X, (1,), True), ((1, 1, 3, 2),)),
    ("aten.sum.dim_IntList", (IMAGE,), (X, (0,)), ((5, 6, 7),)),
    ("aten.amax.default", (IMAGE,), (X, (1, 3)), ((2, 6),)),
    ("aten.amin.default", (IMAGE,), (X, (2,), True), ((2, 5, 1, 7),)),
    ("aten.adaptive_avg_pool2d.default", (IMAGE,), (X, (1, 1)), ((2, 5, 1, 1),)),
    ("aten.max_pool2d.default", (IMAGE,), (X, (3, 2), (2, 1), (1, 0)), ((2, 5, 3, 6),)),
    ("aten.max_pool2d.default", (IMAGE,), (X, 2, 2, 0, 2, True), ((2, 5, 3, 3),)),
    ("aten.avg_pool2d.default", (IMAGE,), (X, (3, 3), (2, 2), (1, 1)), ((2, 5, 3, 4),)),
    ("aten.avg_pool2d.default", (IMAGE,), (X, 3, 2, 1, True, False), ((2, 5, 4, 4),)),
    ("aten.avg_pool2d.default", (IMAGE,), (X, 3, 2, 1, False, True, 7), ((2, 5, 3, 4),)),
    ("aten.mm.default", ((5, 9), (9, 6)), (X, Y), ((5, 6),)),
    ("aten.bmm.default", ((3, 5, 9), (3, 9, 6)), (X, Y), ((3, 5, 6),)),
    ("aten.matmul.default", ((2, 3, 5, 9), (9, 6)), (X, Y), ((2, 3, 5, 6),)),
    ("aten.linear.default", ((2, 5, 9), (6, 9)), (X, Y), ((2, 5, 6),)),
    ("aten.linear.default", ((5, 9), (6, 9), (6,)), (X, Y, THIRD), ((5, 6),)),
    ("aten.addmm.default", ((6,), (5, 9), (9, 6)), (X, Y, THIRD), ((5, 6),)),
    ("aten.convolution.default", (IMAGE, (8, 5, 3, 2), (8,)), CONVOLVED, ((2, 8, 4, 4),)),
    ("aten.convolution.default", (IMAGE, (130, 5, 3, 2), (130,)), CONVOLVED, ((2, 130, 4, 4),)),
    ("aten.convolution.default", (IMAGE, (130, 5, 3, 3), (130,)), square(1, 1), ((2, 130, 6, 7),)),
    ("aten.convolution.default", (IMAGE, (3, 5, 1, 1)), POINTWISE, ((2, 3, 6, 7),)),
    ("aten.convolution.default", ((2, 6, 5, 7), (6, 1, 3, 3), (6,)), square(1, 6), ((2, 6, 5, 7),)),
    ("aten.convolution.default", ((2, 6, 5, 7), (6, 1, 3, 3), (6,)), square(2, 6), ((2, 6, 3, 4),)),
    ("aten.convolution.default", ((2, 6, 5, 7), (4, 3, 3, 3), (4,)), square(1, 2), ((2, 4, 5, 7),)),
    ("aten.convolution.default", ((2, 5, 11), (4, 5, 3), (4,)), LINE, ((2, 4, 6),)),
    ("et_vk.conv_with_clamp.default", (IMAGE, (8, 5, 3, 2), (8,)), (*CONVOLVED, -1.0, 2.0), ((2, 8, 4, 4),)),
    ("et_vk.conv_with_clamp.default", (IMAGE, (8, 5, 3, 2), (8,)), (*CONVOLVED, None, 0.5), ((2, 8, 4, 4),)),
    ("et_vk.conv_with_clamp.default", (IMAGE, (8, 5, 3, 2), (8,)), (*CONVOLVED, 0.0, 1e39), ((2, 8, 4, 4),)),
    ("aten.conv2d.default", (IMAGE, (4, 5, 2, 2)), (X, Y, None, 2), ((2, 4, 3, 3),)),
    ("aten.upsample_nearest2d.vec", (IMAGE,), (X, None, (2.0, 3.0)), ((2, 5, 12, 21),)),
    ("aten.upsample_bilinear2d.vec", (IMAGE,), (X, (11, 16), False, None), ((2, 5, 11, 16),)),
    ("aten.upsample_bilinear2d.vec", (IMAGE,), (X, (11, 16), True, None), ((2, 5, 11, 16),)),
    ("aten.upsample_bilinear2d.vec", (IMAGE,), (X, (4, 7), False, None), ((2, 5, 4, 7),)),
    ("aten.upsample_bilinear2d.default", (IMAGE,), (X, (3, 1), True), ((2, 5, 3, 1),)),
    ("aten.exp.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.sigmoid.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.silu.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.tanh.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.gelu.default", (IMAGE,), (X, "none"), (IMAGE,)),
    ("aten.gelu.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.sqrt.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.rsqrt.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.reciprocal.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten.pow.Tensor_Scalar", (IMAGE,), (X, 0.5), (IMAGE,)),
    ("aten._softmax.default", (IMAGE,), (X, -1, False), (IMAGE,)),
    ("aten._softmax.default", (IMAGE,), (X, 1, False), (IMAGE,)),
    ("aten._softmax.default", (IMAGE,), (X, 2, False), (IMAGE,)),
    ("aten._softmax.default", (IMAGE,), (X, 0, False), (IMAGE,)),
    ("aten._softmax.default", ((3, 150),), (X, -1, False), ((3, 150),)),
    ("aten.log.default", (IMAGE,), (X,), (IMAGE,)),
    ("aten._log_softmax.default", (IMAGE,), (X, -1, False), (IMAGE,)),
    ("aten._log_softmax.default", (IMAGE,), (X, 1, False), (IMAGE,)),
    ("aten._softmax.default", ((150, 3),), (X, 0, False), ((150, 3),)),
    ("aten.native_layer_norm.default", ((2, 5, 70), (70,), (70,)), (X, (70,), Y, THIRD, 1e-5), (
        (2, 5, 70), (2, 5, 1), (2, 5, 1))),
    ("aten.native_layer_norm.default", ((9, 7), (7,)), (X, (7,), Y, None, 1e-5), ((9, 7), (9, 1), (9, 1))),
    ("aten.native_layer_norm.default", ((3, 2, 17, 6),), (X, (6,), None, None, 0.0), (
        (3, 2, 17, 6), (3, 2, 17, 1), (3, 2, 17, 1))),
    ("aten.native_group_norm.default", ((2, 18, 5, 7), (18,), (18,)), (X, Y, THIRD, 2, 18, 35, 3, 1e-5), (
        (2, 18, 5, 7), (2, 3), (2, 3))),
    ("aten.native_group_norm.default", ((2, 8, 5, 2),), (X, None, None, 2, 8, 10, 2, 1e-5), (
        (2, 8, 5, 2), (2, 2), (2, 2))),
)  # fmt: skip

#: Name, (shape, dtype) of the inputs, arguments, the same of the output.
WORDS: tuple[tuple[str, tuple[Any, ...], tuple[Any, ...], Any], ...] = (
    ("aten.eq.Tensor", ((IMAGE, F), (IMAGE, F)), (X, Y), (IMAGE, B)),
    ("aten.eq.Tensor", ((IMAGE, I), (ROW, I)), (X, Y), (IMAGE, B)),
    ("aten.eq.Scalar", ((IMAGE, F),), (X, float("-inf")), (IMAGE, B)),
    ("aten.ne.Tensor", ((IMAGE, F), (ROW, F)), (X, Y), (IMAGE, B)),
    ("aten.ne.Tensor", ((IMAGE, B), (IMAGE, B)), (X, Y), (IMAGE, B)),
    ("aten.lt.Tensor", ((IMAGE, F), (IMAGE, F)), (X, Y), (IMAGE, B)),
    ("aten.le.Tensor", ((IMAGE, F), (IMAGE, F)), (X, Y), (IMAGE, B)),
    ("aten.gt.Tensor", ((IMAGE, F), (IMAGE, F)), (X, Y), (IMAGE, B)),
    ("aten.gt.Scalar", ((IMAGE, F),), (X, 0), (IMAGE, B)),
    ("aten.ge.Scalar", ((IMAGE, F),), (X, -1e-45), (IMAGE, B)),
    ("aten.logical_not.default", ((IMAGE, B),), (X,), (IMAGE, B)),
    ("aten.logical_and.default", ((IMAGE, B), (ROW, B)), (X, Y), (IMAGE, B)),
    ("aten.logical_or.default", ((IMAGE, B), (IMAGE, B)), (X, Y), (IMAGE, B)),
    ("aten.where.self", ((IMAGE, B), (IMAGE, F), (IMAGE, F)), (X, Y, THIRD), (IMAGE, F)),
    ("aten.where.self", (((2, 5, 6, 1), B), (IMAGE, F), ((), F)), (X, Y, THIRD), (IMAGE, F)),
    ("aten.where.self", ((IMAGE, B), (IMAGE, I), (ROW, I)), (X, Y, THIRD), (IMAGE, I)),
    ("aten._to_copy.default", ((IMAGE, B),), (X,), (IMAGE, F)),
    ("dim_order_ops._to_dim_order_copy.default", ((IMAGE, I),), (X, 6), (IMAGE, F)),
    ("aten.add.Tensor", ((ROW, I), (IMAGE, I)), (X, Y, 3), (IMAGE, I)),
    ("aten.sub.Tensor", (((), I), (IMAGE, I)), (X, Y), (IMAGE, I)),
    ("aten.view_copy.default", ((IMAGE, B),), (X, (10, 42)), ((10, 42), B)),
    ("aten.permute_copy.default", ((IMAGE, I),), (X, (0, 2, 3, 1)), ((2, 6, 7, 5), I)),
    ("aten.index.Tensor", ((IMAGE, F), ((9,), I)), (X, (None, None, None, Y)), ((2, 5, 6, 9), F)),
    ("aten.index.Tensor", ((IMAGE, F), ((3, 4), I)), (X, (None, Y, None, None)), ((2, 3, 4, 6, 7), F)),
    ("aten.index.Tensor", ((IMAGE, I), ((4,), I)), (X, (Y,)), ((4, 5, 6, 7), I)),
    ("aten.index_select.default", ((IMAGE, B), ((3,), I)), (X, -2, Y), ((2, 5, 3, 7), B)),
    ("aten.embedding.default", (((11, 6), F), ((2, 3), I)), (X, Y, -1), ((2, 3, 6), F)),
)  # fmt: skip


def floats(shapes: Sequence[tuple[int, ...]]) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
    return [(shape, F) for shape in shapes]


def tensor(number: int, shape: tuple[int, ...], dtype: Any, turn: int = 0, buffer: bool = False) -> Tensor:
    """Floats in layouts that follow each other from ``turn`` on."""
    if dtype != F:
        return Tensor(number, shape, np.dtype(dtype), None)
    return Tensor(number, shape, F, LAYOUTS[(turn + number) % len(LAYOUTS)], buffer=buffer)


def of_one_node(name: str, given: Any, args: Any, made: Any, turn: int = 0, buffer: bool = False) -> Graph:
    """A graph of a node; ``given`` and ``made``: shapes and dtypes of the inputs and outputs."""
    tensors = {n: tensor(n, *kind, turn, buffer) for n, kind in enumerate((*given, *made))}
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

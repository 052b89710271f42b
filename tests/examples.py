"""The operator that a test takes as an example where any other of its family would do as well; and hard calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.qmath import NVIDIA
from refsim.core.rng import Rng
from refsim.golden import rules
from refsim.ops.base import int4
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family


def elementwise(inputs: int) -> OpSpec:
    """The first elementwise operator with that many inputs."""
    return next(op for op in OPS.of_family(Family.ELEMENTWISE) if len(op.of_kind(Kind.INPUT)) == inputs)


UNARY, BINARY = elementwise(1), elementwise(2)
LINEAR = OPS.of_family(Family.LINEAR)[0]
#: The operators of the corpus that tests of `refsim golden` change at will.
SMALL_CORPUS = (UNARY.name, LINEAR.name)


def sum_of(shape: tuple[int, ...]) -> BoundCase:
    """A sum of two tensors in two layouts."""
    params = dict(a_scale=0.02, a_zp=3, b_scale=0.05, b_zp=-7, out_scale=0.03, out_zp=21)
    return bind(Case("q8ta_add", params, {"a": (shape, "4W4C"), "b": (shape, "4C1W")}, "4W4C", seed=3))


def some(op: OpSpec, count: int = 2) -> tuple[Case, ...]:
    """The operator's example and a few random calls."""
    return (op.cases.example, *(op.sample(Rng(seed)) for seed in range(count)))


def small(op: str, count: int, most_words: int) -> Iterator[tuple[str, BoundCase]]:
    """Cases of the corpus whose inputs have few words, evenly apart, and their names."""
    found, size = 0, rules.RULES[op].count
    for number in range(0, size, max(1, size // (3 * count))):
        bound = bind(rules.case(op, number))
        if found < count and sum(buffer.words.size for buffer in bound.inputs.values()) <= most_words:
            found += 1
            yield f"{op}/{number:04d}", bound


def at_the_least_range(op: OpSpec) -> tuple[Call, dict[str, PackedBuffer]]:
    """A call for ranges of rows whose scales are about 2**-128, the greatest whose inverse is infinite."""
    (bits,) = np.array([2.0**-128], np.float32).view(np.uint32)
    scales = np.arange(bits - 3, bits + 4, dtype=np.uint32).view(np.float32)
    width = np.float32(255) * scales
    x = np.stack([part for w in width for part in ((0 * w, w), (-w, 0 * w), (-w / 2, w / 2))])
    bound = bind(Case(op.name, {"block": (1, 2)}, {"x": (x.shape, "W")}, str(op.layouts[0][-1])))
    return bound.call, {"x": PackedBuffer.pack(x, "W")}


def zeros_of_both_signs(rows: int) -> tuple[Call, dict[str, PackedBuffer]]:
    """A product of zeros, without a bias: products of one output are all -0, and the sum that starts at 0 stays 0."""
    features = {"out_channels": 16, "bias": False}
    bound = bind(Case("linear_q4gsw", {"group_size": 4}, {"x": ((rows, 4), "W")}, "W", 0, features))
    weight = bound.call.consts["weight"]
    assert weight is not None
    values = int4.unpacked(weight)
    x = np.copysign(np.zeros((rows, 4), np.float32), -values[:rows].astype(np.float32))
    return bound.call, {"x": PackedBuffer.pack(x, "W")}


def rounded_once() -> tuple[BoundCase, PackedBuffer, PackedBuffer]:
    """A call, its right output, and another one where a device fuses a product and a sum."""
    rng = Rng(1)
    while True:
        bound = bind(replace(OPS["q8ta_conv2d_dw"].sample(rng), style="near_ties"))
        right = bound.call.expected(bound.inputs)
        fused = replace(bound.call, target=Target(NVIDIA)).expected(bound.inputs)
        if right != fused:
            return bound, right, fused

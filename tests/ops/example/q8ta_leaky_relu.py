"""q8ta_leaky_relu: negative values times a slope, between two quantizations.

    x = f32(q - zp_in) * s_in;  y = x if x >= 0 else x * slope;  q = requant(y)

Each product is rounded to binary32. Source: none, ET-VK has no such operator. This is the worked example of
docs/adding-an-operator.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.core import index
from refsim.core.errors import LayoutError, ParameterError
from refsim.core.jit import emulated_kernel, jitable, select
from refsim.core.lanes import as_f32, insert, lane
from refsim.core.push import PushWords, float32, int32, tensor
from refsim.core.qmath import check_scale, f32, inv_scale, requant
from refsim.ops.base import elementwise, quantized
from refsim.ops.base.case_rule import CaseSlot, Made, quantization, ranked_shape, rule
from refsim.ops.base.elementwise import OUT_HASH, SPEC, X_HASH
from refsim.ops.base.spec import Upstream
from refsim.ops.base.target import Target


@dataclass(frozen=True)
class Params(quantized.InOutParams):
    """Scale and zero point of the input and of the output; the factor of negative values."""

    where = "q8ta_leaky_relu"

    slope: float = 0.125

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale(self.where, "slope", self.slope)


@jitable
def _leaky_relu(q, in_scale, in_zp, slope):  # type: ignore[no-untyped-def]
    x = f32(q - in_zp) * in_scale
    return select(x >= np.float32(0.0), x, x * slope)


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    y = _leaky_relu(x.astype(np.int32), np.float32(params.in_scale), params.in_zp, np.float32(params.slope))
    return requant(y, inv_scale(params.out_scale), params.out_zp, target.profile.flags).astype(np.int8)


PUSH = PushWords(
    tensor("OUT"), tensor("X"), float32("IN_SCALE"), int32("IN_ZP"), float32("SLOPE"), *elementwise.REQUANT
)
OUT, X, IN_SCALE, IN_ZP, SLOPE, INV, ZP, FLAGS = PUSH.offsets


@emulated_kernel
def kernel(reached, spec, push, x_words, out):  # type: ignore[no-untyped-def]
    out_hash, x_hash = spec[OUT_HASH], spec[X_HASH]
    in_scale, slope, inv = as_f32(push[IN_SCALE]), as_f32(push[SLOPE]), as_f32(push[INV])
    for z, y, x in np.ndindex(reached):
        i, w, h, c, n = elementwise.tile_word(x, y, z, push, OUT, out_hash)
        if i < 0:
            continue
        lanes = index.lanes_inside(push, OUT, out_hash, w, h, c, n)
        word = 0
        if lanes > 0:
            source = x_words[index.word_idx(push, X, x_hash, w, h, c, n)]
            for k in range(lanes):
                real = _leaky_relu(lane(source, k), in_scale, push[IN_ZP], slope)
                word = insert(word, k, requant(real, inv, push[ZP], push[FLAGS]))
        out[i] = word


_SLOPES = (0.125, 0.01, 0.3, 2.0)


def golden(slot: CaseSlot) -> Made:
    return (
        {**quantization(slot, "in", "out"), "slope": slot.rng.choice(_SLOPES)},
        {"x": ranked_shape(slot)},
        {},
    )


EXAMPLE = elementwise.example(Params.where)

OP = elementwise.operator(
    Params,
    inputs=("x",),
    serialized="",
    define=define,
    kernel=elementwise.tiles(kernel, PUSH, SPEC),
    cases=rule(
        EXAMPLE,
        dict(x=(1, 256, 56, 56)),
        EXAMPLE.refused(ParameterError, "in_zp", in_zp=-129),
        EXAMPLE.refused(ParameterError, "slope", slope=0.0),
        EXAMPLE.refused(LayoutError, "pack different dims", out="4W"),
        spread=1040,
        make=golden,
    ),
    upstream=Upstream(resizes=True),
)

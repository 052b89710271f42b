"""q8ta_relu: max(x, 0) between two quantizations.

    y = max(f32(q - zp_in) * s_in, 0);  q = requant(y)

Source: ET-VK's q8ta_relu_buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.core import index
from refsim.core.errors import LayoutError, ParameterError
from refsim.core.jit import emulated_kernel, jitable
from refsim.core.lanes import as_f32, insert, lane
from refsim.core.push import PushWords, float32, int32, tensor
from refsim.core.qmath import f32, inv_scale, requant_added
from refsim.ops.base import elementwise, quantized
from refsim.ops.base.case_rule import CaseSlot, Made, quantization, ranked_shape, rule, twins_and_many
from refsim.ops.base.defect import FIRST_OF_FOUR_DIMS
from refsim.ops.base.elementwise import OUT_HASH, SPEC, X_HASH
from refsim.ops.base.spec import Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Affine, Term


@dataclass(frozen=True)
class Params(quantized.InOutParams):
    """Scale and zero point of the input and of the output."""

    where = "q8ta_relu"


@jitable
def _relu(q, in_scale, in_zp):  # type: ignore[no-untyped-def]
    return np.maximum(f32(q - in_zp) * in_scale, np.float32(0.0))


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    y = _relu(x.astype(np.int32), np.float32(params.in_scale), params.in_zp)
    flags = target.profile.flags
    return requant_added(y, inv_scale(params.out_scale), params.out_zp, flags).astype(np.int8)


def affine(params: Params) -> Affine:
    term = Term(params.in_scale, params.in_zp)
    return Affine((term,), inv_scale(params.out_scale), params.out_zp, relu=True)


PUSH = PushWords(tensor("OUT"), tensor("X"), float32("IN_SCALE"), int32("IN_ZP"), *elementwise.REQUANT)
OUT, X, IN_SCALE, IN_ZP, INV, ZP, FLAGS = PUSH.offsets


@emulated_kernel
def kernel(reached, spec, push, x_words, out):  # type: ignore[no-untyped-def]
    out_hash, x_hash = spec[OUT_HASH], spec[X_HASH]
    in_scale, inv = as_f32(push[IN_SCALE]), as_f32(push[INV])
    for z, y, x in np.ndindex(reached):
        i, w, h, c, n = elementwise.tile_word(x, y, z, push, OUT, out_hash)
        if i < 0:
            continue
        lanes = index.lanes_inside(push, OUT, out_hash, w, h, c, n)
        word = 0
        if lanes > 0:
            source = x_words[index.word_idx(push, X, x_hash, w, h, c, n)]
            for k in range(lanes):
                real = _relu(lane(source, k), in_scale, push[IN_ZP])
                word = insert(word, k, requant_added(real, inv, push[ZP], push[FLAGS]))
        out[i] = word


def golden(slot: CaseSlot) -> Made:
    return quantization(slot, "in", "out"), {"x": ranked_shape(slot)}, {}


EXAMPLE = elementwise.example(Params.where)

OP = elementwise.operator(
    Params,
    inputs=("x",),
    serialized="et_vk.q8ta_relu.default",
    define=define,
    affine=affine,
    kernel=elementwise.tiles(kernel, PUSH, SPEC),
    cases=rule(
        EXAMPLE,
        dict(x=(1, 256, 56, 56)),
        EXAMPLE.refused(ParameterError, "in_zp", in_zp=-129),
        EXAMPLE.refused(LayoutError, "pack different dims", out="4W"),
        spread=1040,
        make=golden,
        hard=twins_and_many(golden, "x"),
    ),
    upstream=Upstream(
        elementwise.module("q8ta_relu_buffer", Params, "x"), defects=(FIRST_OF_FOUR_DIMS,), resizes=True
    ),
)

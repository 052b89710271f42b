"""q8ta_add: the sum of two int8 tensors with different scales, requantized.

    a' = f32(qa - zp_a) * s_a;  b' = f32(qb - zp_b) * s_b;  y = a' + alpha * b';  q = requant(y)

There is no multiplication if alpha is 1, and no broadcasting. Under a contracting profile y = fma(a', s_a, b' * s_b).
Source: ET-VK's q8ta_add_buffer. Its kernel ignores alpha, and broadcasts with wrong results; both are defects there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from refsim.core import index
from refsim.core.errors import ParameterError, ShapeError
from refsim.core.jit import emulated_kernel, jitable
from refsim.core.lanes import as_f32, insert, lane
from refsim.core.push import PushWords, SpecWords, float32, hashed, int32, tensor, vectors
from refsim.core.qmath import bounded, f32, inv_scale, mul_add, requant_added
from refsim.ops.base import elementwise, quantized
from refsim.ops.base.arg import Shapes
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import CaseSlot, Made, quantization, ranked_shape, rule, twins_and_many
from refsim.ops.base.defect import FIRST_OF_FOUR_DIMS, Defect
from refsim.ops.base.spec import Call, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Affine, Term


@dataclass(frozen=True)
class Params(quantized.Quantization):
    """Scales and zero points of a, b and the output, and the factor of b."""

    where = "q8ta_add"

    a_scale: float
    a_zp: int
    b_scale: float
    b_zp: int
    out_scale: float
    out_zp: int
    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.alpha and not 2.0**-30 <= abs(self.alpha) <= 2.0**30:
            raise ParameterError(
                self.where, "alpha is out of range", got=self.alpha, need="0 or 2**-30 <= |alpha| <= 2**30"
            )


@jitable
def _sum(qa, qb, a_scale, a_zp, b_scale, b_zp, alpha, flags):  # type: ignore[no-untyped-def]
    addend = f32(qb - b_zp) * b_scale
    if alpha != np.float32(1.0):
        addend = alpha * addend
    return mul_add(f32(qa - a_zp), a_scale, addend, flags)


def define(params: Params, target: Target, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    flags = target.profile.flags
    y = _sum(
        a.astype(np.int32),
        b.astype(np.int32),
        np.float32(params.a_scale),
        params.a_zp,
        np.float32(params.b_scale),
        params.b_zp,
        np.float32(params.alpha),
        flags,
    )
    return requant_added(y, inv_scale(params.out_scale), params.out_zp, flags).astype(np.int8)


def affine(params: Params) -> Affine:
    a = Term(params.a_scale, params.a_zp)
    b = Term(params.b_scale, params.b_zp, params.alpha)
    return Affine((a, b), inv_scale(params.out_scale), params.out_zp)


PUSH = PushWords(
    tensor("OUT"),
    tensor("A"),
    tensor("B"),
    float32("A_SCALE"),
    int32("A_ZP"),
    float32("B_SCALE"),
    int32("B_ZP"),
    float32("INV"),
    int32("ZP"),
    float32("ALPHA"),
    int32("FLAGS"),
)
SPEC = SpecWords(*map(hashed, ("OUT", "A", "B")), *map(vectors, ("OUT", "A", "B")))
OUT, A, B, A_SCALE, A_ZP, B_SCALE, B_ZP, INV, ZP, ALPHA, FLAGS = PUSH.offsets
OUT_HASH, A_HASH, B_HASH, *_ = SPEC.offsets


@emulated_kernel
def kernel(reached, spec, push, a, b, out):  # type: ignore[no-untyped-def]
    out_hash, a_hash, b_hash = spec[OUT_HASH], spec[A_HASH], spec[B_HASH]
    a_scale, b_scale, inv = as_f32(push[A_SCALE]), as_f32(push[B_SCALE]), as_f32(push[INV])
    alpha = as_f32(push[ALPHA])
    for z, y, x in np.ndindex(reached):
        i, w, h, c, n = elementwise.tile_word(x, y, z, push, OUT, out_hash)
        if i < 0:
            continue
        lanes = index.lanes_inside(push, OUT, out_hash, w, h, c, n)
        word = 0
        if lanes > 0:
            word_a = a[index.word_idx(push, A, a_hash, w, h, c, n)]
            word_b = b[index.word_idx(push, B, b_hash, w, h, c, n)]
            for k in range(lanes):
                total = _sum(
                    lane(word_a, k),
                    lane(word_b, k),
                    a_scale,
                    push[A_ZP],
                    b_scale,
                    push[B_ZP],
                    alpha,
                    push[FLAGS],
                )
                q = requant_added(total, inv, push[ZP], push[FLAGS])
                word = insert(word, k, bounded(q, push[FLAGS]))
        out[i] = word


def beyond(shapes: Shapes) -> str | None:
    if shapes["a"] == shapes["b"]:
        return None
    return "upstream's kernel broadcasts with wrong bytes: it reads both inputs at the output's word"


def _without_alpha(call: Call) -> Call:
    return replace(call, params=replace(call.params, alpha=1.0))


ALPHA_IGNORED = Defect(
    "alpha",
    "upstream's kernel ignores alpha",
    lambda call: call.params.alpha != 1,
    lambda call, arrays: _without_alpha(call).define(arrays),
    instead=_without_alpha,
)


def check(call: Call) -> None:
    a, b = call.descs["a"].shape, call.descs["b"].shape
    if a != b:
        raise ShapeError(
            "q8ta_add", "a and b differ in shape (no broadcasting)", got=f"{a} and {b}", need="equal shapes"
        )


def golden(slot: CaseSlot) -> Made:
    alpha = slot.rng.choice([1.0, 1.0, 0.5, -2.0, 0.3, 0.0])
    shape = ranked_shape(slot)
    return {**quantization(slot, "a", "b", "out"), "alpha": alpha}, {"a": shape, "b": shape}, {}


EXAMPLE = Case(
    "q8ta_add",
    dict(a_scale=0.02, a_zp=3, b_scale=0.03, b_zp=-7, out_scale=0.05, out_zp=5),
    {"a": ((2, 5, 3, 7), "4W4C"), "b": ((2, 5, 3, 7), "4W4C")},
    "4W4C",
)

OP = elementwise.operator(
    Params,
    inputs=("a", "b"),
    serialized="et_vk.q8ta_add.default",
    define=define,
    affine=affine,
    kernel=elementwise.tiles(kernel, PUSH, SPEC),
    check=check,
    clamps=True,
    cases=rule(
        EXAMPLE,
        dict(a=(1, 256, 56, 56), b=(1, 256, 56, 56)),
        EXAMPLE.refused(ParameterError, "a_scale", a_scale=0.0),
        EXAMPLE.refused(ParameterError, "b_zp", b_zp=128),
        EXAMPLE.refused(ShapeError, "broadcasting", b=(1, 5, 3, 7)),
        spread=2240,
        make=golden,
        hard=twins_and_many(golden, "a", "b"),
    ),
    upstream=Upstream(
        elementwise.module("q8ta_add_buffer", Params, "a", "b"),  # alpha is pushed, and not declared
        defects=(ALPHA_IGNORED, FIRST_OF_FOUR_DIMS),
        beyond=beyond,
    ),
)

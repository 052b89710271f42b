"""nchw_to_int8x4: the staging step that writes contiguous int8 bytes (NCHW) in a packed layout.

The contiguous side is a one-dimensional tensor in 4W, which has the same bytes. Source: ET-VK's staging kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from refsim.core import index
from refsim.core.errors import ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import insert, lane
from refsim.core.layout import C, H, W
from refsim.core.push import PushWords, SpecWords, hashed, tensor
from refsim.ops.base import elementwise
from refsim.ops.base.arg import Shapes
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import MANY_IMAGE, CaseSlot, Hard, Made, ranked_shape, rule
from refsim.ops.base.padding import OnDevice, Pad, Padding
from refsim.ops.base.spec import Call
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family


@dataclass(frozen=True)
class Params:
    """The shape (NCHW) of the packed tensor."""

    shape: tuple[int, ...]


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    return x.reshape(params.shape)


def out_shape(params: Params, shapes: Shapes, consts: Any, declared: Any) -> tuple[int, ...]:
    if shapes["x"] != (prod(params.shape),):
        raise ShapeError(
            "nchw_to_int8x4", "x is not the tensor's bytes", got=shapes["x"], need=[prod(params.shape)]
        )
    return tuple(params.shape)


def padding(call: Call) -> Padding:
    return Padding(Pad(0), Pad(0, OnDevice.UNTOUCHED))


PUSH = PushWords(tensor("OUT"), tensor("X"))
SPEC = SpecWords(hashed("OUT"))
OUT, _ = PUSH.offsets
(OUT_HASH,) = SPEC.offsets


@emulated_kernel
def kernel(reached, spec, push, x_words, out):  # type: ignore[no-untyped-def]
    out_hash = spec[OUT_HASH]
    for z, y, x in np.ndindex(reached):
        i = elementwise.word_number(x, y, z, push, OUT, out_hash)
        if i >= out.size:
            continue
        w, h, c, n = index.coord(push, OUT, out_hash, 4 * i)
        word = 0
        for k in range(index.lanes_inside(push, OUT, out_hash, w, h, c, n)):
            kw, kh, kc = index.lane_coord(out_hash, k, w, h, c)
            at = ((n * push[OUT + C] + kc) * push[OUT + H] + kh) * push[OUT + W] + kw
            word = insert(word, k, lane(x_words[at // 4], at % 4))
        out[i] = word


def golden(slot: CaseSlot) -> Made:
    shape = ranked_shape(slot)
    return {"shape": shape}, {"x": (prod(shape),)}, {}


def large(slot: CaseSlot) -> Made:
    """More positions than 16 bits count."""
    return {"shape": MANY_IMAGE}, {"x": (prod(MANY_IMAGE),)}, {}


EXAMPLE = Case("nchw_to_int8x4", {"shape": (2, 5, 3, 7)}, {"x": ((210,), "4W")}, "4W4C")

OP = elementwise.staging(
    EXAMPLE.op,
    Params,
    packed="out",
    shader="nchw_to_int8x4_buffer",
    walk="words",
    family=Family.STAGE_IN,
    define=define,
    out_shape=out_shape,
    padding=padding,
    kernel=elementwise.words(kernel, PUSH, SPEC),
    cases=rule(
        EXAMPLE,
        dict(shape=(1, 64, 112, 112), x=(64 * 112 * 112,)),
        EXAMPLE.refused(ShapeError, "not the tensor's bytes", x=(209,)),
        spread=640,
        make=golden,
        hard=(Hard("many positions", 2, large, "position"),),
    ),
)

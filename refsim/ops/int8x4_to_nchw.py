"""int8x4_to_nchw: the staging step that turns a packed tensor back into contiguous int8 bytes (NCHW).

The contiguous side is a one-dimensional tensor in 4W, which has the same bytes. Source: ET-VK's staging kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from refsim.core import index
from refsim.core.errors import LayoutError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import insert, lane
from refsim.core.layout import C, H, W
from refsim.core.push import PushWords, SpecWords, hashed, tensor
from refsim.ops.base import elementwise
from refsim.ops.base.arg import Shapes
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import moving_rule
from refsim.ops.base.padding import no_padding
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family


@dataclass(frozen=True)
class Params:
    """None."""


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    return x.reshape(-1)


def out_shape(params: Params, shapes: Shapes, consts: Any, declared: Any) -> tuple[int, ...]:
    return (prod(shapes["x"]),)


PUSH = PushWords(tensor("OUT"), tensor("X"))
SPEC = SpecWords(hashed("OUT"), hashed("X"))
OUT, X = PUSH.offsets
OUT_HASH, X_HASH = SPEC.offsets


@emulated_kernel
def kernel(reached, spec, push, x_words, out):  # type: ignore[no-untyped-def]
    out_hash, x_hash = spec[OUT_HASH], spec[X_HASH]
    for z, y, x in np.ndindex(reached):
        i = elementwise.word_number(x, y, z, push, OUT, out_hash)
        if i >= out.size:
            continue
        word = 0
        for k in range(min(4, push[OUT + W] - 4 * i)):
            rest = 4 * i + k
            w, rest = rest % push[X + W], rest // push[X + W]
            h, rest = rest % push[X + H], rest // push[X + H]
            c, n = rest % push[X + C], rest // push[X + C]
            at = index.buf_idx(push, X, x_hash, w, h, c, n)
            word = insert(word, k, lane(x_words[at // 4], at % 4))
        out[i] = word


EXAMPLE = Case("int8x4_to_nchw", {}, {"x": ((2, 5, 3, 7), "4W4C")}, "4W")

OP = elementwise.staging(
    EXAMPLE.op,
    Params,
    packed="x",
    shader="int8x4_buffer_to_nchw",
    walk="fours",
    family=Family.STAGE_OUT,
    define=define,
    out_shape=out_shape,
    padding=no_padding,
    kernel=elementwise.words(kernel, PUSH, SPEC),
    cases=moving_rule(EXAMPLE, EXAMPLE.refused(LayoutError, "out has a layout", out="4C"), spread=640),
)

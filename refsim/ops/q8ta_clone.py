"""q8ta_clone (serialized as aten.clone): copies a tensor to another layout. Values never change.

Between equal layouts the whole buffer is copied, with its padding. Between different layouts the padding is 0; upstream
copies, zeroes or leaves it, depending on the pair. Source: ET-VK's q8ta_clone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.core import index
from refsim.core.errors import LayoutError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import insert, lane
from refsim.core.layout import INT8_LAYOUTS
from refsim.core.push import PushWords, tensor
from refsim.core.resize import STALE_ROWS
from refsim.ops.base import elementwise
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import moving_rule
from refsim.ops.base.elementwise import OUT_HASH, SPEC, X_HASH
from refsim.ops.base.host.row import plain
from refsim.ops.base.padding import Padding
from refsim.ops.base.spec import Call, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family


@dataclass(frozen=True)
class Params:
    """None."""


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    return x.copy()


def padding(call: Call) -> Padding:
    if call.out.layout == call.descs["x"].layout:
        return elementwise.COPIED
    return elementwise.UNSPECIFIED


PUSH = PushWords(tensor("OUT"), tensor("X"))
OUT, X = PUSH.offsets


@emulated_kernel
def kernel(reached, spec, push, x_words, out):  # type: ignore[no-untyped-def]
    out_hash, x_hash = spec[OUT_HASH], spec[X_HASH]
    for z, y, x in np.ndindex(reached):
        i, w, h, c, n = elementwise.tile_word(x, y, z, push, OUT, out_hash)
        if i < 0:
            continue
        if out_hash == x_hash:
            out[i] = x_words[i]
            continue
        word = 0
        for k in range(index.lanes_inside(push, OUT, out_hash, w, h, c, n)):
            kw, kh, kc = index.lane_coord(out_hash, k, w, h, c)
            at = index.buf_idx(push, X, x_hash, kw, kh, kc, n)
            word = insert(word, k, lane(x_words[at // 4], at % 4))
        out[i] = word


EXAMPLE = Case("q8ta_clone", {}, {"x": ((2, 5, 3, 7), "4W4C")}, "4C1W")

OP = elementwise.operator_between(
    EXAMPLE.op,
    Params,
    x=INT8_LAYOUTS,
    out=INT8_LAYOUTS,
    serialized="aten.clone.default",
    family=Family.RELAYOUT,
    define=define,
    padding=padding,
    kernel=elementwise.tiles(kernel, PUSH, SPEC),
    cases=moving_rule(
        EXAMPLE, EXAMPLE.refused(LayoutError, "out has a layout", out="WIDTH_PACKED"), spread=1600
    ),
    upstream=Upstream(elementwise.module_between(plain("q8ta_clone")), resize=STALE_ROWS),
)

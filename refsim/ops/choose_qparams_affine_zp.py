"""choose_qparams_affine_zp: the zero point of every row of a float tensor, the second output of choose_qparams_affine.

    zp = rne(qmin - lo / s) or rne(qmax - hi / s), clamped to [qmin, qmax]

The whole rule stands in refsim/ops/base/row_range.py. Upstream keeps zero points in a texture of int8, four rows to a
texel; here they lie alike, four to a word. Source: ET-VK's choose_qparams_affine.
"""

from __future__ import annotations

import numpy as np

from refsim.core.jit import emulated_kernel
from refsim.core.lanes import insert
from refsim.core.layout import PACKED_4W
from refsim.ops.base import row_range
from refsim.ops.base.arg import Arg, Kind
from refsim.ops.base.padding import OnDevice, Pad, Padding
from refsim.ops.base.row_range import FLAGS, HIGH, LOW, ROWS, K, RowRangeParams
from refsim.ops.base.spec import Call
from refsim.ops.base.target import Target

NAME = "choose_qparams_affine_zp"
LANES = 16  # invocations along z that read one row together; those along y have a row of the word each


def define(params: RowRangeParams, target: Target, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        scale, lo, hi = row_range.ranges(params, target, x)
        flags = target.profile.flags
        return row_range.zero_point(scale, lo, hi, params.qmin, params.qmax, flags).astype(np.int8)


def padding(call: Call) -> Padding:
    """Lanes beyond the rows of a line are 0; upstream leaves there what it likes."""
    return Padding(Pad(0, OnDevice.UNSPECIFIED), Pad(0))


@emulated_kernel
def kernel(reached, spec, push, x, out):  # type: ignore[no-untyped-def]
    rows, k = push[ROWS], push[K]
    words = (rows + 3) // 4
    for _, _, i in np.ndindex(reached):
        line, first = i // words, i % words * 4
        word = 0
        for lane in range(min(4, rows - first)):
            lo, hi = row_range.row_range(x, line * rows + first + lane, k, push[FLAGS])
            s, lo, hi = row_range.scaled(lo, hi, push[LOW], push[HIGH])
            word = insert(word, lane, row_range.zero_point(s, lo, hi, push[LOW], push[HIGH], push[FLAGS]))
        out[i] = word


OP = row_range.operator(
    NAME,
    Arg("out", Kind.OUTPUT, (PACKED_4W,), plain=True),
    serialized="",
    define=define,
    padding=padding,
    kernel=row_range.kernel(kernel, (1, 4, LANES)),
)

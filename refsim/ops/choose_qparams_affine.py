"""choose_qparams_affine: the scale of every row of a float tensor, for quantizing it row by row.

    s = (max(row, 0) - min(row, 0)) / f32(qmax - qmin), and not less than 6.1e-5

The whole rule stands in refsim/ops/base/row_range.py. The serialized operator has a second output, the zero points:
choose_qparams_affine_zp computes it. Source: ET-VK's choose_qparams_affine; it refuses leading dims above 1.
"""

from __future__ import annotations

import numpy as np

from refsim.core.jit import emulated_kernel
from refsim.core.lanes import f32_bits
from refsim.core.layout import WIDTH_PACKED
from refsim.ops.base import row_range
from refsim.ops.base.arg import Arg, Kind
from refsim.ops.base.padding import no_padding
from refsim.ops.base.row_range import FLAGS, HIGH, LOW, K, RowRangeParams
from refsim.ops.base.target import Target

NAME = "choose_qparams_affine"
LANES = 16  # invocations along z that read one row together


def define(params: RowRangeParams, target: Target, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return row_range.ranges(params, target, x)[0]


@emulated_kernel
def kernel(reached, spec, push, x, out):  # type: ignore[no-untyped-def]
    for _, _, row in np.ndindex(reached):
        lo, hi = row_range.row_range(x, row, push[K], push[FLAGS])
        s, lo, hi = row_range.scaled(lo, hi, push[LOW], push[HIGH])
        out[row] = f32_bits(s)


OP = row_range.operator(
    NAME,
    Arg("out", Kind.OUTPUT, (WIDTH_PACKED,)),
    serialized="torchao.choose_qparams_affine.default",
    siblings=("choose_qparams_affine_zp",),
    define=define,
    padding=no_padding,
    kernel=row_range.kernel(kernel, (4, 1, LANES)),
)

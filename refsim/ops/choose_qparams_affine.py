"""choose_qparams_affine: the scale of every row of a float tensor, for quantizing it row by row.

    s = (max(row, 0) - min(row, 0)) / f32(qmax - qmin), and not less than 6.1e-5

The whole rule stands in refsim/ops/base/row_range.py. The serialized operator has a second output, the zero points:
choose_qparams_affine_zp computes it. Source: ET-VK's choose_qparams_affine; it refuses leading dims above 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refsim.core.jit import emulated_kernel
from refsim.core.lanes import f32_bits
from refsim.core.launch import Launch
from refsim.core.layout import WIDTH_PACKED
from refsim.ops.base import row_range
from refsim.ops.base.arg import Arg, Kind
from refsim.ops.base.case_rule import CaseRule
from refsim.ops.base.padding import no_padding
from refsim.ops.base.row_range import FLAGS, HIGH, LOW, K
from refsim.ops.base.spec import Call, Kernel, OpSpec, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

NAME = "choose_qparams_affine"
LANES = 16  # invocations that read one row together


class Params(row_range.RowRangeParams):
    """The block, which is a row, and the quantized range."""


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return row_range.ranges(params, target, x)[0]


def launch(call: Call) -> Launch:
    """Global size: rows. The invocations along z read a row together."""
    return Launch(
        shader=NAME,
        out=call.out,
        spec=(),
        push=row_range.push_words(call),
        global_size=(call.out.words, 1, 1),
        local=(4, 1, LANES),
    )


@emulated_kernel
def kernel(reached, spec, push, x, out):  # type: ignore[no-untyped-def]
    for _, _, row in np.ndindex(reached):
        lo, hi = row_range.row_range(x, row, push[K], push[FLAGS])
        s, lo, hi = row_range.scaled(lo, hi, push[LOW], push[HIGH])
        out[row] = f32_bits(s)


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes a word."""
    return word, 0 * word, 0 * word


EXAMPLE = row_range.example(NAME, "WIDTH_PACKED")

OP = OpSpec(
    name=NAME,
    serialized="torchao.choose_qparams_affine.default",
    siblings=("choose_qparams_affine_zp",),
    family=Family.ROW_RANGE,
    args=row_range.args(Arg("out", Kind.OUTPUT, (WIDTH_PACKED,))),
    params=Params,
    define=define,
    out_shape=row_range.out_shape,
    padding=no_padding,
    kernel=Kernel(run=kernel, launch=launch, push=row_range.PUSH, spec=row_range.SPEC, work_item=work_item),
    check=row_range.check,
    cases=CaseRule(
        320,
        row_range.golden,
        hard=row_range.HARD,
        example=EXAMPLE,
        bench=EXAMPLE.changed(block=(1, 2048), x=(128, 2048)),
        refused=row_range.refused(EXAMPLE),
    ),
    min_rank=2,
    upstream=Upstream(defects=(row_range.PLANES,)),
)

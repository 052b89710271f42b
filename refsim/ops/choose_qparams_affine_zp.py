"""choose_qparams_affine_zp: the zero point of every row of a float tensor, the second output of choose_qparams_affine.

    zp = rne(qmin - lo / s) or rne(qmax - hi / s), clamped to [qmin, qmax]

The whole rule stands in refsim/ops/base/row_range.py. Upstream keeps zero points in a texture of int8, four rows to a
texel; here they lie alike, four to a word. Source: ET-VK's choose_qparams_affine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refsim.core.jit import emulated_kernel
from refsim.core.lanes import insert
from refsim.core.launch import Launch
from refsim.core.layout import PACKED_4W
from refsim.ops.base import row_range
from refsim.ops.base.arg import Arg, Kind
from refsim.ops.base.case_rule import CaseRule
from refsim.ops.base.padding import OnDevice, Pad, Padding
from refsim.ops.base.row_range import FLAGS, HIGH, LOW, ROWS, K
from refsim.ops.base.spec import Call, Kernel, OpSpec, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

NAME = "choose_qparams_affine_zp"
LANES = 16  # invocations that read one row together


class Params(row_range.RowRangeParams):
    """The block, which is a row, and the quantized range."""


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        scale, lo, hi = row_range.ranges(params, target, x)
        flags = target.profile.flags
        return row_range.zero_point(scale, lo, hi, params.qmin, params.qmax, flags).astype(np.int8)


def padding(call: Call) -> Padding:
    """Lanes beyond the rows of a line are 0; upstream leaves there what it likes."""
    return Padding(Pad(0, OnDevice.UNSPECIFIED), Pad(0))


def launch(call: Call) -> Launch:
    """Global size: words. The invocations along y have a row of the word each, those along z read it together."""
    return Launch(
        shader=NAME,
        out=call.out,
        spec=(),
        push=row_range.push_words(call),
        global_size=(call.out.words, 1, 1),
        local=(1, 4, LANES),
    )


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


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes a word."""
    return word, 0 * word, 0 * word


EXAMPLE = row_range.example(NAME, "4W")

OP = OpSpec(
    name=NAME,
    serialized="",
    family=Family.ROW_RANGE,
    args=row_range.args(Arg("out", Kind.OUTPUT, (PACKED_4W,), plain=True)),
    params=Params,
    define=define,
    out_shape=row_range.out_shape,
    padding=padding,
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

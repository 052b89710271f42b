"""q8ta_linear_gemv: q8ta_linear for a single row, over 4W buffers.

Source: ET-VK's q8ta_linear_gemv, which computes only row 0, whatever M is. Here more than one row is refused.
"""

from __future__ import annotations

from math import prod

import numpy as np

from refsim.core.errors import LayoutError, ParameterError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import add_dot4
from refsim.core.launch import Launch
from refsim.core.layout import PACKED_4W, W
from refsim.core.resize import STALE_ROWS
from refsim.ops.base import epilogue, linear
from refsim.ops.base.arg import Shapes
from refsim.ops.base.case_rule import CaseSlot, Made
from refsim.ops.base.defect import FIRST_ROW
from refsim.ops.base.linear import EPILOGUE, IN_ZP, K4, OUT
from refsim.ops.base.spec import Call, KernelSpec, Upstream


class Params(linear.LinearParams):
    """As both linear operators."""

    where = "q8ta_linear_gemv"


#: From this K on, 64 invocations share it. On an H200, K = 2048 takes 4.6 us with 64, 7.7 with 8; K = 512 5.9 and 5.1.
SHORT_K = 1024


def launch(call: Call) -> Launch:
    """Global size: one row x words of outputs. The invocations along z divide K among them: fewer share a short K."""
    lanes = 64 if call.descs["x"].shape[-1] >= SHORT_K else 8
    return call.launched((1, -(-call.out.shape[-1] // 4), 1), (1, 8, lanes), **linear.values(call))


@emulated_kernel
def kernel(reached, spec, push, x_words, weight, sums, scales, bias, out):  # type: ignore[no-untyped-def]
    all_out = (push[OUT + W] + 3) // 4 * 4
    for _, o4, _ in np.ndindex(reached):
        acc = 0, 0, 0, 0
        for k4 in range(push[K4]):
            acc = add_dot4(acc, x_words[k4], weight, k4 * all_out + 4 * o4)
        out[o4] = epilogue.out_word(EPILOGUE, acc, 4 * o4, push[OUT + W], push, IN_ZP, sums, scales, bias)


def beyond(shapes: Shapes) -> str | None:
    return None if prod(shapes["x"][:-1]) == 1 else FIRST_ROW.note


def check(call: Call) -> None:
    rows = prod(call.descs["x"].shape[:-1])
    if rows != 1:
        raise ShapeError(
            "q8ta_linear_gemv", "more than one row", got=f"M = {rows}", need="M == 1, or q8ta_linear"
        )
    linear.check(call)


def golden(slot: CaseSlot) -> Made:
    k, most = linear.golden_k(slot)
    lead = slot.rng.choice([(), (1,), (1, 1)])
    params = linear.golden_params(slot)
    return params, {"x": (*lead, k)}, {"out_channels": min(slot.size(0, 40), most), "bias": slot.bias}


EXAMPLE = linear.example("q8ta_linear_gemv", (1, 16), "4W", "4W", out_scale=0.05, out_zp=-4)

OP = linear.operator(
    Params,
    serialized="et_vk.q8ta_linear_gemv.default",
    args=linear.args(PACKED_4W),
    kernel=KernelSpec(kernel, launch, linear.PUSH, linear.SPEC, linear.work_item),
    check=check,
    cases=linear.rule(
        EXAMPLE,
        dict(x=(1, 2048), out_channels=1000),
        EXAMPLE.refused(ShapeError, "M = 3", x=(3, 16)),
        EXAMPLE.refused(LayoutError, "layout", x="4H4W"),
        EXAMPLE.refused(ParameterError, "in_zp", in_zp=-129),
        make=golden,
        rows=False,
    ),
    one_row=True,
    upstream=Upstream(
        linear.module("q8ta_linear_gemv", ("ceil(w / 8)", "1", "1"), "1,1,64"),
        defects=(FIRST_ROW,),
        beyond=beyond,
        resize=STALE_ROWS,
    ),
)

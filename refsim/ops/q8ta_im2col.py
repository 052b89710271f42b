"""q8ta_im2col: the first step of the im2col path. It writes the windows of an image as channels of a scratch tensor.

The scratch is (N, K, OH, OW padded to 4) in 4W4C. K runs over groups, taps and the group's channels, channel fastest.
Columns beyond OW hold the windows that would be there. A tap outside the image holds zp_in.
Source: ET-VK's q8ta_im2col.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refsim.core import index
from refsim.core.errors import LayoutError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import splat
from refsim.core.launch import Launch
from refsim.core.layout import CHANNELS_PACKED_INT8, PACKED_4W4C, H
from refsim.core.push import PushWords, int32
from refsim.ops.base import conv, conv_cases, elementwise, epilogue
from refsim.ops.base.arg import Arg, Kind, Shapes
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import CaseSlot, Made, rule, twins
from refsim.ops.base.conv import IC4, IN_ZP, KERNEL_H, KERNEL_W, OUT, OUT_HASH, X_HASH, X, tap_place
from refsim.ops.base.defect import FIRST_BATCH
from refsim.ops.base.host.row import ModuleCall, plain
from refsim.ops.base.padding import no_padding
from refsim.ops.base.spec import Call, KernelSpec, OpSpec, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family


class Params(conv.ConvParams):
    """The window and the input's zero point. The scales and the output's zero point are not used."""

    where = "q8ta_im2col"


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    oh, ow = params.out_size((x.shape[-2], x.shape[-1]))
    return conv.windows(params, x, oh, epilogue.align4(ow))


def out_shape(params: Params, shapes: Shapes, consts: Mapping[str, Any], declared: Any) -> tuple[int, ...]:
    x = shapes["x"]
    *outer, h, w = conv.shape_for(params, x, params.taps * x[-3], None)
    return (*outer, h, epilogue.align4(w))


#: As a convolution up to the input's zero point; OC4 means nothing here.
PUSH = PushWords(*conv.WINDOW, int32("IN_ZP"))
COLUMNS = 4  # scratch columns of an invocation


def launch(call: Call) -> Launch:
    """Global size: words of K x scratch columns x (batch, output rows)."""
    w, h, c, n = call.out.sizes_whcn
    return call.launched(
        (c // 4, w, n * h),
        (16, 4, 1),
        (1, COLUMNS, 1),
        **conv.window(call) | {"OC4": 0},
        IN_ZP=call.params.in_zp,
    )


@emulated_kernel
def kernel(reached, spec, push, x_words, out):  # type: ignore[no-untyped-def]
    x_hash, out_hash = spec[X_HASH], spec[OUT_HASH]
    taps = push[KERNEL_H] * push[KERNEL_W]
    for z, y, k4 in np.ndindex(reached):
        left, column = y // COLUMNS * COLUMNS, y % COLUMNS
        ow, oh, n = left + column, z % push[OUT + H], z // push[OUT + H]
        channel, rest = k4 % push[IC4], k4 // push[IC4]
        tap, group = rest % taps, rest // taps
        i, j = tap // push[KERNEL_W], tap % push[KERNEL_W]
        iw, ih, hit = tap_place(push, ow, oh, i, j)
        word = splat(push[IN_ZP])
        if hit:
            word = x_words[index.word_idx(push, X, x_hash, iw, ih, 4 * (group * push[IC4] + channel), n)]
        out[index.word_idx(push, OUT, out_hash, ow, oh, 4 * k4, n)] = word


def golden(slot: CaseSlot) -> Made:
    groups = (1, 1, 2)[slot.number % 3]
    params = {"in_scale": 1.0, "in_zp": slot.zero_point(0), "out_scale": 1.0, "out_zp": 0, "groups": groups}
    params |= conv_cases.golden_window(slot)
    return params, conv_cases.golden_image(slot, params, 4 * groups * slot.rng.integer(1, 3)), {}


EXAMPLE = Case(
    "q8ta_im2col",
    dict(in_scale=0.02, in_zp=3, out_scale=0.02, out_zp=3, kernel_size=(3, 3), padding=(1, 1)),
    {"x": ((2, 8, 7, 9), "4C")},
    "4W4C",
)

#: Later releases write all batches. The last one counts their rows on, and takes the first of a tile from the push
#: words. The one before differs in its host alone; its folders show it by a module that came at about that time.
MODULE = ModuleCall(
    shaders=plain("q8ta_im2col"),
    bindings=("out", "x", "meta:out", "meta:x", "conv_params"),
    push=("in_zp",),
    spec=("1", "layout:out", "layout:x"),
    global_size=("h * ceil(w / 4) * ceil(c / 4)", "1", "1"),
    local_size="64,1,1",
    view="plane",
)
MODULE = MODULE.since(
    view="",
    global_size=("n * h * ceil(w / 4) * ceil(c / 4)", "1", "1"),
    came_with="q8ta_conv2d_pw_unsigned_float",
).since(push=("in_zp", "0"), view="rows")

OP = OpSpec(
    name="q8ta_im2col",
    serialized="",
    family=Family.WINDOWS,
    args=(
        Arg("x", Kind.INPUT, CHANNELS_PACKED_INT8),
        *(Arg(name) for name in ("in_zp", "kernel_size", "stride", "padding", "dilation", "groups")),
        Arg("out", Kind.OUTPUT, (PACKED_4W4C,)),
    ),
    params=Params,
    define=define,
    out_shape=out_shape,
    padding=no_padding,  # K is a multiple of 4, and so is the padded width
    kernel=KernelSpec(kernel, launch, PUSH, conv.SPEC, elementwise.column_work_item),
    check=conv.check_words,
    cases=rule(
        EXAMPLE,
        dict(x=(1, 64, 56, 56)),
        EXAMPLE.refused(ShapeError, "fill words", x=(1, 6, 7, 9)),
        EXAMPLE.refused(LayoutError, "out has a layout", out="4C"),
        spread=640,
        make=golden,
        hard=(twins(golden),),
    ),
    min_rank=3,
    any_channels=False,
    upstream=Upstream(module=MODULE, defects=(FIRST_BATCH,)),
)

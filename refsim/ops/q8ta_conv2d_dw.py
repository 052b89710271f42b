"""q8ta_conv2d_dw: depthwise convolution, one input channel per output channel.

The formula of q8ta_conv2d_general with weights (KH, KW, OC), OC % 4 == 0. Source: ET-VK's q8ta_conv2d_dw.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from refsim.core import index
from refsim.core.errors import ParameterError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import add_lanes, splat
from refsim.core.launch import Launch, column_local
from refsim.core.layout import PACKED_4C1W, C, H
from refsim.core.push import SpecWords, hashed, vectors
from refsim.core.rng import Rng
from refsim.ops.base import conv, conv_cases, epilogue
from refsim.ops.base.arg import Shapes
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import CaseSlot, Made
from refsim.ops.base.conv import IN_ZP, KERNEL_H, KERNEL_W, OUT, OUT_HASH, X_HASH, X, tap_place
from refsim.ops.base.host.row import Shader
from refsim.ops.base.host.weights import DEPTHWISE
from refsim.ops.base.spec import Call, KernelSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Epilogue


class Params(conv.ConvParams):
    """As every convolution."""

    where = "q8ta_conv2d_dw"


EPILOGUE = Epilogue.FLOAT_ZP
KIND = conv.WindowKind(depthwise=True)


def define(params: Params, target: Target, x: np.ndarray, **consts: np.ndarray) -> np.ndarray:
    weight = np.moveaxis(consts["weight"], -1, 0)[..., None]  # (OC, KH, KW, 1)
    shape = conv.shape_for(params, x.shape, len(weight), None)
    acc = conv.accumulate(params, conv.nchw4(x), weight, (shape[-2], shape[-1]))
    return epilogue.requantized(EPILOGUE, params, target, acc, consts, (-1, 1, 1)).reshape(shape)


def out_shape(params: Params, shapes: Shapes, consts: Mapping[str, Any], declared: Any) -> tuple[int, ...]:
    return conv.shape_for(params, shapes["x"], consts["weight"].shape[-1], declared)


def check(call: Call) -> None:
    p, channels, out = call.params, call.descs["x"].shape[-3], call.out.shape[-3]
    if not p.groups == channels == out or channels % 4:
        raise ShapeError(
            p.where,
            "not depthwise in whole words",
            got=f"{channels} -> {out}, {p.groups} groups",
            need="groups == input channels == output channels, a multiple of 4",
        )
    (weight,) = call.given("weight")
    if weight.shape[:-1] != p.kernel_size:
        raise ShapeError(
            p.where, "weight has the wrong shape", got=weight.shape, need=(*p.kernel_size, channels)
        )
    epilogue.check_constants(call, out, p.taps)


def prepack(call: Call, name: str, value: np.ndarray) -> np.ndarray:
    """weight: words [tap][channel word], with unchanged bytes."""
    return np.ascontiguousarray(value).reshape(-1).view(np.int32)


ROWS, FEW_ROWS = 4, 2  # how many output rows an invocation takes; rows are padded to the larger
COLUMNS = 4  # and how many columns
MANY = 1 << 18  # invocations that keep a large device busy


#: The windows of mobile networks.
WINDOWS = tuple(
    conv.WindowVariant((k, k), (s, s), k // 2, rows)
    for k in (3, 5)
    for s in (1, 2)
    for rows in (FEW_ROWS, ROWS)
)


SPEC = SpecWords(hashed("X"), hashed("OUT"), vectors("X"), vectors("OUT"))


def launch(call: Call) -> Launch:
    """Global size: channel words x output columns x (batch, output rows padded to `ROWS`)."""
    w, h, c, n = call.out.sizes_whcn
    p, row_groups = call.params, n * -(-h // ROWS)
    rows = ROWS if c // 4 * -(-w // 4) * row_groups >= MANY else FEW_ROWS
    window = conv.WindowVariant(p.kernel_size, p.stride, p.padding[1], rows)
    built = p.dilation == (1, 1) and window in WINDOWS
    return call.launched(
        (c // 4, w, row_groups * ROWS),
        column_local(call.out, 4),
        (1, COLUMNS, rows if built else FEW_ROWS),
        window.name if built else "",
        **conv.values(call),
    )


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes the word at a coordinate."""
    return c // 4, w, n * -(-launch.out.sizes_whcn[1] // ROWS) * ROWS + h


@emulated_kernel
def kernel(reached, spec, push, x_words, weight, sums, scales, bias, out):  # type: ignore[no-untyped-def]
    x_hash, out_hash = spec[X_HASH], spec[OUT_HASH]
    border = splat(push[IN_ZP])
    channel_words = push[OUT + C] // 4
    rows = (push[OUT + H] + ROWS - 1) // ROWS * ROWS
    for z, y, c4 in np.ndindex(reached):
        left, column = y // COLUMNS * COLUMNS, y % COLUMNS
        n, top, row = z // rows, z % rows // ROWS * ROWS, z % ROWS
        ow, oh = left + column, top + row
        if oh >= push[OUT + H]:
            continue
        acc = 0, 0, 0, 0
        for i in range(push[KERNEL_H]):
            for j in range(push[KERNEL_W]):
                iw, ih, hit = tap_place(push, ow, oh, i, j)
                word = border
                if hit:
                    word = x_words[index.word_idx(push, X, x_hash, iw, ih, 4 * c4, n)]
                tap = weight[(i * push[KERNEL_W] + j) * channel_words + c4]
                acc = add_lanes(acc, word, tap)
        to = index.word_idx(push, OUT, out_hash, ow, oh, 4 * c4, n)
        out[to] = epilogue.out_word(EPILOGUE, acc, 4 * c4, push[OUT + C], push, IN_ZP, sums, scales, bias)


def constants(params: Params, shapes: Shapes, features: Mapping[str, Any], rng: Rng) -> dict[str, Any]:
    channels = shapes["x"][-3]
    weight = epilogue.weights(features, (*params.kernel_size, channels), params.taps, rng)
    rest = epilogue.per_channel(params, weight.sum((0, 1)), params.taps, features, rng)
    return {"weight": weight.astype(np.int8), **rest}


def _common_window(slot: CaseSlot) -> dict[str, Any] | None:
    """Three of every eleven cases have a window for which ET-VK has a special shader."""
    turn, rest = divmod(slot.number, 11)
    if rest > 2:
        return None
    k, s = (3, 5)[turn % 2], (1, 2)[turn // 2 % 2]
    return {"kernel_size": (k, k), "stride": (s, s), "padding": (k // 2, k // 2), "dilation": (1, 1)}


def golden(slot: CaseSlot) -> Made:
    channels = 4 * slot.rng.integer(1, 5)
    if slot.large and not slot.huge:
        channels = 36
    window = _common_window(slot) or conv_cases.golden_window(slot)
    params = conv_cases.golden_params(slot, window, channels)
    wide = 257 if slot.layouts[-1].block_transposed else 40
    features = {"out_channels": channels, "bias": slot.bias}
    return params, conv_cases.golden_image(slot, params, channels, wide), features


EXAMPLE = Case(
    Params.where,
    dict(in_scale=0.02, in_zp=3, out_scale=0.05, out_zp=-4, kernel_size=(3, 3), padding=(1, 1), groups=8),
    {"x": ((2, 8, 7, 9), "4W4C")},
    "4W4C",
    features={"bias": True},
)

#: Later releases compute all batches, as q8ta_conv2d_general.
MODULE = conv.module((Shader("q8ta_conv2d_dw_float", textures=("weight",)),), "depthwise", DEPTHWISE).since(
    global_size=("ceil(w / 4)", "n * h", "ceil(c / 4)"),
    local_size="depthwise_narrow",
    told_by="q8ta_conv2d_pw",
)

OP = conv.operator(
    Params,
    KIND,
    serialized="et_vk.q8ta_conv2d_dw.default",
    define=define,
    out_shape=out_shape,
    kernel=KernelSpec(kernel, launch, conv.PUSH, SPEC, work_item, WINDOWS),
    prepack=prepack,
    check=check,
    input_layout=lambda params, x, out, target: PACKED_4C1W,
    cases=conv_cases.rule(
        EXAMPLE,
        dict(x=(1, 144, 56, 56), groups=144),
        EXAMPLE.refused(ShapeError, "not depthwise", groups=4),
        EXAMPLE.refused(ParameterError, "out_zp", out_zp=300),
        kind=KIND,
        make=golden,
        constants=constants,
    ),
    epilogue=EPILOGUE,
    upstream=conv.upstream(MODULE),
)

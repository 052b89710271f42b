"""Bugs in integer sums, in what a tap reads and in weight texels, written plainly and apart from refsim.bytediff."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case

F = np.float32
_WINDOW = dict(kernel_size=(2, 3), stride=(2, 3), padding=(0, 1))
_SCALES = dict(in_scale=0.5, in_zp=11, out_scale=1.0, out_zp=-9)

GROUPED = bind(
    Case(
        "q8ta_conv2d_general",
        {**_SCALES, **_WINDOW, "groups": 2, "padding": (1, 2)},
        {"x": ((2, 16, 6, 13), "4W4C")},
        "4C1W",
        seed=5,
        features={"out_channels": 8, "bias": True},
        poison=True,
    )
)
TRANSPOSED = bind(
    Case(
        "q8ta_conv2d_transposed",
        {**_SCALES, **_WINDOW},
        {"x": ((1, 8, 4, 5), "4W4C")},
        "4C",
        seed=6,
        features={"out_channels": 8, "bias": True},
    )
)
SQUARE = bind(
    Case(
        "q8ta_conv2d_general",
        {**_SCALES, "kernel_size": (3, 3), "padding": (1, 0)},
        {"x": ((1, 8, 7, 9), "4W4C")},
        "4W4C",
        seed=9,
        features={"out_channels": 8, "bias": True},
    )
)
LINEAR = bind(
    Case("q8ta_linear", _SCALES, {"x": ((6, 40), "4H4W")}, "4H4W", seed=7, features={"out_channels": 14})
)


Tap = Callable[[int, int], tuple[int, int]]


def _sums(
    bound: BoundCase,
    *,
    first_group: bool = False,
    phases: bool = True,
    sign: int = 1,
    weights_of: Tap = lambda i, j: (i, j),
    of_word: Callable[[int, int], int] = lambda tap, word: word,
    reads_at: Tap = lambda i, j: (i, j),
) -> np.ndarray:
    """The sums of a convolution, int64 (N, OC, OH, OW), tap by tap."""
    p, x = bound.call.params, bound.inputs["x"].unpack().astype(np.int64)
    _, channels, height, width = x.shape
    per_group, (kh, kw) = channels // p.groups, p.kernel_size
    weight = np.asarray(bound.call.consts["weight"]).astype(np.int64)
    shape = bound.call.out.shape
    acc = np.zeros(shape, np.int64)
    for oc, oh, ow in np.ndindex(shape[1:]):
        group = 0 if first_group else oc // (shape[1] // p.groups)
        for place in np.ndindex(kh, kw):
            i, j = reads_at(*place)
            if bound.call.op.transposed:
                h, w = oh + sign * p.padding[0] - i, ow + sign * p.padding[1] - j
                inside = h >= 0 and w >= 0
                if phases:
                    inside = inside and h % p.stride[0] == 0 and w % p.stride[1] == 0
                h, w = h // p.stride[0], w // p.stride[1]
            else:
                h, w = oh * p.stride[0] - sign * p.padding[0] + i, ow * p.stride[1] - sign * p.padding[1] + j
                inside = h >= 0 and w >= 0
            a, b = weights_of(*place)
            first = (a * kw + b) * per_group
            words = [first + 4 * of_word(a * kw + b, k // 4) + k % 4 for k in range(per_group)]
            row = weight[oc, words]
            if inside and h < height and w < width:
                acc[:, oc, oh, ow] += x[:, group * per_group : (group + 1) * per_group, h, w] @ row
            else:
                acc[:, oc, oh, ow] += p.in_zp * row.sum()
    return acc


def _finished(bound: BoundCase, acc: np.ndarray) -> tuple[BoundCase, np.ndarray]:
    """Values of sums, by the epilogue that subtracts the zero point as a float."""
    p, consts = bound.call.params, bound.call.consts
    wsum, scale, bias = (
        np.asarray(consts[name])[:, None, None] for name in ("weight_sums", "weight_scales", "bias")
    )
    t = (acc.astype(F) - wsum.astype(F) * F(p.in_zp)) * (scale * F(p.in_scale)) + bias
    q = np.rint(t * (F(1) / F(p.out_scale)))
    return bound, (np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)


def _carried() -> tuple[BoundCase, np.ndarray]:
    """Of four columns, each keeps the sums of those before it."""
    acc = _sums(GROUPED)
    for first in range(0, acc.shape[-1], 4):
        acc[..., first : first + 4] = acc[..., first : first + 4].cumsum(-1)
    return _finished(GROUPED, acc)


def _narrow(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[], tuple[BoundCase, np.ndarray]]:
    """Sums of a convolution over many channels, whose sums need more than 16 bits."""

    def make() -> tuple[BoundCase, np.ndarray]:
        inputs = {"x": ((1, 128, 3, 13), "4W4C")}
        bound = bind(replace(GROUPED.case, inputs=inputs, style="saturation"))
        return _finished(bound, change(_sums(bound)))

    return make


def _half(acc: np.ndarray) -> np.ndarray:
    """Sums in binary16; what is too large for it saturates the output."""
    rounded = acc.clip(-65504, 65504).astype(np.float16).astype(np.int64)
    return np.where(np.abs(acc) > 65504, np.sign(acc) << 30, rounded)


def _texels_exchanged() -> tuple[BoundCase, np.ndarray]:
    """Weights of a linear operator, texel (n4, k4) fetched at (k4, n4) of rows as long as there are n4."""
    weight = np.zeros((16, 40), np.int8)
    weight[:14] = LINEAR.call.consts["weight"]
    texels = weight.reshape(4, 4, 10, 4).transpose(2, 0, 1, 3).reshape(40, 4, 4)  # [k4 * 4 + n4]
    wrong = np.zeros((4, 4, 10, 4), np.int8)
    for n4, k4 in np.ndindex(4, 10):
        if n4 * 4 + k4 < 40:
            wrong[n4, :, k4] = texels[n4 * 4 + k4]
    p, consts = LINEAR.call.params, LINEAR.call.consts
    x = LINEAR.inputs["x"].unpack().astype(np.int64)
    acc = x @ wrong.reshape(16, 40)[:14].T.astype(np.int64) - p.in_zp * np.asarray(consts["weight_sums"])
    t = acc.astype(F) * (np.asarray(consts["weight_scales"]) * F(p.in_scale))
    q = np.rint(t * (F(1) / F(p.out_scale)))
    return LINEAR, (np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)[None, None]


def _layout_words_exchanged() -> tuple[BoundCase, Any]:
    """A clone from 4W4C to 4C that finds blocks of 4C in its input and of 4W4C in its output."""
    bound = bind(Case("q8ta_clone", {}, {"x": ((1, 8, 3, 8), "4W4C")}, "4C", style="position"))
    source, out = bound.inputs["x"].raw.view(np.int32), PackedBuffer(bound.call.out)
    for h, w, c4 in np.ndindex(3, 8, 2):
        read = h * 4 + w * 2 + c4  # strides in blocks of four words, blocks taken for single words
        to = (h * 16 + w // 4 * 2 + c4) * 4 + w % 4
        if to < len(out.words):
            out.words[to] = source[read]
    return bound, out


def _pixels_slowest() -> tuple[BoundCase, np.ndarray]:
    params = dict(in_scale=0.5, in_zp=1, out_inv_scale=2.0, out_zp=1, upscale=2)
    bound = bind(Case("q8ta_pixel_shuffle", params, {"x": ((2, 12, 3, 5), "4W4C")}, "4C", style="position"))
    x, out = bound.inputs["x"].unpack(), np.zeros((2, 3, 6, 10), np.int8)
    for c, h, w in np.ndindex(3, 6, 10):
        out[:, c, h, w] = x[:, (h % 2 * 2 + w % 2) * 3 + c, h // 2, w // 2]
    return bound, out


def _zero_point_of_the_output() -> tuple[BoundCase, np.ndarray]:
    params = dict(in_scale=0.5, in_zp=1, out_inv_scale=1.5, out_zp=-20, upscale=2)
    bound = bind(Case("q8ta_pixel_shuffle", params, {"x": ((2, 12, 3, 5), "4W4C")}, "4C", seed=4))
    wrong = replace(bound.call, params=replace(bound.call.params, in_zp=-20))
    return bound, wrong.define({"x": bound.inputs["x"].unpack()})


def _staged_from_batch_0() -> tuple[BoundCase, np.ndarray]:
    bound = bind(Case("int8x4_to_nchw", {}, {"x": ((3, 5, 3, 8), "4W4C")}, "4W", seed=4))
    x = bound.inputs["x"].unpack()
    return bound, np.stack([x[0]] * 3).reshape(1, 1, 1, -1)


def _taps_down_the_columns() -> tuple[BoundCase, np.ndarray]:
    """Weights (KH, KW) read as (KW, KH)."""
    weight = np.asarray(GROUPED.call.consts["weight"])
    read = np.zeros_like(weight)
    for i, j in np.ndindex(2, 3):
        read[:, (i * 3 + j) * 8 :][:, :8] = weight[:, (j * 2 + i) * 8 :][:, :8]
    wrong = replace(GROUPED.call, consts={**GROUPED.call.consts, "weight": read})
    return GROUPED, wrong.define({"x": GROUPED.inputs["x"].unpack()})


def _raised(x_by: int, w_by: int) -> tuple[BoundCase, np.ndarray]:
    """Unsigned sums that keep what made the bytes unsigned."""
    p, consts = LINEAR.call.params, LINEAR.call.consts
    x = LINEAR.inputs["x"].unpack().astype(np.int64) + x_by
    acc = x @ (np.asarray(consts["weight"]).astype(np.int64) + w_by).T
    t = (acc - p.in_zp * np.asarray(consts["weight_sums"])).astype(F)
    q = np.rint(t * (np.asarray(consts["weight_scales"]) * F(p.in_scale)) * (F(1) / F(p.out_scale)))
    return LINEAR, (np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)[None, None]


def _constants_of_the_first_word(name: str) -> tuple[BoundCase, np.ndarray]:
    first = np.asarray(LINEAR.call.consts[name])[:4]
    wrong = replace(LINEAR.call, consts={**LINEAR.call.consts, name: np.tile(first, 4)[:14]})
    return LINEAR, wrong.define({"x": LINEAR.inputs["x"].unpack()})[None, None]


#: (cause, what its detail holds, the bug)
ROWS = (
    ("group ignored", "of the first", lambda: _finished(GROUPED, _sums(GROUPED, first_group=True))),
    ("sums not reset", "through 4 columns", _carried),
    ("sums of 16 bits", "saturate", _narrow(lambda acc: acc.clip(-32768, 32767))),
    ("sums of 16 bits", "wrap", _narrow(lambda acc: acc.astype(np.int16).astype(np.int64))),
    (
        "sums of 16 bits",
        "half precision",
        _narrow(_half),
    ),
    (
        "stride or dilation",
        "between the strides",
        lambda: _finished(TRANSPOSED, _sums(TRANSPOSED, phases=False)),
    ),
    ("padding offset", "the other sign", lambda: _finished(TRANSPOSED, _sums(TRANSPOSED, sign=-1))),
    ("padding offset", "the other sign", lambda: _finished(GROUPED, _sums(GROUPED, sign=-1))),
    ("weights in another order", "x and y exchanged", _texels_exchanged),
    ("weights in another order", "down the columns", _taps_down_the_columns),
    ("another layout's strides", "layout words of x", _layout_words_exchanged),
    ("C and another dim exchanged", "slowest part of the channels", _pixels_slowest),
    ("another tensor's quantization", "in_zp taken from out", _zero_point_of_the_output),
    ("batch ignored", "read from batch 0", _staged_from_batch_0),
    ("unsigned lanes", "makes x unsigned", lambda: _raised(128, 0)),
    ("unsigned lanes", "makes weights unsigned", lambda: _raised(0, 128)),
    (
        "channel constants misplaced",
        "weight_sums of the first word",
        lambda: _constants_of_the_first_word("weight_sums"),
    ),
)

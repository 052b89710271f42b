"""Bugs of a window over channels of their own: what it adds up, what it reads and where, apart from refsim.bytediff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case

F = np.float32
Made = tuple[BoundCase, Any]
SCALES = {"in_scale": 0.02, "in_zp": 5, "out_scale": 0.9, "out_zp": -7}
WINDOW = {
    **SCALES,
    "kernel_size": (2, 3),
    "stride": (1, 1),
    "padding": (1, 1),
    "dilation": (1, 1),
    "groups": 8,
}
DEPTHWISE = bind(Case("q8ta_conv2d_dw", WINDOW, {"x": ((2, 8, 12, 11), "4W4C")}, "4W4C", seed=3))
STRIDED = bind(
    Case("q8ta_conv2d_dw", {**WINDOW, "stride": (2, 2)}, {"x": ((1, 8, 14, 13), "4W4C")}, "4W4C", seed=4)
)

POINTWISE = bind(
    Case(
        "q8ta_conv2d_pw",
        {**WINDOW, "kernel_size": (1, 1), "padding": (0, 0), "groups": 1},
        {"x": ((2, 8, 9, 11), "4W4C")},
        "4W4C",
        seed=6,
        features={"out_channels": 8},
    )
)


def made(
    bound: BoundCase,
    at: Callable[[np.ndarray, int, int, int, int], np.ndarray | None],
    weight: Callable[[np.ndarray, int, int, int], np.ndarray] = lambda held, i, j, column: held[i, j],
    border: int | None = None,
) -> Made:
    """``at(x, n, row, column, ...)``: the channels of x there, None outside; ``weight``: those of a tap."""
    p, consts, x = bound.call.params, bound.call.consts, bound.inputs["x"].unpack().astype(np.int64)
    held = np.asarray(consts["weight"]).astype(np.int64)
    images, channels, height, width = bound.call.out.shape
    acc = np.zeros((images, channels, height, width), np.int64)
    for n, row, column in np.ndindex(images, height, width):
        for i, j in np.ndindex(*p.kernel_size):
            ih, iw = row * p.stride[0] - p.padding[0] + i, column * p.stride[1] - p.padding[1] + j
            read = at(x, n, ih, iw, column)
            values = p.in_zp if border is None else border
            acc[n, :, row, column] += (values if read is None else read) * weight(held, i, j, column)
    wsum, scale = (np.asarray(consts[name])[:, None, None] for name in ("weight_sums", "weight_scales"))
    t = (acc - p.in_zp * wsum).astype(F) * (scale * F(p.in_scale))
    if consts["bias"] is not None:
        t = t + np.asarray(consts["bias"])[:, None, None]
    q = np.rint(t * (F(1) / F(p.out_scale)))
    return bound, (np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)


def inside(x: np.ndarray, n: int, row: int, column: int, _: int = 0) -> np.ndarray | None:
    found = 0 <= row < x.shape[2] and 0 <= column < x.shape[3]
    return x[n, :, row, column] if found else None


def _taps_shuffled() -> Made:
    """Three taps have each other's weights, in no order that a rule gives."""
    order = {(0, 0): (1, 1), (1, 1): (0, 2), (0, 2): (0, 0)}
    return made(DEPTHWISE, inside, lambda held, i, j, column: held[order.get((i, j), (i, j))])


def _in_even_columns() -> Made:
    """The last tap of a row counts in even columns alone."""
    return made(DEPTHWISE, inside, lambda held, i, j, column: held[i, j] * (j != 2 or column % 2 == 0))


def _sign_flipped(border: bool) -> Made:
    def at(x: np.ndarray, n: int, row: int, column: int, _: int) -> np.ndarray | None:
        read = inside(x, n, row, column)
        return None if read is None else np.where(read < 0, read + 128, read - 128)

    return made(DEPTHWISE, at, border=5 - 128 if border else None)


def _strides_of_the_output() -> Made:
    """Words of x at strides of the output: blocks of 4 x 4 columns and channels, rows, images."""
    x, out = STRIDED.inputs["x"], STRIDED.call.out
    blocks = -(-out.shape[3] // 4)

    def at(_: np.ndarray, n: int, row: int, column: int, __: int) -> np.ndarray | None:
        if not (0 <= row < 14 and 0 <= column < 13):
            return None
        c = np.arange(8)
        # 4W4C: channel blocks fastest, then blocks of columns, then rows
        place = ((row * blocks + column // 4) * 2 + c // 4) * 16 + column % 4 * 4 + c % 4
        known = place < len(x.data)
        return np.where(known, x.data[np.where(known, place, 0)].astype(np.int64), 0)

    return made(STRIDED, at)


def _ends_as_the_output() -> Made:
    _, _, height, width = STRIDED.call.out.shape

    def at(x: np.ndarray, n: int, row: int, column: int, _: int) -> np.ndarray | None:
        return inside(x, n, row, column) if row < height and column < width else None

    return made(STRIDED, at)


def _neighbours_added() -> Made:
    """A pointwise convolution that counts the next column, too; behind the last one there is the zero point."""
    p, consts, x = (
        POINTWISE.call.params,
        POINTWISE.call.consts,
        POINTWISE.inputs["x"].unpack().astype(np.int64),
    )
    beside = np.concatenate([x[..., 1:], np.full_like(x[..., :1], p.in_zp)], 3)
    weight = np.asarray(consts["weight"]).astype(np.int64)[:, :8]
    wsum, scale = (np.asarray(consts[name])[:, None, None] for name in ("weight_sums", "weight_scales"))
    t = (np.einsum("oc,nchw->nohw", weight, x + beside) - p.in_zp * wsum).astype(F) * (scale * F(p.in_scale))
    q = np.rint(t * (F(1) / F(p.out_scale)))
    return POINTWISE, (np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)


ROWS = (
    ("products miscounted", "the input of tap (0, 1) by the weights of tap (0, 0)", _neighbours_added),
    ("products miscounted", "tap (1, 1) counted once more", _taps_shuffled),
    ("products miscounted", "counted once less", _in_even_columns),
    ("unsigned lanes", "x read with its sign bit flipped", lambda: _sign_flipped(False)),
    ("unsigned lanes", "x and its border read with the sign bit flipped", lambda: _sign_flipped(True)),
    ("another layout's strides", "x read with the strides of the output", _strides_of_the_output),
    ("edge of the input", "as the output does", _ends_as_the_output),
)

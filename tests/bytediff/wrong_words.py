"""Words put together or taken apart wrongly, and lanes that come from a neighbour: plain loops with one bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wrong_sums import LINEAR

from refsim.core.buffer import PackedBuffer
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case

Made = tuple[BoundCase, Any]


def _relu() -> BoundCase:
    params = {"in_scale": 0.05, "in_zp": 3, "out_scale": 0.04, "out_zp": -9}
    return bind(Case("q8ta_relu", params, {"x": ((1, 8, 5, 6), "4C1W")}, "4C1W", 11))


def _words_of(put: Callable[[list[int]], int]) -> Made:
    """The right bytes of each word, put together again by ``put``."""
    bound = _relu()
    out = PackedBuffer(bound.call.out)
    right = bound.call.expected(bound.inputs)
    for at, four in enumerate(right.data.reshape(-1, 4)):
        word = put([int(q) for q in four]) & 0xFFFFFFFF
        out.words[at] = word - (word >> 31 << 32)
    return bound, out


def _four_bits_apart(four: list[int]) -> int:
    return (four[0] & 255) | (four[1] & 255) << 4 | (four[2] & 255) << 8 | (four[3] & 255) << 12


def _as_digits(four: list[int]) -> int:
    """Added up as digits; the second is moved by 7 bits. Each has the bits of a float, and 9 too little."""
    low = [0x4B400000 + q + 9 for q in four]
    total = low[0] + (low[1] + (low[2] + (low[3] << 8) << 7) << 8)
    return total - (0x4B400000 + 9 - 128) * 0x01010101 ^ 0x80808080


def _lanes_of_seven() -> Made:
    """Lane k read from bit 7 k."""
    inputs = {"x": ((1, 8, 5, 6), "4C1W")}
    bound = bind(Case("q8ta_dequantize", {"scale": 0.5, "zp": 2}, inputs, "CHANNELS_PACKED", 4))
    x = bound.inputs["x"]
    read = PackedBuffer(x.desc)
    for at, word in enumerate(x.words):
        for k in range(4):
            byte = (int(word) >> 7 * k) & 255
            read.data[4 * at + k] = byte - (byte >> 7 << 8)
    values = [np.float32((int(q) - 2) * 0.5) for q in read.unpack().reshape(-1)]
    return bound, np.array(values, np.float32).reshape(1, 8, 5, 6)


def _odd_columns() -> Made:
    """In odd columns the first of each two rows holds what stands in the second."""
    bound = bind(Case("q8ta_clone", {}, {"x": ((1, 8, 6, 6), "4C1W")}, "4C1W", 2, style="random"))
    values = bound.inputs["x"].unpack().copy()
    values[..., ::2, 1::2] = values[..., 1::2, 1::2]
    return bound, values


def _numbers_by(heights: int) -> Made:
    """NCHW bytes of a packed tensor whose rows are counted in planes of another height."""
    bound = bind(Case("int8x4_to_nchw", {}, {"x": ((2, 6, 5, 7), "4W4C")}, "4W", 3, style="random"))
    x = bound.inputs["x"].unpack()
    made = np.zeros(420, np.int8)
    for number in range(420):
        row = number // 7
        plane = row // 5
        made[number] = x[plane // 6, plane % 6, row % heights, number % 7]
    return bound, made.reshape(1, 1, 1, 420)


def _turned_pixels() -> Made:
    """Pixels shuffled by 2, with the columns of a pixel turned."""
    params = {"in_scale": 0.5, "in_zp": 1, "out_inv_scale": 2.0, "out_zp": 1, "upscale": 2}
    bound = bind(
        Case("q8ta_pixel_shuffle", params, {"x": ((1, 16, 4, 5), "4C1W")}, "4C1W", 3, style="random")
    )
    x = bound.inputs["x"].unpack()
    made = bound.call.expected(bound.inputs).unpack().copy()
    for c, h, w in np.ndindex(*made.shape[1:]):
        made[0, c, h, w] = x[0, (c * 2 + h % 2) * 2 + (1 - w % 2), h // 2, w // 2]
    return bound, made


def _lanes_mixed_up() -> Made:
    """Bytes of a packed tensor from NCHW bytes, the lane by place % 2."""
    params = {"shape": (2, 6, 5, 7)}
    bound = bind(Case("nchw_to_int8x4", params, {"x": ((420,), "4W")}, "4W4C", 3, style="random"))
    x = bound.inputs["x"].unpack()
    made = np.array([x[place // 4 * 4 + place % 2] for place in range(420)], np.int8)
    return bound, made.reshape(2, 6, 5, 7)


def _scales_bound_as_sums() -> Made:
    """The words of the weight scales read as weight sums."""
    p, consts = LINEAR.call.params, LINEAR.call.consts
    scales = np.asarray(consts["weight_scales"])
    acc = LINEAR.inputs["x"].unpack().astype(np.int64) @ np.asarray(consts["weight"]).T.astype(np.int64)
    held = acc - p.in_zp * scales.view(np.int32).astype(np.int64)
    t = ((held + 2**31) % 2**32 - 2**31).astype(np.float32) * (scales * np.float32(p.in_scale))
    q = np.rint(t * (np.float32(1) / np.float32(p.out_scale)))
    return LINEAR, (np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)[None, None]


ROWS: tuple[tuple[str, str, Callable[[], Made]], ...] = (
    ("words put together wrongly", "lanes 4 bits apart", lambda: _words_of(_four_bits_apart)),
    (
        "words put together wrongly",
        "the bytes behind the second moved by 7 bits",
        lambda: _words_of(_as_digits),
    ),
    ("words put together wrongly", "lanes of x read 7 bits apart", _lanes_of_seven),
    ("one coordinate for another", "H: the coordinate by 1 instead of H", lambda: _numbers_by(1)),
    ("one coordinate for another", "x within the pixel: turned", _turned_pixels),
    ("one coordinate for another", "lane place % 2 instead of place % 4", _lanes_mixed_up),
    (
        "channel constants misplaced",
        "weight_sums read from the words of weight_scales",
        _scales_bound_as_sums,
    ),
    ("values moved", "where w % 2 is 1 and h % 2 is 0: those of h +1", _odd_columns),
)

"""Places outside of a buffer, words at its ends, tiles and rows in another order: plain loops with one bug each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from wrong_sums import LINEAR, SQUARE, TRANSPOSED

from refsim.core.buffer import GUARD, PackedBuffer
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case

Made = tuple[BoundCase, Any]
F = np.float32

DEQUANTIZE = bind(
    Case("q8ta_dequantize", {"scale": 0.5, "zp": 2}, {"x": ((1, 8, 5, 6), "4C1W")}, "CHANNELS_PACKED", 4)
)
QUANTIZE = bind(
    Case("q8ta_quantize", {"scale": 0.5, "zp": 3}, {"x": ((1, 8, 5, 6), "WIDTH_PACKED")}, "4W", 4)
)
CLONE = bind(Case("q8ta_clone", {}, {"x": ((1, 8, 8, 12), "4C")}, "4W", 6, style="random"))
QUANTIZED = bind(
    Case(
        "linear_q8ta_q8csw", dict(in_scale=0.02, in_zp=5), {"x": ((2, 8, 16), "WIDTH_PACKED")}, "WIDTH_PACKED",
        seed=3, features={"out_channels": 12, "bias": True},
    )
)  # fmt: skip
ROWWISE = bind(
    Case("q8ta_linear", dict(in_scale=0.5, in_zp=11, out_scale=8.0, out_zp=-9), {"x": ((27, 40), "4H4W")}, "4H4W",
         seed=9, features={"out_channels": 14})
)  # fmt: skip
GEMV = bind(
    Case(
        "q8ta_linear_gemv", dict(in_scale=0.5, in_zp=11, out_scale=1.0, out_zp=-9), {"x": ((1, 40), "4W")}, "4W",
        seed=7, features={"out_channels": 32},
    )
)  # fmt: skip


def _numbers(place: Callable[[int, tuple[int, ...]], Sequence[int]]) -> Made:
    """NCHW bytes of a packed tensor, each from the coordinates (w, h, c, n) that ``place`` gives, wherever that is."""
    bound = bind(Case("int8x4_to_nchw", {}, {"x": ((2, 6, 5, 8), "4W")}, "4W", 3, style="random"))
    x = bound.inputs["x"]
    noise = np.random.default_rng(8).integers(-128, 128, 480)
    made = np.zeros(480, np.int8)
    for number in range(480):
        w, h, c, n = place(number, x.desc.shape)
        at = ((n * 6 + c) * 5 + h) * 8 + w
        made[number] = x.data[at] if 0 <= at < 480 else noise[number]
    return bound, made.reshape(1, 1, 1, 480)


def _rows_multiplied(number: int, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    row = number // 8
    return number % 8, row % 5, row * 5 % 6, row * 5 // 6


def _planes_left(number: int, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    plane = number // 40
    return number % 8, number // 8 % 5, plane % 6, plane * 6


def _unwritten(bound: BoundCase, part: slice) -> Made:
    out = bound.call.expected(bound.inputs)
    fresh = PackedBuffer(out.desc)
    fresh.raw[:] = out.raw
    fresh.words[part] = 0
    return bound, fresh


def _square(bound: BoundCase, x: bool, lanes: Sequence[int]) -> Made:
    """Sums in which some lanes of x, or of the weights, are multiplied by themselves."""
    p, q = bound.call.params, bound.inputs["x"].unpack().astype(np.int64)
    weight = np.asarray(bound.call.consts["weight"]).astype(np.int64)
    acc = np.zeros(bound.call.out.shape, np.int64)
    if bound is LINEAR:
        for row, n, k in np.ndindex(*acc.shape, q.shape[1]):
            a, b = int(q[row, k]), int(weight[n, k])
            acc[row, n] += (a * a if x else b * b) if k % 4 in lanes else a * b
    else:
        _, channels, height, width = q.shape
        for oc, oh, ow in np.ndindex(acc.shape[1:]):
            for i, j in np.ndindex(p.kernel_size):
                h, w = oh * p.stride[0] - p.padding[0] + i, ow * p.stride[1] - p.padding[1] + j
                taps = weight[oc].reshape(*p.kernel_size, channels)[i, j]
                for k in range(channels):
                    a = int(q[0, k, h, w]) if 0 <= h < height and 0 <= w < width else p.in_zp
                    b = int(taps[k])
                    acc[0, oc, oh, ow] += (a * a if x else b * b) if k % 4 in lanes else a * b
    return bound, _finished(bound, acc)


def _finished(bound: BoundCase, acc: np.ndarray) -> np.ndarray:
    p, consts = bound.call.params, bound.call.consts
    spread = (-1, 1, 1) if acc.ndim == 4 else (-1,)
    sums, scales = (np.asarray(consts[name]).reshape(spread) for name in ("weight_sums", "weight_scales"))
    held = acc - p.in_zp * sums.astype(np.int64)
    t = held.astype(F) * (scales * F(p.in_scale))
    if consts["bias"] is not None:
        t = t + np.asarray(consts["bias"]).reshape(spread)
    q = np.rint(t * (F(1) / F(p.out_scale)))
    made = (np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)
    return made.reshape((1, 1, 1, *made.shape)[-4:])


def _turned_tiles(order: Callable[[int, int, int], tuple[int, int, int]]) -> Made:
    x = CLONE.inputs["x"].unpack()
    made = np.zeros_like(x)
    for c, h, w in np.ndindex(x.shape[1:]):
        a, b, d = order(c % 4, h % 4, w % 4)
        made[0, c, h, w] = x[0, c - c % 4 + a, h - h % 4 + b, w - w % 4 + d]
    return CLONE, made


def _fed(source: Callable[[int, int], tuple[int, int]]) -> Made:
    """A linear that quantizes its rows first, each element of them from another place."""
    x = QUANTIZED.inputs["x"].unpack()
    flat, moved = x.reshape(-1), np.zeros_like(x.reshape(16, 16))
    for row, k in np.ndindex(16, 16):
        r, c = source(row, k)
        at = r * 16 + c
        moved[row, k] = flat[at] if 0 <= at < flat.size else 0
    packed = PackedBuffer.pack(moved.reshape(x.shape), QUANTIZED.inputs["x"].desc.layout)
    return QUANTIZED, QUANTIZED.call.expected({"x": packed}).unpack()[None]


def _converted(large: int, small: int, nan: int) -> Made:
    """Values that no int32 holds as other bytes."""
    x = np.random.default_rng(2).uniform(-70, 70, (1, 8, 5, 6)).astype(F)
    x.reshape(-1)[::7], x.reshape(-1)[3::9], x.reshape(-1)[5::11] = 3e9, -3e9, np.nan
    bound = BoundCase(
        QUANTIZE.case, QUANTIZE.call, {"x": PackedBuffer.pack(x, QUANTIZE.inputs["x"].desc.layout)}
    )
    right = bound.call.expected(bound.inputs).unpack()
    y = x / F(0.5)
    return bound, np.select([y > 2**31, y < -(2**31), y != y], [large, small, nan], right).astype(np.int8)


def _rows_of_more_words() -> Made:
    """Words of a transposed convolution's weights [tap][word][output] in rows of 10, not 8; behind them its sums."""
    words = TRANSPOSED.call.op.prepack(
        TRANSPOSED.call, "weight", np.asarray(TRANSPOSED.call.consts["weight"])
    )
    held = np.concatenate([words, np.full(64, GUARD, np.int32)])
    taps = np.zeros(2 * 3 * 2 * 8, np.int32)
    for row, output in np.ndindex(12, 8):
        taps[row * 8 + output] = held[row * 10 + output]
    blocks = taps.view(np.int8).reshape(6, 2, 8, 4).transpose(2, 0, 1, 3)
    weight = np.ascontiguousarray(blocks).reshape(np.asarray(TRANSPOSED.call.consts["weight"]).shape)
    call = replace(TRANSPOSED.call, consts={**TRANSPOSED.call.consts, "weight": weight})
    return TRANSPOSED, call.expected(TRANSPOSED.inputs).unpack()


def _tiled(quad: Callable[[int], int], within: Callable[[int], int]) -> Made:
    """Rows of a linear kept in a tile of 32 rows x 8 words, by 64 invocations of which eight run together.

    Those are the workgroups of 8 x 8 that each compute four rows. The right place is quad m // 4, m % 4 within.
    """
    bound = ROWWISE
    x = bound.inputs["x"].unpack().reshape(-1, 40)
    read = np.zeros_like(x)
    tile: dict[tuple[int, int, int], np.ndarray] = {}
    for k0 in (0, 8):
        for group in range(8):
            for slot in range(4):
                for thread in range(8 * group, 8 * group + 8):
                    m, k = thread % 4 + thread // 32 * 4 + 8 * slot, k0 + thread // 4 % 8
                    word = x[min(m, len(x) - 1), 4 * k : 4 * k + 4] if k < 10 else np.zeros(4, np.int8)
                    tile[(thread // 4 % 8, quad(m), within(m))] = word
        for m in range(len(x)):
            for k in range(k0, min(k0 + 8, 10)):
                read[m, 4 * k : 4 * k + 4] = tile.get((k % 8, m // 4, m % 4), np.zeros(4, np.int8))
    packed = PackedBuffer.pack(read.reshape(bound.inputs["x"].desc.shape), bound.inputs["x"].desc.layout)
    made = bound.call.expected({"x": packed}).unpack()
    return bound, made.reshape((1, 1, 1, *made.shape)[-4:])


def _lengths_added() -> Made:
    """Weights [word of K][output] in vectors of four outputs; vector k of a row at k + 8, not k * 8."""
    weight, x = np.asarray(GEMV.call.consts["weight"]), GEMV.inputs["x"].unpack()
    rows = weight.reshape(32, 10, 4).transpose(1, 0, 2).reshape(-1, 4, 4)  # vector, output of it, lane
    acc = np.zeros((1, 32), np.int64)
    for k, n in np.ndindex(10, 32):
        four = rows[k + 8 + n // 4][n % 4].astype(np.int64)
        acc[0, n] += int(four @ x.reshape(10, 4)[k].astype(np.int64))
    return GEMV, _finished(GEMV, acc)


ROWS: tuple[tuple[str, str, Callable[[], Made]], ...] = (
    ("one coordinate for another", "H: what is left by * instead of //", lambda: _numbers(_rows_multiplied)),
    ("one coordinate for another", "C: what is left by * instead of //", lambda: _numbers(_planes_left)),
    ("only a part is written", "the first word holds 0x00", lambda: _unwritten(DEQUANTIZE, slice(1))),
    ("only a part is written", "the last word holds 0x00", lambda: _unwritten(QUANTIZE, slice(-1, None))),
    ("products miscounted", "all lanes of x multiplied by themselves", lambda: _square(LINEAR, True, range(4))),
    ("products miscounted", "lane 2 of the weights multiplied by themselves", lambda: _square(SQUARE, False, (2,))),
    ("products miscounted", "lane 1 of x multiplied by themselves", lambda: _square(SQUARE, True, (1,))),
    ("one coordinate for another", "each tile of 4 x 4 x 4 has", lambda: _turned_tiles(lambda c, h, w: (h, c, w))),
    ("one coordinate for another", "each tile of 4 x 4 x 4 has", lambda: _turned_tiles(lambda c, h, w: (w, c, h))),
    ("rows read at another stride", "numbers of a block: taken away",
     lambda: _fed(lambda row, k: (row, k - 2 * (k % 4)))),
    ("rows read at another stride", "the rows of each four backwards",
     lambda: _fed(lambda row, k: (row + 3 - 2 * (row % 4), k))),
    ("rows read at another stride", "the first row of each four for all",
     lambda: _fed(lambda row, k: (row - row % 4, k))),
    ("rows read at another stride", "the row and the length of rows added",
     lambda: _fed(lambda row, k: (0, row + 16 + k))),
    ("rows read at another stride", "not at 4 times the block", lambda: _fed(lambda row, k: (0, row * 4 + 4 + k))),
    ("rows read at another stride", "the place of row m in it: m % 2",
     lambda: _tiled(lambda m: m // 4, lambda m: m % 2)),
    ("rows read at another stride", "the vector of row m: m // 5", lambda: _tiled(lambda m: m // 5, lambda m: m % 4)),
    ("conversion out of range", "too large becomes 3, NaN becomes -128", lambda: _converted(3, -128, -128)),
    ("conversion out of range", "too small becomes 127", lambda: _converted(127, 127, 3)),
    ("weights read at another stride", "rows of 10 words instead of 8", _rows_of_more_words),
    ("weights read at another stride", "the number of a row and the length of rows added", _lengths_added),
)  # fmt: skip

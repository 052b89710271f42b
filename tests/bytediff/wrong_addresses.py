"""Places outside of a buffer, words at its ends, tiles and rows in another order: plain loops with one bug each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from wrong_sums import LINEAR, SQUARE

from refsim.core.buffer import PackedBuffer
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
GEMV = bind(
    Case(
        "q8ta_linear_gemv", dict(in_scale=0.5, in_zp=11, out_scale=1.0, out_zp=-9), {"x": ((1, 40), "4W")}, "4W",
        seed=7, features={"out_channels": 32},
    )
)  # fmt: skip


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


ROWS: tuple[tuple[str, str, Callable[[], Made]], ...] = (
    ("only a part is written", "the first word holds 0x00", lambda: _unwritten(DEQUANTIZE, slice(1))),
    ("only a part is written", "the last word holds 0x00", lambda: _unwritten(QUANTIZE, slice(-1, None))),
    ("products miscounted", "all lanes of x multiplied by themselves", lambda: _square(LINEAR, True, range(4))),
    ("products miscounted", "lane 2 of the weights multiplied by themselves", lambda: _square(SQUARE, False, (2,))),
    ("products miscounted", "lane 1 of x multiplied by themselves", lambda: _square(SQUARE, True, (1,))),
    ("conversion out of range", "too large becomes 3, NaN becomes -128", lambda: _converted(3, -128, -128)),
    ("conversion out of range", "too small becomes 127", lambda: _converted(127, 127, 3)),
)  # fmt: skip

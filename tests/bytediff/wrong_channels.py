"""Bugs in channels, lanes, steps and words that follow no known rule, written apart from refsim.bytediff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wrong_sums import GROUPED, LINEAR

from refsim.core.buffer import PackedBuffer
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case

F = np.float32
#: The channel whose constants or weights each channel takes: by no rule, but no channel its own.
OTHERS = np.array([3, 6, 4, 7, 0, 2, 1, 5])

Made = tuple[BoundCase, Any]


def _linear(acc: np.ndarray, scale: Callable[[np.ndarray, F], np.ndarray] = np.multiply) -> Made:
    """A linear layer of these sums."""
    p, consts = LINEAR.call.params, LINEAR.call.consts
    t = (acc - p.in_zp * np.asarray(consts["weight_sums"])).astype(F)
    t = t * scale(np.asarray(consts["weight_scales"]), F(p.in_scale))
    q = np.rint(t * (F(1) / F(p.out_scale)))
    return LINEAR, (np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)[None, None]


def _products(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = x.astype(np.int64) @ np.asarray(LINEAR.call.consts["weight"]).T.astype(np.int64)
    return found


def _lanes() -> Made:
    x = LINEAR.inputs["x"].unpack().reshape(6, 10, 4)
    return _linear(_products(x[..., [0, 2, 1, 3]].reshape(6, 40)))


def _by_unsigned_bytes(weight: np.ndarray) -> Made:
    """These weights where 128 is added to each input, and taken out again by what the right weights add up to."""
    x, own = (
        LINEAR.inputs["x"].unpack().astype(np.int64),
        np.asarray(LINEAR.call.consts["weight"]).astype(np.int64),
    )
    return _linear((x + 128) @ weight.T.astype(np.int64) - 128 * own.sum(1))


def _panels() -> Made:
    """Panels of two vectors of 8 channels, laid out lane by lane; beyond the last of 14 channels there are zeros."""
    held = np.zeros((16, 40), np.int8)
    held[:14] = np.asarray(LINEAR.call.consts["weight"])
    return _by_unsigned_bytes(held.reshape(2, 8, 40).swapaxes(0, 1).reshape(16, 40)[:14])


def _next_output() -> Made:
    held = np.asarray(LINEAR.call.consts["weight"])
    return _by_unsigned_bytes(np.concatenate([held[1:], 0 * held[:1]]))


def _lane_twice() -> Made:
    return _by_unsigned_bytes(np.asarray(LINEAR.call.consts["weight"]) * np.tile([2, 1, 1, 1], 10))


def _scales_added() -> Made:
    return _linear(_products(LINEAR.inputs["x"].unpack()), np.add)


def _convolution(rows: np.ndarray | None = None, consts: np.ndarray | None = None, more: int = 0) -> Made:
    """A grouped convolution with the weights of other rows, the scales of others, or sums that are off."""
    call, own = GROUPED.call, np.arange(8)
    held = {name: np.asarray(value) for name, value in call.consts.items()}
    real = np.zeros(call.out.shape)
    for o in own:
        channels = np.arange(8) + 8 * ((o if rows is None else rows[o]) // 4)
        image = GROUPED.inputs["x"].unpack()[:, channels].astype(np.int64)
        weight = held["weight"][o if rows is None else rows[o]].reshape(2, 3, 8).astype(np.int64)
        _, _, height, width = image.shape
        for n, h, w in np.ndindex(real.shape[0], *real.shape[2:]):
            acc = more * (o % 3)
            for i, j in np.ndindex(2, 3):
                y, x = h * 2 - 1 + i, w * 3 - 2 + j
                inside = 0 <= y < height and 0 <= x < width
                acc += int(((image[n, :, y, x] if inside else 11) * weight[i, j]).sum())
            t = F(acc) - F(held["weight_sums"][o]) * F(11)
            scale = held["weight_scales"][o if consts is None else consts[o]]
            real[n, o, h, w] = F(t * (scale * F(0.5))) + held["bias"][o]
    return GROUPED, (np.clip(np.rint(real.astype(F)), -119, 136) - 9).astype(np.int8)


def _clone(style: str) -> BoundCase:
    return bind(Case("q8ta_clone", {}, {"x": ((2, 16, 8, 9), "4W4C")}, "4W4C", seed=4, style=style))


def _words_shuffled() -> Made:
    bound = _clone("random")
    out = PackedBuffer.from_raw(bound.inputs["x"].raw, bound.call.out.shape, bound.call.out.layout)
    at = np.flatnonzero((out.kinds() == 0).reshape(-1, 4).all(axis=1))
    out.words[at] = out.words[np.random.default_rng(7).permutation(at)]
    return bound, out


def _short_lines() -> Made:
    """Of each row of 9 the first 4, as if rows had no more: the fifth begins the next row."""
    bound = _clone("position")
    flat = bound.inputs["x"].unpack().reshape(-1)
    made = np.zeros((256, 9), np.int8)
    for row in range(256):
        made[row, :4] = flat[4 * row : 4 * row + 4]
    return bound, made.reshape(2, 16, 8, 9)


def _range_left_out() -> Made:
    bound = _clone("random")
    values = bound.inputs["x"].unpack().copy()
    values[:, 3:11, :, 2:] = 0x5A
    return bound, values


def _exchanged_values() -> Made:
    bound = _clone("random")
    x = bound.inputs["x"].unpack()
    return bound, np.where(x >= 0, x ^ 5, x)


ROWS: tuple[tuple[str, str, Callable[[], Made]], ...] = (
    ("lanes exchanged", "x read with lanes 1 and 2 exchanged", _lanes),
    ("another operation", "the two scales: + instead of *", _scales_added),
    ("constants of other channels", "weight_scales", lambda: _convolution(consts=OTHERS)),
    ("weights of other channels", "0 has those of 3", lambda: _convolution(rows=OTHERS)),
    ("weights of other channels", "none, in 1 of 14 channels; 1 has those of 8", _panels),
    ("weights read at another stride", "words +1 away of unsigned bytes", _next_output),
    ("products miscounted", "as unsigned bytes, lane 0 counted once more", _lane_twice),
    ("sums off by a constant", "each channel", lambda: _convolution(more=500)),
    ("words of other places", "and so on", _words_shuffled),
    ("words of other places", "lines of 9 elements counted as 4, 0 beyond", _short_lines),
    (
        "only a part is written",
        "where c is 3 to 10 and w is 2 to 8, every element is the same",
        _range_left_out,
    ),
    ("wrong after the value was right", "came out as others", _exchanged_values),
)

"""Bugs in channels, lanes, steps and words that follow no known rule, written apart from refsim.bytediff."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from wrong_sums import LINEAR

from refsim.core.buffer import PackedBuffer
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case

F = np.float32
Made = tuple[BoundCase, Any]


def _linear(acc: np.ndarray, scale: Callable[[np.ndarray, F], np.ndarray] = np.multiply) -> Made:
    """A linear layer of these sums."""
    p, consts = LINEAR.call.params, LINEAR.call.consts
    t = (acc - p.in_zp * np.asarray(consts["weight_sums"])).astype(F)
    t = t * scale(np.asarray(consts["weight_scales"]), F(p.in_scale))
    q = np.rint(t * (F(1) / F(p.out_scale)))
    return LINEAR, (np.clip(q, -128 - p.out_zp, 127 - p.out_zp) + p.out_zp).astype(np.int8)[None, None]


def _by_unsigned_bytes(weight: np.ndarray) -> Made:
    """These weights where 128 is added to each input, and taken out again by what the right weights add up to."""
    x, own = (
        LINEAR.inputs["x"].unpack().astype(np.int64),
        np.asarray(LINEAR.call.consts["weight"]).astype(np.int64),
    )
    return _linear((x + 128) @ weight.T.astype(np.int64) - 128 * own.sum(1))


def _lane_twice() -> Made:
    return _by_unsigned_bytes(np.asarray(LINEAR.call.consts["weight"]) * np.tile([2, 1, 1, 1], 10))


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
    ("products miscounted", "as unsigned bytes, lane 0 counted once more", _lane_twice),
    ("words of other places", "and so on", _words_shuffled),
    ("words of other places", "lines of 9 elements counted as 4, 0 beyond", _short_lines),
    (
        "only a part is written",
        "where c is 3 to 10 and w is 2 to 8, every element is the same",
        _range_left_out,
    ),
    ("wrong after the value was right", "came out as others", _exchanged_values),
)

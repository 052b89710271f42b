"""Floats that become bytes in another way: other bounds, another rounding or step, other bytes of a word."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

F = np.float32
_MOST = float(1 << 30)  # beyond any byte, within int32


def whole(y: np.ndarray) -> np.ndarray:
    """float64: steps, rounded to nearest even; what is no number is 0."""
    with np.errstate(all="ignore"):
        return np.clip(np.nan_to_num(np.rint(y.astype(np.float64)), nan=0.0), -_MOST, _MOST)


def clamped(steps: np.ndarray, zp: np.ndarray, low: int = -128, high: int = 127) -> np.ndarray:
    """int64: whole steps and the zero point, kept between two bounds."""
    found: np.ndarray = np.clip(steps + zp, low, high).astype(np.int64)
    return found


def bounded(x: np.ndarray, inv: np.ndarray, zp: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(what is wrong, the bytes) with other bounds, which are those of the steps before the zero point is added."""
    with np.errstate(all="ignore"):
        steps = whole(x * inv)
    zp = zp.astype(np.int64)
    lows = {"-64": -64, "-127": -127, "-129": -129, "-256": -256, "0": 0, "128": 128}
    highs = {"63": 63, "126": 126, "128": 128, "254": 254, "0": 0, "-127": -127}
    bounds = {f"at least {what}": (low - zp, 127 - zp) for what, low in lows.items()}
    bounds |= {f"at most {what}": (-128 - zp, high - zp) for what, high in highs.items()}
    bounds |= {
        "the lower bound moved by the zero point the wrong way": (-128 + zp, 127 - zp),
        "the upper bound moved by the zero point the wrong way": (-128 - zp, 127 + zp),
        "both bounds moved by the zero point the wrong way": (-128 + zp, 127 + zp),
        "the lower bound not moved by the zero point": (-128 + 0 * zp, 127 - zp),
        "the upper bound not moved by the zero point": (-128 - zp, 127 + 0 * zp),
        "bounds not moved by the zero point": (-128 + 0 * zp, 127 + 0 * zp),
        "the lower bound multiplied by the zero point": (-128 * zp, 127 - zp),
        "the upper bound multiplied by the zero point": (-128 - zp, 127 * zp),
        "no upper bound": (-128 - zp, 0 * zp + (1 << 30)),
        "no lower bound": (0 * zp - (1 << 30), 127 - zp),
        "no bounds": (0 * zp - (1 << 30), 0 * zp + (1 << 30)),
    }
    for what, (low, high) in bounds.items():
        made = np.minimum(np.maximum(steps, low), high).astype(np.int64) + zp
        yield what, made
        wrapped = _byte(made)
        if not np.array_equal(wrapped, made):
            yield f"{what}, the low eight bits kept", wrapped


def _byte(q: np.ndarray) -> np.ndarray:
    return (q + 128) % 256 - 128


def stepped(x: np.ndarray, inv: np.ndarray, zp: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(what is wrong, the bytes) with another rounding, another step, or the zero point added in another way."""
    zp = zp.astype(np.int64)
    with np.errstate(all="ignore"):
        y, scale = x * inv, F(1) / inv
        for what, rounding in (("down", np.floor), ("up", np.ceil), ("toward zero", np.trunc)):
            yield f"rounded {what}", clamped(np.clip(np.nan_to_num(rounding(y)), -_MOST, _MOST), zp)
        yield "the zero point not added", clamped(whole(y), 0 * zp)
        yield "the zero point subtracted", clamped(whole(y), -zp)
        yield "the zero point added twice", clamped(whole(y), 2 * zp)
        yield "the zero point multiplied", clamped(np.clip(whole(y) * zp, -_MOST, _MOST), 0 * zp)
        yield "the zero point alone", clamped(0 * whole(y), zp)
        for what, other in (
            ("multiplied by the scale, not by its inverse", x * scale),
            ("divided by the scale, not multiplied by its inverse", x / scale),
            ("the inverse of the scale added", x + inv), ("the inverse of the scale subtracted", x - inv),
            ("not divided by the scale", x + 0 * inv), ("the inverse of the scale alone", 0 * x + inv),
            ("twice as many steps", 2 * y), ("half as many steps", y / 2), ("minus as many steps", -y),
            ("the scale is added to 1, not 1 divided by it", x * (F(1) + scale)),
            ("the scale is taken from 1, not 1 divided by it", x * (F(1) - scale)),
        ):  # fmt: skip
            yield what, clamped(whole(other), zp)


def lanes_read(words: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(how, int64 [.., 4]): the lanes of words that are read from other bits; ``words`` int32."""
    raw, k = words.astype(np.int64)[..., None], np.arange(4)
    for each in (0, 4, 7, 9, 16):
        yield f"{each} bits apart", _field(raw, each * k, 8)
    for bits in (4, 7, 9, 16):
        yield f"of {bits} bits", _field(raw, 8 * k, bits)
    for mask in (127, 254):
        yield f"masked by {mask} instead of 255", ((raw >> 8 * k & mask) ^ 128) - 128
    for sign in (64, 127, 256):
        yield f"with the sign by {sign} instead of 128", ((raw >> 8 * k & 255) ^ sign) - 128
        yield f"with {sign} taken off instead of 128", ((raw >> 8 * k & 255) ^ 128) - sign


def _field(raw: np.ndarray, first: np.ndarray, bits: int) -> np.ndarray:
    """Signed fields of 32-bit words; bits beyond the word are those of its sign."""
    half = 1 << (bits - 1)
    return ((raw >> np.minimum(first, 63) & (2 * half - 1)) ^ half) - half

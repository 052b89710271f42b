"""A division of binary32 digit by digit, with one step of it wrong: many wrong ones at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

_INFINITE, _WORD, _QUIET = 0x7F800000, 0xFFFFFFFF, 0x7FC00000
#: Comparisons, by number: of what is left with the divisor.
_LESS, _NOT_MORE, _ALWAYS, _NEVER, _MORE, _NOT_LESS = range(6)
_COMPARED = ("<", "<=", "always", "never", ">", ">=")
_COMPARE: tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], ...] = (
    np.less, np.less_equal, lambda a, b: a == a, lambda a, b: a != a, np.greater, np.greater_equal,
)  # fmt: skip
#: How digits that are lost round what is kept, by number.
_EVEN, _DOWN, _UP, _HALF_UP, _HALF_DOWN, _ODD, _ALL = range(7)
_ROUNDED = ("to even", "down", "up", "halves up", "halves down", "halves to odd", "by one more")

#: The steps: what is right, what may be instead, and how it reads.
_STEPS: Mapping[str, tuple[int, tuple[int, ...], str]] = {
    "magnitude": (0x7FFFFFFF, (0x7FFFFFFE, 0x80000000, 0xFFFFFFFE, 0x3FFFFFFF, 0xFFFFFFFF, 0), "mask of the magnitude"),
    "fraction": (0x007FFFFF, (0x007FFFFE, 0x00800000, 0x003FFFFF, 0x00FFFFFE, 0x00FFFFFF, 0), "mask of the fraction"),
    "one": (0x00800000, (0, 0x007FFFFF, 0x00800001, 0x00400000, 0x01000000), "leading one"),
    "at": (23, (22, 24, 46, 11), "place of the exponent"),
    "bias": (127, (126, 128, 254, 63, 0, -127), "bias of the exponent"),
    "lift": (64, (63, 65, 128, 32, 0, -64), "what is added to the exponents of normal numbers"),
    "first": (_LESS, (_NOT_MORE, _ALWAYS, _NEVER, _MORE, _NOT_LESS), "the first comparison"),
    "grow": (1, (0, 2, -1), "first shift"),
    "lower": (1, (0, 2, -1), "what the first shift takes off the exponent"),
    "count": (26, (25, 27, 24, 13, 52, 0), "number of digits"),
    "fits": (_NOT_LESS, (_MORE, _ALWAYS, _NEVER, _LESS, _NOT_MORE), "the comparison for a digit"),
    "taken": (1, (0, -1), "how often the divisor is taken off"),
    "step": (1, (0, 2, -1), "shift of the digits"),
    "next": (1, (0, 2, -1), "shift of what is left"),
    "sticky": (1, (0, 2, 3), "last digit that stands for all that follow"),
    "drop": (2, (1, 3, 4, 0), "digits that are dropped"),
    "rounding": (_EVEN, (_DOWN, _UP, _HALF_UP, _HALF_DOWN, _ODD, _ALL), "rounded"),
    "top": (1, (0, 2, -1), "what is taken off the exponent in the end"),
}  # fmt: skip


def names() -> list[str]:
    """How each wrong division reads, in the order of `divided`."""
    found = []
    for name, (right, others, what) in _STEPS.items():
        words = {"first": _COMPARED, "fits": _COMPARED, "rounding": _ROUNDED}.get(name)
        for other in others:
            if words is not None:
                found.append(f"{what} {words[other]}, not {words[right]}")
            else:
                found.append(
                    f"{what} {other:#x} instead of {right:#x}"
                    if right > 255
                    else f"{what} {other}, not {right}"
                )
    return found


def _variants() -> dict[str, np.ndarray]:
    """The number of each step in each wrong division: columns."""
    total = sum(len(others) for _, others, _ in _STEPS.values())
    table = {name: np.full((total, 1), right, np.int64) for name, (right, _, _) in _STEPS.items()}
    at = 0
    for name, (_, others, _) in _STEPS.items():
        table[name][at : at + len(others), 0] = others
        at += len(others)
    return table


_TABLE = _variants()


def divided(a: np.ndarray, b: np.ndarray, chosen: slice = slice(None)) -> np.ndarray:
    """float32 (wrong divisions, ..): ``a / b`` by each of them; b is positive. Both are 1-D, or have a row for each."""
    o = {name: column[chosen] for name, column in _TABLE.items()}
    left, below = (np.ascontiguousarray(v, np.float32).view(np.uint32).astype(np.int64) for v in (a, b))
    sign, above = left & 0x80000000, left & o["magnitude"]
    rest, above_exponent = _normal(above, o)
    q, below_exponent = _normal(below, o)
    exponent = above_exponent - below_exponent + o["bias"]
    small = _compare(o["first"])(rest, q)
    rest = np.where(small, _shift(o["grow"])(rest), rest)
    exponent = exponent - np.where(small, o["lower"], 0)
    rest, digits = _digits(rest, q, o)
    follows = np.where(o["sticky"] == 2, rest == 0, rest != 0) & (o["sticky"] > 0) | (o["sticky"] == 3)
    digits = digits | follows
    drop = np.where(exponent < 1, np.minimum(o["drop"] + 1 - exponent, 28), o["drop"])
    exponent = np.maximum(exponent, 0)
    kept = digits >> drop
    half, lost = (1 << drop) >> 1, digits & ((1 << drop) - 1)
    kept = kept + _up(kept, lost, half, o["rounding"])
    bits = np.where(exponent > 0, kept + (exponent - o["top"] << o["at"]), kept) & _WORD
    bits = np.minimum(bits, _INFINITE)
    bits = np.where((above == _INFINITE) | (below == 0), _INFINITE, bits)
    bits = np.where((above == 0) | (below == _INFINITE), 0, bits)
    bits = np.where((above > _INFINITE) | (above == _INFINITE) & (below == _INFINITE), _QUIET, bits | sign)
    found: np.ndarray = bits.astype(np.uint32).view(np.float32)
    return found


def _digits(rest: np.ndarray, q: np.ndarray, o: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(what is left, the digits): each division goes on for its own number of them."""
    counts, rest, digits, done = o["count"][:, 0], rest.copy(), np.zeros_like(rest), 0
    for count in sorted({*counts.tolist()}):
        rows = np.flatnonzero(counts >= count)
        fits, step, onward = _compare(o["fits"][rows]), _shift(o["step"][rows]), _shift(o["next"][rows])
        left, made, below = rest[rows], digits[rows], q[rows]
        off = o["taken"][rows] * below
        for _ in range(done, count):
            digit = fits(left, below)
            left = onward((left - off * digit) & _WORD)
            made = step(made) | digit
        rest[rows], digits[rows], done = left, made, count
    return rest, digits


def _normal(bits: np.ndarray, o: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(fraction with its leading one, exponent)."""
    exponent, fraction = bits >> o["at"], bits & o["fraction"]
    up = np.maximum(23 - np.log2(np.maximum(fraction, 1)).astype(np.int64), 0)
    normal = exponent > 0
    return np.where(normal, fraction | o["one"], fraction << up), np.where(
        normal, exponent + o["lift"], 65 - up
    )


def _shift(by: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """A shift by a number of each row's own; a negative one is by one digit to the right."""
    ahead, back = np.maximum(by, 0), np.flatnonzero(by < 0)

    def shifted(value: np.ndarray) -> np.ndarray:
        found: np.ndarray = value << ahead
        if len(back):
            found[back] = value[back] >> 1
        return found & _WORD

    return shifted


def _compare(how: np.ndarray) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The comparison that most rows have, and those that a few rows have of their own."""
    numbers = np.bincount(how[:, 0], minlength=len(_COMPARE))
    usual = int(numbers.argmax())
    others = [(_COMPARE[k], np.flatnonzero(how == k)) for k in np.flatnonzero(numbers) if k != usual]

    def compared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        found = _COMPARE[usual](a, b)
        for other, rows in others:
            found[rows] = other(a[rows], b[rows])
        return found

    return compared


def _up(kept: np.ndarray, lost: np.ndarray, half: np.ndarray, rule: np.ndarray) -> np.ndarray:
    """1 where the digits that are lost round up."""
    odd = (kept & 1) == 1
    above, tie = lost > half, lost == half
    found: np.ndarray = np.select(
        [rule == k for k in range(7)],
        [above | tie & odd, lost < 0, lost > 0, lost >= half, above, above | tie & ~odd, lost >= 0],
    ).astype(np.int64)
    return found

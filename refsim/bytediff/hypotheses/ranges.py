"""Scale and zero point of a row by other steps: another constant, operation or comparison, another division."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction
from refsim.bytediff.hypotheses import quotients
from refsim.core.qmath import flush
from refsim.ops.base.row_range import LEAST, NO_RANGE, WIDTH

F = np.float32
#: So many wrong rows are tried first; the share of them that must be explained.
TRIED, LEAST_SHARE = 16, 0.4
#: Lanes of a vector, as processors have them.
VECTORS = (4, 8, 16)
Step = Callable[..., Any]

#: The steps: what is right, and what may be instead.
_RIGHT: Mapping[str, Any] = {
    "the width of the range": (lambda lo, hi: hi - lo),
    "the steps of the range": (lambda low, high: high - low),
    "the scale": (lambda width, steps, div: div(width, steps)),
    "no range": NO_RANGE,
    "the least scale": LEAST,
    "the width of 255 steps": WIDTH,
    "whether there is no range": (lambda s, none: none),
    "whether the scale is too small": (lambda s: s < LEAST),
    "how much larger": (lambda s, div: div(np.full_like(s, LEAST), s)),
    "lo made larger": (lambda x, by: x * by),
    "hi made larger": (lambda x, by: x * by),
    "the error at qmin": (lambda q, a: np.abs(q) - np.abs(a)),
    "the error at qmax": (lambda q, b: np.abs(q) - np.abs(b)),
    "which error is less": (lambda left, right: left < right),
    "the zero point from qmin": (lambda q, a: q - a),
    "the zero point from qmax": (lambda q, b: q - b),
    "no number": (lambda z: np.where(z == z, z, F(0))),
    "the bounds": (lambda z, low, high: np.minimum(np.maximum(z, low), high)),
    "rounded": np.rint,
}

_SUMS: Mapping[str, Step] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "the first": lambda a, b: a + 0 * b,
    "the second": lambda a, b: b + 0 * a,
    "the second less the first": lambda a, b: b - a,
}
_OTHERS: Mapping[str, Mapping[str, Any]] = {
    "the width of the range": {
        "hi + lo": (lambda lo, hi: hi + lo),
        "lo - hi": (lambda lo, hi: lo - hi),
        "hi": (lambda lo, hi: hi),
        "lo": (lambda lo, hi: lo),
        "hi * lo": (lambda lo, hi: hi * lo),
        "-lo": (lambda lo, hi: -lo),
    },
    "the steps of the range": {
        "qmax + qmin": (lambda low, high: high + low),
        "qmin - qmax": (lambda low, high: low - high),
        "qmax": (lambda low, high: high),
        "-qmin": (lambda low, high: -low),
        "one more": (lambda low, high: high - low + 1),
        "one less": (lambda low, high: high - low - 1),
        "255": (lambda low, high: 255),
        "qmax * qmin": (lambda low, high: high * low),
    },
    "no range": {f"{float(v):g}": F(v) for v in (0.2, 0.05, -0.1, 0, 1.1, 1)},
    "the least scale": {f"{float(v):g}": F(v) for v in (LEAST * 2, LEAST / 2, -LEAST, 0, LEAST + 1)},
    "the width of 255 steps": {f"{v}": F(v) for v in (256, 254, 510, 127.5, 0, -255)},
    "whether there is no range": {
        "never": (lambda s, none: none & False),
        "always": (lambda s, none: none | True),
        "where there is one": (lambda s, none: ~none),
        "where it is 0 alone": (lambda s, none: s == 0),
        "where its inverse is infinite alone": (lambda s, none: none & (s != 0)),
    },
    "whether the scale is too small": {
        "never": (lambda s: s != s),
        "always": (lambda s: s == s),
        "where it is not": (lambda s: ~(s < LEAST)),
        "where it is the least too": (lambda s: s <= LEAST),
    },
    "how much larger": {
        "the scale over the least": (lambda s, div: div(s, np.full_like(s, LEAST))),
        "1": (lambda s, div: s * 0 + 1),
        "the product": (lambda s, div: s * LEAST),
        "the sum": (lambda s, div: s + LEAST),
        "the difference": (lambda s, div: LEAST - s),
    },
    "which error is less": {
        "the greater": (lambda a, b: a > b),
        "not greater": (lambda a, b: a <= b),
        "always that at qmin": (lambda a, b: a == a),
        "always that at qmax": (lambda a, b: a != a),
        "not less": (lambda a, b: a >= b),
    },
    "no number": {
        "kept": (lambda z: z),
        "all are none": (lambda z: 0 * np.nan_to_num(z)),
        "1": (lambda z: np.where(z == z, z, F(1))),
    },
    "the bounds": {
        "exchanged": (lambda z, low, high: np.maximum(np.minimum(z, low), high)),
        "not above": (lambda z, low, high: np.maximum(z, low)),
        "not below": (lambda z, low, high: np.minimum(z, high)),
        "always the lower": (lambda z, low, high: low + 0 * z),
        "always the upper": (lambda z, low, high: high + 0 * z),
    },
    "rounded": {
        "down": np.floor,
        "up": np.ceil,
        "toward zero": np.trunc,
        "halves up": (lambda z: np.floor(z + F(0.5))),
    },
}
_TWO = ("lo made larger", "hi made larger", "the zero point from qmin", "the zero point from qmax")
_ERRORS = ("the error at qmin", "the error at qmax")
#: Steps that rows with too small a scale have alone, and steps behind the scale.
_SMALL = {"the width of 255 steps", "how much larger", "lo made larger", "hi made larger"}
_BEHIND = {*_TWO, *_ERRORS, "which error is less", "no number", "the bounds", "rounded"}


#: What stands for a division.
_DIVISIONS: Mapping[str, Step] = {
    "the other way round": lambda a, b: b / a,
    **{f"{what} instead": by for what, by in _SUMS.items() if what != "/"},
    "always 0": lambda a, b: 0 * np.nan_to_num(a),
    "always 1": lambda a, b: 0 * np.nan_to_num(a) + 1,
    "always NaN": lambda a, b: a * F(np.nan),
    "by 1": lambda a, b: a / F(1),
}


def _tries() -> Iterator[tuple[str, dict[str, Any]]]:
    for step, others in _OTHERS.items():
        for what, other in others.items():
            yield f"{step}: {what}", {step: other}
    for what, div in _DIVISIONS.items():
        yield f"the scale: {what}", {"the scale": lambda width, steps, _, div=div: div(width, steps)}
    for step in _TWO:
        for what, other in _SUMS.items():
            yield f"{step}: {what}", {step: other}
    for step in _ERRORS:
        for what, by in _SUMS.items():
            yield f"{step}: {what}", {step: lambda q, a, by=by: by(np.abs(q), np.abs(a))}
            yield f"{step}: {what}, of no magnitudes", {step: lambda q, a, by=by: by(q, a)}
    yield "the two errors exchanged", {"which error is less": lambda a, b: b < a}


def made(
    ev: Evidence, lo: np.ndarray, hi: np.ndarray, changed: Mapping[str, Any], div: Step = np.divide
) -> np.ndarray:
    """Scales, or zero points, of ranges by steps of which some are others."""
    by, p = {**_RIGHT, **changed}, ev.call.params
    low, high = F(p.qmin), F(p.qmax)
    s = div(
        by["the width of the range"](lo, hi),
        np.full_like(lo, F(by["the steps of the range"](p.qmin, p.qmax))),
    )
    none = by["whether there is no range"](s, (s == 0) | np.isinf(F(1) / s))
    s = np.where(none, by["no range"], s)
    small, least = by["whether the scale is too small"](s), by["the least scale"]
    larger, wide = by["how much larger"](s, div), least * by["the width of 255 steps"]
    lo_larger = np.where(hi == 0, -wide, by["lo made larger"](lo, larger))
    hi_larger = np.where(lo == 0, wide, np.where(hi == 0, hi, by["hi made larger"](hi, larger)))
    a, b = np.where(small, np.where(lo == 0, lo, lo_larger), lo), np.where(small, hi_larger, hi)
    s = np.where(small, least, s).astype(F)
    if not ev.desc.is_int8:
        return s
    a, b = div(a.astype(F), s), div(b.astype(F), s)
    first = by["which error is less"](by["the error at qmin"](low, a), by["the error at qmax"](high, b))
    z = np.where(first, by["the zero point from qmin"](low, a), by["the zero point from qmax"](high, b))
    found = by["rounded"](by["the bounds"](by["no number"](z), low, high))
    return np.clip(np.nan_to_num(found), -(1 << 30), 1 << 30)


def _idle(ev: Evidence, lo: np.ndarray, hi: np.ndarray) -> set[str]:
    """Steps that make no difference to the output of any of these rows."""
    s = (hi - lo) / F(ev.call.params.qmax - ev.call.params.qmin)
    none = (s == 0) | np.isinf(F(1) / s)
    idle = set() if ev.desc.is_int8 else _SMALL | _BEHIND
    if not none.any():
        idle.add("no range")
    if not (np.where(none, NO_RANGE, s) < LEAST).any():
        idle |= _SMALL | {"the least scale"}
    return idle


def parts(ev: Evidence) -> Iterator[tuple[str, np.ndarray]]:
    """(what is read, x) of rows that are read in part, or of other words; 0 stands for what is not read."""
    x = ev.arrays["x"]
    k = x.shape[-1]
    at = np.arange(k)
    lanes = ev.launch.local[2] if ev.launch is not None else 1
    for count in dict.fromkeys((lanes, 4)):
        if 1 < count < k:
            yield f"of {count} invocations the first alone", np.where(at % count == 0, x, F(0))
            yield f"of {count} invocations all but the first", np.where(at % count > 0, x, F(0))
            yield f"of {count} invocations all but the last", np.where(at % count < count - 1, x, F(0))
            yield f"the first value of each of {count} invocations alone", np.where(at < count, x, F(0))
    for count in VECTORS:
        if 0 < (rest := k % count) < k:
            yield f"what {count} lanes take alone", np.where(at < k - rest, x, F(0))
            yield f"what {count} lanes leave alone", np.where(at >= k - rest, x, F(0))
    yield "all but the first value", np.where(at > 0, x, F(0))
    yield "all but the last value", np.where(at < k - 1, x, F(0))
    flat = x.reshape(-1)
    row = np.arange(flat.size // k)[:, None]
    places = {
        f"rows {each} values apart": row * each + at
        for each in dict.fromkeys((0, 1, k + 1, k - 1, 2 * k, k // 2))
    }
    places |= {f"{by:+d} values away": row * k + at + by for by in (1, -1, k, -k)}
    places |= {"one value more": np.concatenate([row * k + at, row * k + k], 1)} if k else {}
    for what, place in places.items():
        inside = (place >= 0) & (place < flat.size)
        yield what, np.where(inside, flat[np.where(inside, place, 0)], F(0)).reshape(*x.shape[:-1], -1)


def other_steps(ev: Evidence) -> Iterator[Prediction]:
    """Scale or zero point of each row by one other step, or by another division."""
    flags = ev.call.target.profile.flags
    lo, hi = _range_of(flush(ev.arrays["x"], flags))
    wrong = np.flatnonzero(ev.differing[ev.places].reshape(-1))[:TRIED]
    got = ev.got[ev.places].reshape(-1)[wrong]
    shape = ev.call.out.shape

    def fits(values: np.ndarray) -> bool:
        hits = np.count_nonzero(_bits(ev, values) == got)
        return bool(hits >= max(1, LEAST_SHARE * len(wrong)))

    with np.errstate(all="ignore"):
        ranges = {
            "hi for lo": (hi, hi),
            "lo for hi": (lo, lo),
            "lo and hi exchanged": (hi, lo),
            "neither": (0 * lo, 0 * hi),
            "lo without its sign": (-lo, hi),
            "hi with the sign of lo": (lo, -hi),
        }
        for what, (low, high) in ranges.items():
            if fits(made(ev, low[wrong], high[wrong], {})):
                yield Prediction(what, ev.with_values(made(ev, low, high, {}).reshape(shape)))
        for what, other in parts(ev):
            low, high = _range_of(flush(other, flags))
            for of, (least, most) in {"": (low, high), "lo ": (low, hi), "hi ": (lo, high)}.items():
                if fits(made(ev, least[wrong], most[wrong], {})):
                    yield Prediction(
                        f"{of}of {what}", ev.with_values(made(ev, least, most, {}).reshape(shape))
                    )
        for what, wrong_div in _DIVISIONS.items():
            if fits(made(ev, lo[wrong], hi[wrong], {}, wrong_div)):
                yield Prediction(
                    f"its division: {what}", ev.with_values(made(ev, lo, hi, {}, wrong_div).reshape(shape))
                )
        idle = _idle(ev, lo[wrong], hi[wrong])
        for what, changed in _tries():
            if not idle.issuperset(changed) and fits(made(ev, lo[wrong], hi[wrong], changed)):
                yield Prediction(what, ev.with_values(made(ev, lo, hi, changed).reshape(shape)))
        for number, (what, values) in enumerate(
            zip(quotients.names(), _all(ev, lo[wrong], hi[wrong]), strict=True)
        ):
            if fits(values):
                div = partial(_one, number)
                yield Prediction(
                    f"its division: {what}", ev.with_values(made(ev, lo, hi, {}, div).reshape(shape))
                )


def _range_of(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest value of each row, neither beyond 0."""
    lo, hi = (f.reduce(x, axis=-1, initial=F(0)).reshape(-1) for f in (np.fmin, np.fmax))
    return lo, hi


def _all(ev: Evidence, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
    """The outputs by all wrong divisions at once: a row for each."""
    count = len(quotients.names())
    spread = [np.broadcast_to(values, (count, len(values))) for values in (lo, hi)]
    return made(ev, spread[0], spread[1], {}, quotients.divided)


def _one(number: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return quotients.divided(a, b, slice(number, number + 1))[0]


def _bits(ev: Evidence, values: np.ndarray) -> np.ndarray:
    if ev.desc.is_int8:
        return values.astype(np.int64).astype(np.int8)
    return np.ascontiguousarray(values, F).view(np.int32)

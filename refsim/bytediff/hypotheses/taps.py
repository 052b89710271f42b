"""Causes in the number of a tap: another tap's weights, or the input read where another tap reads it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import (
    AS_UNSIGNED,
    finished,
    is_convolution,
    is_depthwise,
    logical_weight,
    products,
    quantized,
    unsigned,
    window_sums,
)
from refsim.ops.base import conv
from refsim.ops.base.epilogue import PER_CHANNEL

#: Sums of more products than this are not made again for every rule.
MOST_PRODUCTS = 1 << 27
#: A rule is tried on so many channels first, and on all if it explains so much of what is wrong there.
CHANNELS, LEAST_SHARE = 4, 0.5


@hypothesis("taps exchanged", needs_call=True)
def exchanged(ev: Evidence) -> Iterator[Prediction]:
    """A tap is multiplied by the weights of another one, or reads the input where another one does."""
    if not is_convolution(ev):
        return
    weight = logical_weight(ev)
    _, kh, kw, depth = weight.shape
    if kh * kw == 1 or ev.call.out.numel * kh * kw * depth > MOST_PRODUCTS:
        return
    some = _Some(ev, weight)
    steps = ev.call.params.stride if ev.call.op.transposed else (1, 1)
    for what, places in _rules(kh, kw, steps):
        read, scattered = _read(weight, places), _scattered(weight, places)
        yield from some.predicted(f"the weights of tap {what} taken for tap (i, j)", read)
        yield from some.predicted(f"the input read at tap {what} for tap (i, j)", scattered)


def _rules(kh: int, kw: int, steps: tuple[int, int]) -> Iterator[tuple[str, np.ndarray]]:
    """(what is read for tap (i, j), its number for each tap; -1 where there is no such tap), every rule once.

    A transposed convolution numbers the taps of each phase, which lie ``steps`` apart.
    """
    rows, columns = np.indices((kh, kw))
    (up, left), (i, j) = (rows % steps[0], columns % steps[1]), (rows // steps[0], columns // steps[1])
    h, w = -(-(kh - up) // steps[0]), -(-(kw - left) // steps[1])  # of the phase that a tap is of
    named = {
        "(j, i)": (j, i), "(i, i)": (i, i), "(j, j)": (j, j), "(i, 0)": (i, 0 * j), "(0, j)": (0 * i, j),
        "(last - i, j)": (h - 1 - i, j), "(i, last - j)": (i, w - 1 - j),
        "(last - i, last - j)": (h - 1 - i, w - 1 - j),
        "(i + 1, j)": (i + 1, j), "(i - 1, j)": (i - 1, j), "(i, j + 1)": (i, j + 1), "(i, j - 1)": (i, j - 1),
        "(0, 0)": (0 * i, 0 * j),
    }  # fmt: skip
    factors = {
        "0": 0 * w,
        "1": 0 * w + 1,
        "(width - 1)": w - 1,
        "width": w,
        "(width + 1)": w + 1,
        "height": h,
    }
    factors |= {"2 width": 2 * w, "-width": -w}
    for (a, factor), b, c in product(factors.items(), (0, 1, 2, -1), (0, 1, -1)):
        number = factor * i + b * j + c
        inside = (number >= 0) & (number < h * w)
        named[f"number {a} * i {b:+d} * j {c:+d}"] = (np.where(inside, number // w, -1), number % w)
    seen = {np.arange(kh * kw).tobytes()}
    for what, (row, column) in named.items():
        inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
        number = np.where(inside, (up + row * steps[0]) * kw + left + column * steps[1], -1)
        flat = number.reshape(-1).astype(np.int64)
        if flat.tobytes() not in seen and (flat >= 0).any():
            seen.add(flat.tobytes())
            yield what, flat


@hypothesis("words along K exchanged", needs_call=True)
def words(ev: Evidence) -> Iterator[Prediction]:
    """Along the sum, a word of four channels of one tap is multiplied by weights of another word, or the reverse."""
    if not is_convolution(ev) or is_depthwise(ev):
        return
    weight = logical_weight(ev)
    _, kh, kw, depth = weight.shape
    if depth < 5 or ev.call.out.numel * kh * kw * depth > MOST_PRODUCTS:
        return
    some = _Some(ev, weight)
    padded = np.zeros((len(weight), kh * kw, -(-depth // 4) * 4), np.int64)
    padded[..., :depth] = weight.reshape(len(weight), -1, depth)
    by_word = padded.reshape(len(weight), -1, 4)
    for what, places in _word_rules(kh * kw, padded.shape[-1] // 4):
        inside = places >= 0
        read = np.where(inside[None, :, None], by_word[:, places], 0)
        scattered = np.zeros_like(by_word)
        for place in np.flatnonzero(inside):
            scattered[:, places[place]] += by_word[:, place]
        for which, made in (("the weights of", read), ("the input's word of", scattered)):
            changed = made.reshape(padded.shape)[..., :depth].reshape(weight.shape)
            yield from some.predicted(f"{which} {what} taken", changed)


def _word_rules(taps: int, count: int) -> Iterator[tuple[str, np.ndarray]]:
    """(rule, for each word along K the one that is read; -1 where there is none), every rule once."""
    tap, word = (a.reshape(-1) for a in np.indices((taps, count)))
    factors = {
        "words": count,
        "words - 1": count - 1,
        "words + 1": count + 1,
        "2 words": 2 * count,
        "0": 0,
        "1": 1,
    }
    seconds = {
        "word": word,
        "tap": tap,
        "0": 0 * word,
        "word + 1": word + 1,
        "word - 1": word - 1,
        "2 word": 2 * word,
    }
    seconds |= {
        "word // 2": word // 2,
        "-word": -word,
        "word + tap": word + tap,
        "number": tap * count + word,
    }
    rules = {
        f"{a} * tap + {b}": factor * tap + second
        for a, factor in factors.items()
        for b, second in seconds.items()
    }
    rules |= {"word * taps + tap": word * taps + tap, "words * word + tap": count * word + tap}
    seen = {np.arange(taps * count).tobytes()}
    for what, number in rules.items():
        places = np.where((number >= 0) & (number < taps * count), number, -1).astype(np.int64)
        if places.tobytes() not in seen and (places >= 0).any():
            seen.add(places.tobytes())
            yield f"number {what}", places


def _read(weight: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Each tap has the weights of the tap at its place; 0 where there is none."""
    taps = weight.reshape(len(weight), -1, weight.shape[-1]).astype(np.int64)
    return np.where(places[None, :, None] >= 0, taps[:, places], 0).reshape(weight.shape)


def _scattered(weight: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Each tap's weights count at its place; those of taps without one do not."""
    taps = weight.reshape(len(weight), -1, weight.shape[-1]).astype(np.int64)
    fresh = np.zeros_like(taps)
    for tap, place in enumerate(places):
        if place >= 0:
            fresh[:, place] += taps[:, tap]
    return fresh.reshape(weight.shape)


class _Some:
    """A few output channels, those with the most wrong elements: most rules can be refused by them."""

    def __init__(self, ev: Evidence, weight: np.ndarray) -> None:
        self.ev = ev
        wrong = conv.nchw4(ev.differing[ev.places].reshape(ev.call.out.shape))
        count = wrong.sum(axis=(0, 2, 3))
        self.channels = np.sort(np.argsort(-count, kind="stable")[:CHANNELS])
        if ev.call.params.groups > 1 and not is_depthwise(ev):
            self.channels = np.arange(len(weight))  # each group reads channels of its own
        self.wrong = wrong[:, self.channels]
        got = ev.got[ev.places]
        self.got = conv.nchw4(got.reshape(ev.call.out.shape))[:, self.channels]
        self.consts = {
            name: value[self.channels] for name in PER_CHANNEL if (value := ev.call.consts[name]) is not None
        }

    def predicted(self, what: str, weight: np.ndarray) -> Iterator[Prediction]:
        """The cells with other weights, by signed or unsigned bytes, that explain a good part of these channels."""
        sums = window_sums(self.ev, weight[self.channels], self.channels)
        more = unsigned(self.ev, weight)
        for how, added in (("", 0 * more), *([(AS_UNSIGNED, more)] if more.any() else [])):
            if self._fits(sums + added[self.channels]):
                yield Prediction(f"{what}{how}", finished(self.ev, products(self.ev, weight) + added))

    def _fits(self, sums: np.ndarray) -> bool:
        made = quantized(self.ev, sums, self.consts)
        return int(((made == self.got) & self.wrong).sum()) >= LEAST_SHARE * int(self.wrong.sum())

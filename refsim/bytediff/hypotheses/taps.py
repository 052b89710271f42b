"""Causes in the number of a tap: another tap's weights, or the input read where another tap reads it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import finished, is_convolution, is_depthwise, logical_weight, quantized
from refsim.ops.base import conv

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
    for what, places in _rules(kh, kw):
        if some.fits(_read(weight, places)):
            yield Prediction(
                f"the weights of tap {what} taken for tap (i, j)", _made(ev, _read(weight, places))
            )
        scattered = _scattered(weight, places)
        if some.fits(scattered):
            yield Prediction(f"the input read at tap {what} for tap (i, j)", _made(ev, scattered))


def _rules(kh: int, kw: int) -> Iterator[tuple[str, np.ndarray]]:
    """(what is read for tap (i, j), its number for each tap; -1 where there is no such tap), every rule once."""
    i, j = np.indices((kh, kw))
    named = {
        "(j, i)": (j, i), "(i, i)": (i, i), "(j, j)": (j, j), "(i, 0)": (i, 0 * j), "(0, j)": (0 * i, j),
        f"({kh - 1} - i, j)": (kh - 1 - i, j), f"(i, {kw - 1} - j)": (i, kw - 1 - j),
        f"({kh - 1} - i, {kw - 1} - j)": (kh - 1 - i, kw - 1 - j), "(i + 1, j)": (i + 1, j), "(i - 1, j)": (i - 1, j),
        "(i, j + 1)": (i, j + 1), "(i, j - 1)": (i, j - 1), "(0, 0)": (0 * i, 0 * j),
    }  # fmt: skip
    flat = {
        f"number {a} i {b:+d} j {c:+d}": a * i + b * j + c
        for a, b, c in product(
            dict.fromkeys((0, 1, kw - 1, kw, kw + 1, kh, 2 * kw, -kw)), (0, 1, 2, -1), (0, 1, -1)
        )
    }
    seen = {np.arange(kh * kw).tobytes()}
    for what, (row, column) in named.items():
        inside = (row >= 0) & (row < kh) & (column >= 0) & (column < kw)
        yield from _once(what, np.where(inside, row * kw + column, -1), seen)
    for what, number in flat.items():
        yield from _once(what, np.where((number >= 0) & (number < kh * kw), number, -1), seen)


def _once(what: str, places: np.ndarray, seen: set[bytes]) -> Iterator[tuple[str, np.ndarray]]:
    flat = places.reshape(-1).astype(np.int64)
    if flat.tobytes() not in seen and (flat >= 0).any():
        seen.add(flat.tobytes())
        yield what, flat


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


def _made(ev: Evidence, weight: np.ndarray) -> np.ndarray:
    return finished(ev, _sums(ev, conv.nchw4(ev.arrays["x"]), weight))


def _sums(ev: Evidence, x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return conv.accumulate(ev.call.params, x, weight, (ev.call.out.shape[-2], ev.call.out.shape[-1]))


class _Some:
    """A few output channels, those with the most wrong elements: most rules can be refused by them."""

    def __init__(self, ev: Evidence, weight: np.ndarray) -> None:
        self.ev = ev
        wrong = conv.nchw4(ev.differing[ev.places].reshape(ev.call.out.shape))
        count = wrong.sum(axis=(0, 2, 3))
        self.channels = np.sort(np.argsort(-count, kind="stable")[:CHANNELS])
        if ev.call.params.groups > 1 and not is_depthwise(ev):
            self.channels = np.arange(len(weight))  # each group reads channels of its own
        x = conv.nchw4(ev.arrays["x"])
        self.x = x[:, self.channels] if is_depthwise(ev) else x
        self.wrong = wrong[:, self.channels]
        got = ev.got[ev.places]
        self.got = conv.nchw4(got.reshape(ev.call.out.shape))[:, self.channels]
        self.consts = {
            name: value[self.channels]
            for name in ("weight_sums", "weight_scales", "bias")
            if (value := ev.call.consts[name]) is not None
        }

    def fits(self, weight: np.ndarray) -> bool:
        """Whether these weights explain a good part of what is wrong in these channels."""
        sums = _sums(self.ev, self.x, weight[self.channels])
        made = quantized(self.ev, sums, self.consts)
        return int(((made == self.got) & self.wrong).sum()) >= LEAST_SHARE * int(self.wrong.sum())

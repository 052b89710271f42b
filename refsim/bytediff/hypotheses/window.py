"""Causes in a sum over a window or a row: wrong window parameters, and products that were left out."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import (
    convolve,
    has_weights,
    has_window,
    is_convolution,
    logical_weight,
    replaced,
    weighed,
)
from refsim.ops.base import conv


@hypothesis("stride or dilation", needs_call=True)
def stride_dilation(ev: Evidence) -> Iterator[Prediction]:
    """Stride and dilation exchanged, or one of them, or half of one, not honoured."""
    params = ev.call.params
    if not has_window(ev):
        return
    one, s, d = (1, 1), params.stride, params.dilation
    variants = {
        "stride and dilation exchanged": {"stride": d, "dilation": s},
        "stride taken as 1": {"stride": one},
        "dilation taken as 1": {"dilation": one},
        "stride used as dilation as well": {"dilation": s},
        "the vertical stride used for both": {"stride": (s[0], s[0])},
        "the horizontal stride used for both": {"stride": (s[1], s[1])},
        "the vertical dilation used for both": {"dilation": (d[0], d[0])},
        "the horizontal dilation used for both": {"dilation": (d[1], d[1])},
    }
    yield from _windows(ev, variants)
    if ev.call.op.transposed:
        every = type("EveryPhase", (type(params),), {"source": _every_phase})(**vars(params))
        cells = window_cells(ev, every)
        if cells is not None:
            yield Prediction("taps counted that fall between the strides", cells)


def _every_phase(params: Any, axis: int, out_count: int, tap: int, in_count: int) -> np.ndarray:
    """`ConvParams.source` of a transposed convolution, also where the stride does not divide."""
    shifted = np.arange(out_count) + params.padding[axis] - tap
    at = shifted // params.stride[axis]
    return np.where((shifted >= 0) & (at < in_count), at, in_count)


@hypothesis("padding offset", needs_call=True)
def padding_offset(ev: Evidence) -> Iterator[Prediction]:
    """Padding ignored, doubled, or one side's used for both."""
    params = ev.call.params
    if not has_window(ev):
        return
    p = params.padding
    variants = {
        "padding taken as 0": {"padding": (0, 0)},
        "padding of the rows taken as 0": {"padding": (0, p[1])},
        "padding of the columns taken as 0": {"padding": (p[0], 0)},
        "padding applied twice": {"padding": (2 * p[0], 2 * p[1])},
        "the vertical padding used for both": {"padding": (p[0], p[0])},
        "the horizontal padding used for both": {"padding": (p[1], p[1])},
    }
    yield from _windows(ev, variants)
    negated = copy(params)  # what no call may have
    object.__setattr__(negated, "padding", (-p[0], -p[1]))
    cells = window_cells(ev, negated)
    if cells is not None and any(p):
        yield Prediction("padding taken with the other sign", cells)


def _windows(ev: Evidence, variants: dict[str, dict[str, tuple[int, int]]]) -> Iterator[Prediction]:
    params = ev.call.params
    for what, changes in variants.items():
        changed = replaced(params, **changes)
        if changed is None or changed == params:
            continue
        cells = window_cells(ev, changed)
        if cells is not None:
            yield Prediction(what, cells)


def window_cells(ev: Evidence, params: conv.ConvParams) -> np.ndarray | None:
    """Cells over another window, at the output size of the call."""
    return convolve(ev, params=params) if is_convolution(ev) else rerun_windows(ev, params)


def rerun_windows(ev: Evidence, params: conv.ConvParams) -> np.ndarray | None:
    """Other windows of the image, copied out as channels, as many as the call has; None if they do not fit."""
    out = ev.call.out
    values = conv.windows(params, ev.arrays["x"], out.shape[-2], out.shape[-1])
    return ev.with_values(values) if values.shape == out.shape else None


@hypothesis("reduction too short", needs_call=True)
def reduction_short(ev: Evidence) -> Iterator[Prediction]:
    """Products missing from the sum: the last word, lane or tap, or the share of some invocations."""
    if not has_weights(ev):
        return
    weight = logical_weight(ev) if is_convolution(ev) else _rows(ev)
    for what, mask in _left_out(ev, weight.shape):
        for how, cells in weighed(ev, weight * mask):
            yield Prediction(f"{what} left out of the sum{how}", cells)


def _rows(ev: Evidence) -> np.ndarray:
    """Weights of a linear operator as those of a convolution: (OC, 1, 1, K)."""
    weight = ev.call.consts["weight"]
    assert weight is not None
    return weight[:, None, None, :]


def _left_out(ev: Evidence, shape: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """(what is left out, bool (KH, KW, K): whether a product counts) for weights of shape (OC, KH, KW, K)."""
    assert ev.launch is not None
    _, kh, kw, channels = shape
    channel = np.arange(channels)
    word = channel // 4
    last = word.max()
    keep = {
        "the last word of channels": np.broadcast_to(word < last, (kh, kw, channels)),
        "the last channel": np.broadcast_to(channel < channels - 1, (kh, kw, channels)),
        "the first word of channels": np.broadcast_to(word > 0, (kh, kw, channels)),
        "the last lane of each word": np.broadcast_to(channel % 4 < 3, (kh, kw, channels)),
        "the channels beyond the last whole word": np.broadcast_to(
            channel < channels // 4 * 4, (kh, kw, channels)
        ),
        "the last tap": _all_but((kh, kw, channels), (-1, -1)),
        "the last row of taps": _all_but((kh, kw, channels), (-1, slice(None))),
        "the last column of taps": _all_but((kh, kw, channels), (slice(None), -1)),
        "the first tap": _all_but((kh, kw, channels), (0, 0)),
        "the last word of the last tap": _all_but((kh, kw, channels), (-1, -1, slice(last * 4, None))),
    }
    words = last + 1
    # number of a word among all that are summed, taps slowest
    flat = word + words * np.arange(kh * kw).reshape(kh, kw, 1)
    for stage in (2, 4, 8, 16, 32):
        if kh * kw * words >= stage:
            keep[f"the last word of every stage of {stage}"] = flat % stage < stage - 1
    for what, kept in _shares(ev.launch.local[2]):
        keep[what] = np.broadcast_to(kept[word % len(kept)], (kh, kw, channels))
    for what, mask in keep.items():
        if not mask.all():
            yield what, mask


def _shares(count: int) -> Iterator[tuple[str, np.ndarray]]:
    """(what, bool per invocation: whether its part of the sum counts) where ``count`` invocations share a sum."""
    number = np.arange(count)
    for part in sorted({count - 1, count // 2}) if count > 1 else ():
        yield f"the share of invocation {part} of {count}", number != part
    first = 1
    while first < count:
        what = f"what others than the first {first} of {count} invocations had summed, no barrier in between,"
        yield what, number < first
        first *= 2
    half = 1
    while half < count:
        kept = number % (2 * half) < half
        yield f"the upper half at step {half} of the reduction over {count} invocations", kept
        half *= 2
    for fan in (2, 4, 8, 16, 32, 64):  # how many partial sums an invocation adds up in each round
        heard, left = np.ones(count, bool), count // fan
        while left:
            heard &= number % (left * fan) // left < fan - 1
            left //= fan
        if not heard.all():
            yield f"the last of {fan} partial sums in every round over {count} invocations", heard


def _all_but(shape: tuple[int, ...], at: tuple[object, ...]) -> np.ndarray:
    mask = np.ones(shape, bool)
    mask[at] = False  # type: ignore[index]
    return mask

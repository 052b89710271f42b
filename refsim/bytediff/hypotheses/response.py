"""What a window really added up: which tap's weights met the input at which place. Solved from the wrong bytes.

A kernel that lays out weights or input wrongly still adds up products of a window: those of tap t with the input that
belongs to tap o, so many times. These numbers are the same for all outputs of all channels. So a few hundred wrong
bytes tell them, and every byte of the buffer proves them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import product

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, distinct
from refsim.bytediff.rerun import AS_UNSIGNED, UNSIGNED, finished, integer_sums, is_depthwise, logical_weight
from refsim.ops.base import conv

#: Wrong elements that are looked at, and how many there are for each number at least; more numbers are not found.
MOST_SEEN, LEAST_EACH, MOST_FOUND = 600, 6, 50
#: Pairs of taps that are tried, and how far beyond the window.
MOST_PAIRS, BEYOND = 700, (3, 2, 1)
#: Sums of more products than this are not made again; numbers are at most so large, and as close to a whole one.
MOST_PRODUCTS, MOST_READ, MOST_TIMES, CLOSE = 1 << 26, 1 << 22, 4, 0.2
#: Every second output of a dim may be made alike, and so on.
PHASES = (2, 4)
#: What rounding leaves of a difference, in steps of the output, in the mean of squares.
ROUNDED = 0.5
#: More may be left if all numbers were found, such as at the edges of an image.
MOST_LEFT = 2
#: An input says something if it lies in the image for so many of the outputs.
LEAST_INSIDE = 0.5
#: So many columns must explain that much of a difference, or more are not looked for.
FIRST, LEAST_GAIN = 6, 0.85
#: So many of the numbers are told.
TOLD = 4

Tap = tuple[int, int]
Changed = list[tuple[Tap, Tap, int]]


def solved(ev: Evidence, usable: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Iterator[Prediction]:
    """The cells of what the window must have added up; ``usable``: wrong outputs, how far off, the unit of a sum.

    The same numbers everywhere, or numbers of their own for every second row or column, and so on.
    """
    weight = logical_weight(ev)
    _, kh, kw, depth = weight.shape
    if (
        ev.call.op.transposed
        or ev.call.out.numel * kh * kw * depth > MOST_PRODUCTS
        or len(usable[0]) < LEAST_EACH
    ):
        return
    at, off, unit = (part[:: -(-len(part) // MOST_SEEN)] for part in usable)
    read, seen = _read(kh, kw), _Seen(ev, weight, at)
    if not read or len(at) * len(read) * depth > MOST_READ:
        return
    pairs = list(product(read, product(range(kh), range(kw))))
    signed = seen.sums(read)
    rounded = ROUNDED * getattr(ev.call.params, "out_scale", 0.0)
    rows, columns = np.indices(ev.call.out.shape[-2:])
    for how, added in (("", 0), (AS_UNSIGNED, UNSIGNED)):
        matrix = ((signed + added * seen.own[:, None]) * signed.any(axis=0)).reshape(len(at), -1) * unit[
            :, None
        ]
        for what, along, mine, modulus in (("", 0 * rows, seen.h, 1), *_phases(rows, columns, seen)):
            phase, sums, said = mine % modulus, integer_sums(ev), list[str]()
            for k in distinct(phase):
                times = _few(matrix[phase == k], off[phase == k], rounded)
                if times is None:
                    break
                changed = [(o, t, int(n)) for (o, t), n in zip(pairs, times, strict=True) if n]
                sums = sums + np.where(along % modulus == k, _added(ev, weight, changed, added), 0)
                said.append(f"{what and f'where {what} % {modulus} is {k}, '}{_said(changed)}")
            else:
                yield Prediction("; ".join(said) + how, finished(ev, sums), True)
                return


def _phases(
    rows: np.ndarray, columns: np.ndarray, seen: _Seen
) -> Iterator[tuple[str, np.ndarray, np.ndarray, int]]:
    """(dim, along it each place of the output and each seen output, modulus): outputs that may be made alike."""
    for modulus in PHASES:
        for what, along, mine in (("w", columns, seen.w), ("h", rows, seen.h)):
            if along.max() >= modulus:
                yield what, along, mine, modulus


def _read(kh: int, kw: int) -> list[Tap]:
    """Taps whose input may be read, as far beyond the window as there are not too many."""
    for by in (*BEYOND, 0):
        read = list(product(range(-by, kh + by), range(-by, kw + by)))
        if len(read) * kh * kw <= MOST_PAIRS:
            return read
    return []


def _few(matrix: np.ndarray, off: np.ndarray, rounded: float) -> np.ndarray | None:
    """How often each column is in ``off``, if a few columns explain it but for rounding; None if they do not.

    The column that is most like what is left is added until nothing is.
    """
    size = np.sqrt((matrix**2).sum(axis=0))
    most = min(MOST_FOUND, len(off) // LEAST_EACH, int(np.count_nonzero(size)))
    columns = matrix / np.where(size > 0, size, 1)
    chosen: list[int] = []
    left, across = off, np.zeros((len(off), 0))
    while len(chosen) < most and _mean(left) > rounded:
        if len(chosen) == FIRST and _mean(left) > LEAST_GAIN * _mean(off):
            return None
        like = np.abs(columns.T @ left)
        like[chosen] = -1
        chosen.append(int(like.argmax()))
        fresh = columns[:, chosen[-1]]
        fresh = fresh - across @ (across.T @ fresh)
        fresh /= np.sqrt((fresh**2).sum()) or 1.0
        across = np.column_stack([across, fresh])
        left = left - fresh * (fresh @ left)
    if not chosen or _mean(left) > MOST_LEFT * rounded:
        return None
    found = np.linalg.lstsq(columns[:, chosen], off, rcond=1e-9)[0] / size[chosen]
    times = np.zeros(matrix.shape[1], np.int64)
    times[chosen] = np.rint(np.clip(np.nan_to_num(found), -99, 99)).astype(np.int64)
    known = (
        bool(chosen)
        and times.any()
        and np.abs(times).max() <= MOST_TIMES
        and np.abs(found - times[chosen]).max() <= CLOSE
    )
    return times if known else None


def _mean(left: np.ndarray) -> float:
    return float(np.sqrt((left**2).mean()))


class _Seen:
    """The inputs and weights of some outputs."""

    def __init__(self, ev: Evidence, weight: np.ndarray, at: np.ndarray) -> None:
        p, x = ev.call.params, conv.nchw4(ev.arrays["x"])
        shape = (1, 1, 1, *ev.call.out.shape)[-4:]
        self.p, self.x = p, x.astype(np.float64)
        self.n, oc, self.h, self.w = (np.asarray(a) for a in np.unravel_index(at, shape))
        outputs, kh, kw, depth = weight.shape
        self.weight = weight[oc].reshape(len(at), kh * kw, depth).astype(np.float64)
        first = oc if is_depthwise(ev) else oc // (outputs // p.groups) * depth
        self.channels = first[:, None] + np.arange(depth)

    def sums(self, read: Sequence[Tap]) -> np.ndarray:
        """For each output, and the input that belongs to each tap, the products with each tap's weights."""
        p, (_, _, height, width) = self.p, self.x.shape
        found = []
        for i, j in read:
            row = self.h * p.stride[0] - p.padding[0] + i * p.dilation[0]
            column = self.w * p.stride[1] - p.padding[1] + j * p.dilation[1]
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            row, column = np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)
            values = self.x[self.n[:, None], self.channels, row[:, None], column[:, None]]
            known = inside.mean() >= LEAST_INSIDE  # else it is the zero point, and fits whatever is constant
            found.append(np.where(inside[:, None], values, p.in_zp) * known)
        made: np.ndarray = np.stack(found, axis=1) @ self.weight.transpose(0, 2, 1)
        return made

    @property
    def own(self) -> np.ndarray:
        """For each output the sum of each tap's weights."""
        made: np.ndarray = self.weight.sum(axis=2)
        return made


def _added(ev: Evidence, weight: np.ndarray, changed: Changed, added: int) -> np.ndarray:
    """What all sums have too much: those of a window that is wider on every side."""
    p, by = ev.call.params, max(BEYOND)
    outputs, kh, kw, depth = weight.shape
    wider = np.zeros((outputs, kh + 2 * by, kw + 2 * by, depth), np.int64)
    for o, t, times in changed:
        wider[:, o[0] + by, o[1] + by] += times * weight[:, t[0], t[1]].astype(np.int64)
    # the first of its taps lie before those of the window: so many rows and columns of zero points are put there
    around = [(0, 0), (0, 0), *((by * step, 0) for step in p.dilation)]
    x = np.pad(conv.nchw4(ev.arrays["x"]), around, constant_values=p.in_zp)
    size = (ev.call.out.shape[-2], ev.call.out.shape[-1])
    # without what an operator says of its own windows: a pointwise one has no wider window
    window = conv.ConvParams(**{field.name: getattr(p, field.name) for field in fields(conv.ConvParams)})
    sums = conv.accumulate(replace(window, kernel_size=wider.shape[1:3]), x, wider, size)
    each = added * wider.sum((1, 2, 3))
    return sums + each[:, None, None]


def _said(changed: Changed) -> str:
    """Which products were counted: those that should not be first, then those that are missing."""
    ordered = sorted(changed, key=lambda row: (row[0] == row[1], row))
    listed = [
        f"the input of tap {o} by the weights of {'the same' if o == t else f'tap {t}'} {_times(n)}"
        for o, t, n in ordered[:TOLD]
    ]
    return "; ".join(listed) + (f"; and {len(changed) - TOLD} more" if len(changed) > TOLD else "")


def _times(n: int) -> str:
    return {-1: "counted once less", 1: "counted once more"}.get(n, f"counted {n:+d} times")

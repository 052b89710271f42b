"""Elements of a line of memory at another distance: pixels, vectors of neighbours, or the rest of a line one by one.

A kernel counts the elements of a line, of a row of pixels or of K, in bytes: by a wrong number some of them are read
from, or written to, other places of the line. The line may be scratch that no other layout tells of: rows of pixels
with their channels side by side, in whole words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import has_weights, is_convolution, quantized, rerun
from refsim.core.buffer import FILL
from refsim.ops.base.epilogue import align4
from refsim.ops.base.traits import Family

#: Neighbours that are moved at once, as processors have them, and what their place is multiplied by instead of 1.
LANES, FACTORS = (4, 8, 16, 24, 32, 48, 64), (0, 0.25, 0.5, 2, 4, -1)
#: Larger outputs are left alone; a rule is told if it makes so much of what is wrong.
MOST_ELEMENTS, LEAST_SHARE = 1 << 15, 0.25
#: So few distinct values among the wrong elements could be anywhere.
LEAST_VALUES = 6
#: Calls with weights of more products are left alone; of others so many rows are tried first.
MOST_PRODUCTS, TRIED = 1 << 22, 3
#: Operators that make each byte of one byte at its own place.
_ONE_BY_ONE = (Family.ELEMENTWISE, Family.QUANTIZE, Family.DEQUANTIZE)


@dataclass(frozen=True)
class Place:
    """Where each element of every line is instead: int64 (lines, elements), in elements of the whole memory."""

    what: str
    at: np.ndarray

    def read(self, memory: np.ndarray, outside: float = 0) -> np.ndarray:
        """What is read there, of memory with as many elements, and what is read ``outside``."""
        flat = memory.reshape(-1)
        inside = (self.at >= 0) & (self.at < flat.size)
        return np.where(inside, flat[np.where(inside, self.at, 0)], outside).astype(memory.dtype)

    def written(self, memory: np.ndarray, before: float = 0) -> np.ndarray:
        """What lies at each element's own place once every element was written there, the first one first."""
        found = np.full(memory.size, before, memory.dtype)
        at, values = self.at.reshape(-1), memory.reshape(-1)
        inside = (at >= 0) & (at < found.size)
        found[at[inside]] = values[inside]
        return found.reshape(self.at.shape)


@hypothesis("elements at another distance", needs_call=True)
def distances(ev: Evidence) -> Iterator[Prediction]:
    """Pixels, vectors of neighbours, or the rest of a line, read or written at another distance."""
    if ev.call.out.numel > MOST_ELEMENTS:
        return
    yield from _of_output(ev)
    if has_weights(ev) and not is_convolution(ev):
        yield from _of_input(ev)


def _of_output(ev: Evidence) -> Iterator[Prediction]:
    """Elements of the output, in lines of scratch or of its own memory."""
    shape = ev.logical.shape
    got, wrong = ev.got[ev.places], ev.differing[ev.places]
    if len(np.unique(got[wrong])) < LEAST_VALUES:
        return  # they could be anywhere
    padding = _padding(ev)
    if ev.call.op.channel_dim == -1 or len(ev.call.out.shape) < 3:
        pixel, channels = 1, 1
        memory, back = ev.logical.reshape(-1, shape[-1]), (lambda made: made.reshape(shape))
    else:
        n, channels, h, w = shape
        pixel = align4(channels)
        held = np.full((n, h, w, pixel), padding, ev.want.dtype)
        held[..., :channels] = ev.logical.transpose(0, 2, 3, 1)
        memory = held.reshape(n * h, w * pixel)

        def back(made: np.ndarray) -> np.ndarray:
            return made.reshape(held.shape)[..., :channels].transpose(0, 3, 1, 2)

    enough = LEAST_SHARE * np.count_nonzero(wrong)
    for what, made in _made(memory, pixel, channels, padding):
        values = back(made)
        if np.count_nonzero((values == got) & wrong) >= enough:
            cells = ev.want.copy()
            cells[ev.places] = values
            yield Prediction(what, cells)


def _made(memory: np.ndarray, pixel: int, channels: int, padding: int) -> Iterator[tuple[str, np.ndarray]]:
    """What lines of an output become by each rule; ``padding`` lies beyond what is read."""
    fills = dict.fromkeys((0, FILL if memory.itemsize == 1 else 0x01010101 * FILL))
    for place in _places(len(memory), memory.shape[1], 4 // memory.itemsize, pixel, channels):
        yield f"read with {place.what}", place.read(memory, padding)
        for fill in fills:
            yield f"written with {place.what}", place.written(memory, fill)


def _padding(ev: Evidence) -> int:
    """What an operator makes of the padding of a word, the byte 0; 0 where that is no single number."""
    if ev.call.op.family not in _ONE_BY_ONE:
        return 0
    cells = rerun(ev, inputs={name: np.zeros_like(array) for name, array in ev.arrays.items()})
    return 0 if cells is None else int(cells[ev.places].flat[0])


def _of_input(ev: Evidence) -> Iterator[Prediction]:
    """Rows of bytes before they are multiplied; first those rows of the output with most wrong elements."""
    x, weight = ev.arrays["x"], ev.call.consts["weight"]
    assert weight is not None
    outputs = ev.call.out.shape[-1]
    wrong, got = (cells[ev.places].reshape(-1, outputs) for cells in (ev.differing, ev.got))
    if wrong.size * x.shape[-1] > MOST_PRODUCTS:
        return
    rows = np.argsort(-wrong.sum(axis=1), kind="stable")[:TRIED]
    memory, turned = x.reshape(-1, x.shape[-1]), weight.T.astype(np.int64)
    for place in _places(len(memory), memory.shape[1], 4):
        read = place.read(memory)
        made = ev.with_values(quantized(ev, read.astype(np.int64) @ turned).reshape(ev.call.out.shape))
        hits = (made[ev.places].reshape(-1, outputs)[rows] == got[rows]) & wrong[rows]
        if np.count_nonzero(hits) >= LEAST_SHARE * np.count_nonzero(wrong[rows]):
            yield Prediction(f"x read with {place.what}", made)


def _places(lines: int, length: int, word: int, pixel: int = 1, channels: int = 1) -> Iterator[Place]:
    """Every rule for lines of so many elements, no places twice.

    A word has ``word`` elements; a line has pixels of ``channels``, and of padding.
    """
    own = np.arange(lines * length).reshape(lines, length)
    seen = {hash(own.tobytes())}
    for place in (*_pixels(own, word, pixel, channels), *_vectors(own, word, 1, "line"), *_rests(own)):
        known = hash(place.at.tobytes())
        if known not in seen:
            seen.add(known)
            yield place


def _pixels(own: np.ndarray, word: int, pixel: int, channels: int) -> Iterator[Place]:
    """Pixels further apart, or less far; vectors of the channels of each."""
    if pixel == 1:
        return
    lines, length = own.shape
    first, w, c = own[:, :1], np.arange(length) // pixel, np.arange(length) % pixel
    for other in (channels, 2 * pixel, pixel // 2, pixel + 4, pixel - 4, 4, 1, 0):
        yield Place(f"pixels {other} elements apart instead of {pixel}", first + w * other + c)
    for other in (2, 8, 16, 1, 0, -4):
        yield Place(
            f"words of a pixel {other} elements apart instead of 4",
            first + w * pixel + c // 4 * other + c % 4,
        )
    for other in (2 * length, length // 2, length + pixel, length - pixel, length // pixel * channels):
        yield Place(
            f"lines {other} elements apart instead of {length}", first // length * other + own - first
        )
    yield from _vectors(own.reshape(-1, pixel), word, lines, "pixel")


def _vectors(own: np.ndarray, word: int, lines: int, of: str) -> Iterator[Place]:
    """Vectors of neighbours at a multiple of their place in a line, or in all of the memory; lanes stay."""
    length = own.shape[1]
    place = np.arange(length)
    for lanes in LANES:
        if lanes > length:
            break
        whole, fours = length - length % lanes, length - length % min(4, lanes)
        start = np.where(
            place < whole, place - place % lanes, np.where(place < fours, place - place % 4, place)
        )
        for factor in FACTORS:
            times = f"vectors of {lanes} at {factor:g} times their place"
            for what, first, moved in (
                (f"in the {of}", own - place, start),
                ("", own - own, own - place + start),
            ):
                at = first + np.floor(factor * moved).astype(np.int64) + (place - start)
                at = at.reshape(lines, -1) if lines > 1 else at
                yield Place(f"{times} {what}".rstrip(), at)
                if factor == 0.25:  # 4 is added to a place, which then counts bytes for words
                    yield Place(f"{times} and {word} more {what}".rstrip(), at + word)


def _rests(own: np.ndarray) -> Iterator[Place]:
    """The rest of a line that fills no vector, one by one at a multiple of their place in it."""
    length = own.shape[1]
    place = np.arange(length)
    for lanes in LANES:
        first = length - length % lanes
        if first < length:
            for factor in FACTORS:
                moved = first + np.floor(factor * (place - first)).astype(np.int64)
                at = own - place + np.where(place < first, place, moved)
                yield Place(f"the last {length - first} of a line at {factor:g} times their place there", at)

"""Edits of the weights that a kernel reads: nibbles, taps and channels in another order, or left out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np

from refsim.bytediff.search.bench import Step
from refsim.bytediff.search.device import Read, Told, flipped, rolled, words_of
from refsim.ops.base.int4 import HALVES, PAIRS, NibbleBlocks
from refsim.ops.base.traits import Family

#: The class of what is wrong with the halves of bytes.
NIBBLES_WRONG = "nibbles read wrong"


def nibbles(step: Step) -> Told:
    """Weights of 4 bits, read otherwise."""
    wrong = NIBBLES_WRONG
    low = 0x0F0F0F0F
    yield wrong, "read with a nibble's highest bit taken for its sign", flipped(0x88888888)
    yield wrong, "read without the highest bit of a nibble", lambda words, at, size: words[at] & 0x77777777
    yield wrong, "read at the low nibble of a byte twice", lambda words, at, size: (words[at] & low) * 17
    yield (
        wrong,
        "read at the high nibble of a byte twice",
        lambda words, at, size: (words[at] >> 4 & low) * 17,
    )
    grouped = step.call.op.int4
    if grouped is None:
        return
    values, _ = grouped.values(step.call)
    for other, what in _laid_out(grouped.blocks):
        yield "weights laid out for another kernel", what, words_of(other.words(values))


def _laid_out(own: NibbleBlocks) -> Iterator[tuple[NibbleBlocks, str]]:
    for other in (HALVES, PAIRS):
        if other is not own:
            yield other, f"laid out in {other.name}, read in {own.name}"
            mixed = NibbleBlocks(own.name, other.low, other.high, own.columns_first)
            yield mixed, f"with the rows of a block in {other.name}"
            there = dict(zip((*other.low, *other.high), (*own.low, *own.high), strict=True))
            low, high = (tuple(there[row] for row in rows) for rows in (own.low, own.high))
            read = NibbleBlocks(own.name, low, high, own.columns_first)  # type: ignore[arg-type]
            yield read, f"read with the rows of a block in {other.name}"
    turned = NibbleBlocks(own.name, own.low, own.high, not own.columns_first)
    yield turned, f"with blocks stored {'rows' if own.columns_first else 'columns'} first"
    exchanged = NibbleBlocks(own.name, own.high, own.low, own.columns_first)
    yield exchanged, "with low and high nibbles exchanged in the words"


_AXES = ("tap row", "tap column", "input word", "output channel")


def weights(step: Step) -> Told:
    """Words of weights at other places: they lie [tap row][tap column][input word][output channel]."""
    call, size = step.call, step.call.words("weight").size
    kernel = getattr(call.params, "kernel_size", (1, 1))
    outputs = -(-call.out.shape[call.op.channel_dim] // 4) * 4
    inner = outputs // 4 if call.op.family is Family.DEPTHWISE else outputs
    if size < kernel[0] * kernel[1] * inner:
        kernel = (1, 1)
    taps = kernel[0] * kernel[1]
    depth = size // (taps * inner)
    if call.op.family is not Family.DEPTHWISE:
        # behind the weights of a transposed convolution lie sums of them
        value = call.consts["weight"]
        assert value is not None
        depth = min(depth, -(-value[0].size // (4 * taps)))
    told = _of_taps(step, (*kernel, depth, inner)) if depth else ()
    count = taps * depth * inner  # what lies behind them is no weight
    yield from told if count == size else ((name, what, _first(count, read)) for name, what, read in told)


def _first(count: int, read: Read) -> Read:
    """The first words as they are found otherwise, and those behind them as they are."""

    def found(words: Any, at: Any, size: int) -> Any:
        if isinstance(at, np.ndarray):
            return np.where(at < count, read(words, np.where(at < count, at, 0), count), words[at])
        return read(words, at, count) if at < count else words[at]

    return found


def _of_taps(step: Step, dims: tuple[int, int, int, int]) -> Told:
    call, wrong = step.call, "weights in another order"
    for order in permutations(range(4)):
        kept = [axis for axis in order if dims[axis] > 1]
        if kept != sorted(kept):
            what = " by ".join(_AXES[axis] for axis in kept)
            yield wrong, f"stored {what}", _stored(dims, order)
            yield wrong, f"read {what}", _ordered(dims, order)
    for axes in ((0, 1), (0,), (1,)):
        if any(dims[axis] > 1 for axis in axes):
            what = " and ".join(f"{_AXES[axis]}s" for axis in axes)
            yield wrong, f"read with {what} backwards", _backwards(dims, axes)
    if call.op.family is Family.DEPTHWISE and dims[1] % 4:
        yield wrong, "read as if no row of taps was padded to whole texels", _unpadded(dims)
    yield from (("reduction too short", what, _kept(dims, mask)) for what, mask in _left_out(step, dims[:3]))
    for by in (1, -1, 4, -4):
        yield wrong, f"read {by:+d} words away", rolled(by)
    yield wrong, "read at the first word of each four", lambda words, at, size: words[at // 4 * 4]
    if call.op.family is not Family.DEPTHWISE:
        for turned, what in ((True, "x and y exchanged"), (False, "rows as long as the texture is high")):
            yield wrong, f"texels fetched with {what}", _texels(dims, turned)


def _places(dims: tuple[int, ...], at: Any) -> list[Any]:
    found = []
    for size in reversed(dims):
        found.append(at % size)
        at = at // size
    return found[::-1]


def _place(dims: tuple[int, ...], places: list[Any], order: tuple[int, ...] = (0, 1, 2, 3)) -> Any:
    at = 0
    for axis in order:
        at = at * dims[axis] + places[axis]
    return at


def _stored(dims: tuple[int, ...], order: tuple[int, ...]) -> Read:
    """Words that lie in another order than the one in which they are read."""

    def read(words: Any, at: Any, size: int) -> Any:
        there = dict(zip(order, _places(tuple(dims[axis] for axis in order), at), strict=True))
        return words[_place(dims, [there[axis] for axis in range(len(dims))])]

    return read


def _ordered(dims: tuple[int, ...], order: tuple[int, ...]) -> Read:
    """Words that are read in another order than the one in which they lie."""
    return lambda words, at, size: words[_place(dims, _places(dims, at), order)]


def _backwards(dims: tuple[int, ...], axes: tuple[int, ...]) -> Read:
    def read(words: Any, at: Any, size: int) -> Any:
        places = _places(dims, at)
        for axis in axes:
            places[axis] = dims[axis] - 1 - places[axis]
        return words[_place(dims, places)]

    return read


def _unpadded(dims: tuple[int, int, int, int]) -> Read:
    """Taps that are numbered row by row, of rows that are stored in whole texels of four."""
    rows, columns, *_ = dims
    stored = -(-columns // 4) * 4

    def read(words: Any, at: Any, size: int) -> Any:
        places = _places(dims, at)
        tap = places[0] * columns + places[1]
        row, column = tap // stored, tap % stored
        inside = (row < rows) & (column < columns)
        return words[_place(dims, [row * inside, column * inside, *places[2:]])] * inside

    return read


def _left_out(step: Step, dims: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """(in words, which bits of a word count): of weights [tap row][tap column][input word]."""
    kept = np.full(dims, -1)
    call = step.call
    channels = call.descs["x"].shape[call.op.channel_dim] // getattr(call.params, "groups", 1)
    last_word = 4 if call.op.family is Family.DEPTHWISE else channels % 4 or 4
    for what, at, mask in (
        ("last word of channels", np.s_[:, :, -1], 0),
        ("first word of channels", np.s_[:, :, 0], 0),
        ("last channel", np.s_[:, :, -1], (1 << 8 * (last_word - 1)) - 1),
        ("channels beyond the last whole word", np.s_[:, :, -1], 0 if last_word < 4 else -1),
        ("last lane of each word", np.s_[:], 0xFFFFFF),
        ("last tap", np.s_[-1, -1], 0),
        ("first tap", np.s_[0, 0], 0),
        ("last row of taps", np.s_[-1], 0),
        ("last column of taps", np.s_[:, -1], 0),
        ("last word of the last tap", np.s_[-1, -1, -1], 0),
    ):
        less = kept.copy()
        less[at] = mask
        if (less != -1).any():
            yield f"without the {what}", less
    number = np.arange(kept.size).reshape(dims)
    for stage in (2, 4, 8, 16, 32):
        if stage <= kept.size:
            yield (
                f"without the last word of every stage of {stage}",
                np.where(number % stage < stage - 1, -1, 0),
            )


def _kept(dims: tuple[int, ...], mask: np.ndarray) -> Read:
    flat = mask.reshape(-1)
    return lambda words, at, size: words[at] & flat[at // dims[3]]


def _texels(dims: tuple[int, ...], turned: bool) -> Read:
    """Texels of four output channels, x: four channels, tap column; y: tap row, input word."""
    rows, columns, depth, outputs = dims
    height, width = rows * depth, outputs // 4 * columns

    def read(words: Any, at: Any, size: int) -> Any:
        i, j, c, o = _places(dims, at)
        y, x = i * depth + c, o // 4 * columns + j
        texel = x * width + y if turned else y * height + x
        inside = texel < height * width
        y, x = texel * inside // width, texel * inside % width
        to = _place(dims, [y // depth, x % columns, y % depth, x // columns * 4 + o % 4])
        return words[to] * inside

    return read

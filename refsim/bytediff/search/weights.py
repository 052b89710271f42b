"""Edits of the weights that a kernel reads: nibbles, taps and channels in another order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np

from refsim.bytediff.search.bench import Step
from refsim.bytediff.search.device import (
    IN_WORDS,
    Told,
    first,
    gathered,
    placed,
    rolled,
    valued,
    words_of,
)
from refsim.ops.base.int4 import HALVES, PAIRS, NibbleBlocks
from refsim.ops.base.traits import Family

#: The class of what is wrong with the halves of bytes, and with where words lie.
NIBBLES_WRONG, _ORDER = "nibbles read wrong", "weights in another order"
_LOW = 0x0F0F0F0F
#: How nibbles of a word are read wrong.
_NIBBLES = {
    "with a nibble's highest bit taken for its sign": valued(lambda word: word ^ 0x88888888),
    "without the highest bit of a nibble": valued(lambda word: word & 0x77777777),
    "at the low nibble of a byte twice": valued(lambda word: (word & _LOW) * 17),
    "at the high nibble of a byte twice": valued(lambda word: (word >> 4 & _LOW) * 17),
}
#: What makes the places of words.
Places = Callable[[], np.ndarray]
_AXES = ("tap row", "tap column", "input word", "output channel")


def nibbles(step: Step) -> Told:
    """Weights of 4 bits, read otherwise."""
    yield from ((NIBBLES_WRONG, f"read {what}", read) for what, read in _NIBBLES.items())
    if (grouped := step.call.op.int4) is not None:
        values, _ = grouped.values(step.call)
        for other, what in _laid_out(grouped.blocks):
            yield "weights laid out for another kernel", what, words_of(other.words(values))
    for name, what, read in IN_WORDS:
        yield NIBBLES_WRONG if name == "byte order" else name, f"read with {what}", read


def _laid_out(own: NibbleBlocks) -> Iterator[tuple[NibbleBlocks, str]]:
    for other in (HALVES, PAIRS):
        if other is not own:
            yield other, f"laid out in {other.name}, read in {own.name}"
            yield replace(own, low=other.low, high=other.high), f"with the rows of a block in {other.name}"
            there = dict(zip((*other.low, *other.high), (*own.low, *own.high), strict=True))
            low, high = (tuple(there[row] for row in rows) for rows in (own.low, own.high))
            turned = replace(own, low=low, high=high)  # type: ignore[arg-type]
            yield turned, f"read with the rows of a block in {other.name}"
    order = "rows" if own.columns_first else "columns"
    yield replace(own, columns_first=not own.columns_first), f"with blocks stored {order} first"
    yield replace(own, low=own.high, high=own.low), "with low and high nibbles exchanged in the words"


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
    number = np.arange(taps * depth * inner).reshape(*kernel, depth, inner)
    for found, what, read in _of_taps(step, number) if depth else ():
        yield found, what, read if number.size == size else first(number.size, read)


def _of_taps(step: Step, number: np.ndarray) -> Told:
    """Weights, which are numbered [tap row][tap column][input word][output channel], as others."""
    places = dict(_ordered(number))
    if step.call.op.family is Family.DEPTHWISE and number.shape[1] % 4:
        places["read as if no row of taps was padded to whole texels"] = partial(_unpadded, number)
    yield from ((_ORDER, what, gathered(made)) for what, made in places.items())
    yield from ((_ORDER, f"read {by:+d} words away", rolled(by)) for by in (1, -1, 4, -4))
    yield _ORDER, "read at the first word of each four", placed(lambda at: at // 4 * 4)


def _ordered(number: np.ndarray) -> Iterator[tuple[str, Places]]:
    """(in words, the place of each word) with the dims of the weights in another order, or backwards."""
    axes = [axis for axis in range(4) if number.shape[axis] > 1]
    sizes = number.squeeze().shape
    _, *others = permutations(range(len(axes)))
    for order in others:
        what = " by ".join(_AXES[axes[dim]] for dim in order)
        yield f"stored {what}", partial(number.reshape(sizes).transpose, order)
        there = number.reshape([sizes[dim] for dim in order])
        yield f"read {what}", partial(there.transpose, np.argsort(order))
    for turned in ((0, 1), (0,), (1,)):
        if any(axis in axes for axis in turned):
            what = " and ".join(f"{_AXES[axis]}s" for axis in turned)
            yield f"read with {what} backwards", partial(np.flip, number, turned)


def _unpadded(number: np.ndarray) -> np.ndarray:
    """Taps that are numbered row by row, of rows that are stored in whole texels of four."""
    rows, columns, *inner = number.shape
    stored = np.pad(number, [(0, 0), (0, -columns % 4), (0, 0), (0, 0)], constant_values=-1)
    return stored.reshape(-1, *inner)[: rows * columns]

"""Rows of a linear operator that pass through a tile of shared memory: kept at another place than they are read from.

Part of "rows read at another stride". Invocations write words of rows to the tile, and read vectors of four rows from
it. A place that several write keeps the last; one that none writes keeps what the stage before left there, or zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction
from refsim.bytediff.rerun import rerun
from refsim.core.launch import Launch
from refsim.ops.base.traits import Family

#: Words of K that pass through the tile at once, and invocations that run one after the other until the next barrier.
STAGE, TOGETHER = 8, 8
#: Calls with more products are left alone.
MOST_PRODUCTS = 1 << 19

Number = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class _Rule:
    """Where word k of the tile's row m is kept: the vector of four rows, and the place in it."""

    what: str
    quad: Number = field(default=lambda m: m // 4)
    within: Number = field(default=lambda m: m % 4)
    word: Number = field(default=lambda k: k)
    longer: int = 0


def _rules() -> Iterator[_Rule]:
    for by in (1, 2, 3, 5, 8):
        yield _Rule(f"the vector of row m: m // {by}, not m // 4", quad=lambda m, by=by: m // by)  # type: ignore[misc]
        yield _Rule(f"the place of row m in it: m % {by}, not m % 4", within=lambda m, by=by: m % by)  # type: ignore[misc]
    yield _Rule("the vector of row m: m * 4, not m // 4", quad=lambda m: m * 4)
    yield _Rule("the vector of row m: m % 4, not m // 4", quad=lambda m: m % 4)
    yield _Rule("the place of row m in it: m // 4, not m % 4", within=lambda m: m // 4)
    yield _Rule("the place of row m in it: 3 - m % 4", within=lambda m: 3 - m % 4)
    for by in (1, -1, -8):
        yield _Rule(f"the words of K {by:+d} vectors further apart", longer=by)
    yield _Rule("word k of K kept as that before", word=lambda k: k - 1)
    yield _Rule("word k of K kept as that behind", word=lambda k: k + 1)


def rows(ev: Evidence) -> Iterator[Prediction]:
    """The buffer, if rows were kept in the tile by another rule."""
    call, launch = ev.call, ev.launch
    if call.op.family not in (Family.LINEAR, Family.FLOAT_LINEAR) or launch is None or call.op.takes_floats:
        return
    x = ev.arrays["x"]
    rows, k = x.reshape(-1, x.shape[-1]).shape
    whole = (
        launch.tile[0] % 4 == 0 and launch.local[0] * launch.local[1] % STAGE == 0 and launch.local[2] == 1
    )
    if not whole or k % 4 or rows * k * call.out.shape[-1] > MOST_PRODUCTS:
        return
    words = np.ascontiguousarray(x.reshape(rows, k)).view(np.int32)
    seen = {words.tobytes()}
    for rule in _rules():
        read = _read(words, launch, rule)
        if read.tobytes() not in seen:
            seen.add(read.tobytes())
            cells = rerun(ev, inputs={"x": read.view(np.int8).reshape(x.shape)})
            if cells is not None:
                yield Prediction(f"rows of x kept in a tile: {rule.what}", cells)


def _read(words: np.ndarray, launch: Launch, rule: _Rule) -> np.ndarray:
    """The words [row, word of K] that come out of the tile."""
    (across, down, _), each = launch.local, launch.tile[0]
    threads, size, quads = across * down, across * each, each // 4
    thread, slot = np.indices((threads, size * STAGE // threads))
    order = np.lexsort((thread.reshape(-1), slot.reshape(-1), thread.reshape(-1) // TOGETHER))
    thread, slot = thread.reshape(-1)[order], slot.reshape(-1)[order]
    k, m = thread // 4 % STAGE, thread % 4 + thread // (4 * STAGE) * 4 + slot * (threads // STAGE)
    quad, length = rule.quad(m), size // 4 + 1
    place = rule.word(k) * (length + rule.longer) + quad % quads * across + quad // quads
    within = rule.within(m)
    kept = (place >= 0) & (place < STAGE * length) & (within >= 0) & (within < 4)
    number = np.arange(size)
    vector = number % each // 4 * across + number // each
    found = np.zeros_like(words)
    for first in range(0, len(words), size):
        tile = np.zeros((STAGE * length, 4), np.int32)
        row = np.minimum(first + m, len(words) - 1)
        mine = number[: len(words) - first]
        for k0 in range(0, words.shape[1], STAGE):
            live = k0 + k < words.shape[1]
            held = np.where(live, words[row, np.minimum(k0 + k, words.shape[1] - 1)], 0)
            tile[place[kept], within[kept]] = held[kept]  # of several the last
            k1 = np.arange(min(STAGE, words.shape[1] - k0))
            found[first + mine, k0 : k0 + len(k1)] = tile[
                k1 * length + vector[mine][:, None], mine[:, None] % 4
            ]
    return found

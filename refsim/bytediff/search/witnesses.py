"""The work items to try an edit on: some that wrote wrong words, the most telling first, and right ones beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from refsim.bytediff.evidence import Evidence, numbered
from refsim.bytediff.invocations import work_items
from refsim.core.buffer import ByteKind
from refsim.core.launch import Launch, Triple

#: So many wrong items and so many right ones are tried.
WRONG, RIGHT = 10, 12
#: What a saturated byte is: many wrong kernels give it.
_SATURATED = (-128, 127, 0)


@dataclass(frozen=True)
class Witness:
    """A work item as (z, y, x), the order in which kernels count, and the words that the right kernel writes there."""

    item: Triple
    words: tuple[int, ...]


@dataclass(frozen=True)
class Witnesses:
    """Items to try an edit on, and those that a survivor must fit: ``every`` one, or a sample.

    ``actual``, ``mask`` and ``wrong_bits`` are all words of the buffer: what it holds, which bits of it are compared,
    and which bits are those of wrong cells.
    """

    wrong: list[Witness]
    right: list[Witness]
    every: list[Witness]
    actual: list[int]
    mask: list[int]
    wrong_bits: list[int]
    fills: tuple[int, ...]

    @classmethod
    def of(cls, ev: Evidence, launch: Launch, most: int) -> Witnesses:
        """Those of a buffer that this launch writes; survivors must fit so many at most."""
        counted = compared(ev)
        each = 4 if ev.desc.is_int8 else 1
        wrong = (ev.differing & counted).reshape(-1, each)
        mask, wrong_bits = (
            _words(np.where(cells, -1, 0), ev.desc.is_int8) for cells in (counted, counted & ev.differing)
        )
        actual = ev.actual.words & mask
        items = np.asarray(work_items(launch), np.int64)
        number = numbered(list(items))
        telling = wrong.sum(1) * 4 - (wrong & np.isin(ev.got.reshape(-1, each), _SATURATED)).sum(1)
        bad = list(_telling(telling, WRONG))
        hit = np.zeros(int(number.max()) + 1, bool)
        hit[number[wrong.any(1)]] = True
        good = np.flatnonzero(~hit[number] & (mask != 0))
        order = np.argsort(number, kind="stable")
        starts = np.searchsorted(number[order], np.arange(len(hit) + 1))

        def witness(word: int) -> Witness:
            at = int(number[word])
            x, y, z = (int(k) for k in items[:, word])
            return Witness((z, y, x), tuple(order[starts[at] : starts[at + 1]].tolist()))

        firsts = order[starts[:-1][np.diff(starts) > 0]]
        sample = firsts[np.linspace(0, len(firsts) - 1, min(len(firsts), most)).astype(np.int64)]
        fills = tuple(dict.fromkeys(_splat(fill, ev.desc.is_int8) for fill in (*ev.fills, 0)))
        return cls(
            _distinct(map(witness, bad)), _distinct(map(witness, _beside(good, bad))),
            [witness(word) for word in sample.tolist()],
            actual.tolist(), mask.view(np.uint32).tolist(), wrong_bits.view(np.uint32).tolist(), fills,
        )  # fmt: skip

    def holds(self, at: int, value: int) -> bool:
        """Whether the buffer holds a word there, as far as it is compared."""
        return 0 <= at < len(self.mask) and not (self.actual[at] ^ value) & self.mask[at]

    def corrects(self, at: int, value: int) -> bool:
        """Whether a word holds what the wrong cells of the buffer hold there."""
        return not (self.actual[at] ^ value) & self.wrong_bits[at]

    def unwritten(self, at: int) -> bool:
        """Whether the buffer holds there what a word may be that nobody wrote."""
        return any(self.holds(at, fill) for fill in self.fills)


def compared(ev: Evidence) -> np.ndarray:
    """The cells that an edit must predict: elements alone, if any of them differs."""
    values = ev.kinds == ByteKind.VALUE
    return values & ev.compared if (ev.differing & values).any() else ev.compared


def _words(cells: np.ndarray, is_int8: bool) -> np.ndarray:
    return cells.astype(np.int8).view(np.int32) if is_int8 else cells.astype(np.int32)


def _splat(fill: int, is_int8: bool) -> int:
    return int(np.int32(fill)) if not is_int8 else int(np.full(4, fill, np.int8).view(np.int32)[0])


def _telling(score: np.ndarray, count: int) -> Iterator[int]:
    """Words from all parts of those with a score, the highest of each part; the highest of all first."""
    at = np.flatnonzero(score > 0)
    parts = [part for part in np.array_split(at, min(count, len(at))) if len(part)]
    best = [(-int(score[part].max()), int(part[np.argmax(score[part])])) for part in parts]
    yield from (word for _, word in sorted(best))


def _beside(good: np.ndarray, bad: list[int]) -> Iterator[int]:
    """Right words: neighbours of wrong ones, the first and the last, and some in between."""
    if not len(good):
        return
    at = np.searchsorted(good, np.array(bad[:3]))
    near = good[np.clip(np.concatenate([at, at - 1]), 0, len(good) - 1)]
    spread = good[np.linspace(0, len(good) - 1, RIGHT).astype(np.int64)]
    yield from dict.fromkeys((*near.tolist(), *spread.tolist()))


def _distinct(found: Iterable[Witness]) -> list[Witness]:
    return list({witness.item: witness for witness in found}.values())

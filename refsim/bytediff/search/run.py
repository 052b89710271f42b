"""The search: every edit on a few work items, the survivors on the whole buffer.

What the kernel computes on the way is counted and decides; the clock is an outer limit alone, so that a busy machine
says the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property, partial
from itertools import chain, islice, takewhile
from operator import index

import numpy as np

from refsim.bytediff.evidence import Evidence
from refsim.bytediff.search import host, launched, loaded
from refsim.bytediff.search.bench import Bench
from refsim.bytediff.search.candidate import Candidate
from refsim.bytediff.search.device import DeviceEdit
from refsim.bytediff.search.whole import predicted
from refsim.bytediff.search.witnesses import Witness, Witnesses

#: How many edits that fit all witnesses, all wrong ones, or some of these are tried on the whole buffer.
MOST_WHOLE, MOST_INSIDE, MOST_PARTS = 2, 4, 3
#: An edit of one item takes so many times the steps of loops that the right kernel takes. Whole buffers that take more
#: than the last number are computed by compiled copies.
TIMES, PLAIN_STEPS = 4, 20_000
#: So many places of a kernel are computed within a second on a usual machine; a call of it costs so many more. A
#: machine that is slower by the last number is waited for.
PLACES_PER_SECOND, EACH_CALL, SLOWER = 30_000_000, 600, 6.0
#: Edits are tried for this share of the time, and for so many seconds at most: what is left is for whole buffers. Where
#: no edit gave any wrong word yet, it is less: of 84 edits that gave a buffer 80 were met within 0.9 s, all within 2.8.
TRIED, HOPELESS = (0.8, 3.0), (0.5, 1.5)
#: Where the cause is known, its line in a kernel is worth so many places.
LINES = 3 * PLACES_PER_SECOND // 2
#: What the edits that give the same are worth that are told beside one.
CONFIRMED = PLACES_PER_SECOND // 2
#: An edit that gives no more than this share of the wrong words of a sample is not worth a whole buffer, which takes
#: seconds to compile.
LEAST_GAIN = 0.1
#: Edits that write elsewhere are tried on the whole buffer: so many, and so many steps of plain Python in all.
MOST_MOVED, MOVED_STEPS = 24, 100_000
#: Of these so many are ranked by what so many items write; what the buffer has otherwise counts for so much.
MOST_RANKED, COMPARED, OTHERWISE = 48, 16, 0.25
#: Pairs of edits are tried where so many items are wrong and no edit gives the buffer: those of so many first ones, of
#: which each gives some of the items, for this share of the time.
LEAST_PAIRED, MOST_PAIRED, PAIRS = 6, 4, 0.08
#: Places are watched on no further items behind so many.
MEASURED = PLACES_PER_SECOND // 30
#: A survivor must fit so many items, fewer if these take more places in all, and so many survivors are looked at.
MOST_EVERY, LEAST_EVERY, PLACES_OF_EVERY, MOST_CONFIRMED = 400, 12, PLACES_PER_SECOND // 8, 40
#: What edits of each kind are tried and told before others: how often they are what people got wrong.
_ORDER = (
    "total", "short", "joined", "folded", "compare", "condition", "constant", "one off", "operand", "name", "order",
    "call", "tie", "fused", "relu", "bound", "unsigned", "lanes", "repeated", "loop", "index", "arguments exchanged",
    "operands exchanged", "values exchanged", "operator", "sign", "type", "rounded up", "subtracted", "clamped twice",
    "scaled bias", "squared", "kept", "last turn", "parentheses", "missing", "statement",
)  # fmt: skip


@dataclass(frozen=True)
class Survivor:
    """An edit, and the words of the buffer that it gives; ``alike`` are edits that give the same."""

    found: Candidate
    words: np.ndarray
    alike: tuple[Candidate, ...] = ()


class Fit(IntEnum):
    """Whether an item writes what the buffer holds; ``OPEN`` where another item may have written later.

    ``INSIDE``: all wrong cells are as the buffer has them, but right ones are not. An edit may hold in a region alone.
    """

    NO, INSIDE, OPEN, YES = range(4)


_HITS = (Fit.INSIDE, Fit.YES)


@dataclass
class EditSearch:
    """The search for the edit that gives one buffer, as long as a usual machine takes ``seconds`` for it.

    Edits fit all witnesses (``whole``), those that wrote wrong words (``inside``), some of these (``parts``, with how
    many), or they write elsewhere (``moved``, with how often that may be so). Where the cause is ``known``, the search
    is for its line. What ``like`` gives is tried first. ``lacking``: the kernel is wrong as it is.
    """

    ev: Evidence
    seconds: float = 10.0
    known: bool = False
    like: Callable[[Bench], Iterable[Candidate]] = lambda bench: ()
    lacking: bool = False
    whole: list[Candidate] = field(default_factory=list)
    inside: list[Candidate] = field(default_factory=list)
    parts: list[tuple[int, Candidate]] = field(default_factory=list)
    moved: list[tuple[int, Candidate]] = field(default_factory=list)
    confirmed: dict[Candidate, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        words = {name: buffer.words for name, buffer in self.ev.inputs.items()}
        self.bench = Bench(self.ev.call, words, self.ev.guards, self.lacking)
        self.last = len(self.bench.steps) - 1
        self.witnesses = Witnesses.of(self.ev, self.bench.steps[-1].launch, MOST_EVERY)
        self.end = time.thread_time() + SLOWER * self.seconds
        #: How many places were computed, and about how many an item takes where all from a step on is made again.
        self.taken, self.places = 0, [0]
        #: How many places may be computed, and after how many no further edit is tried.
        self.most = PLACES_PER_SECOND * self.seconds
        self.end_at: float = LINES if self.known else self.most
        #: Which bits of the buffer are compared, and whether an edit gave all of them.
        self.mask, self.exact = np.array(self.witnesses.mask, np.uint32).view(np.int32), False
        #: How many steps an item may take.
        self.limit = 1 << 40
        #: Whether an item of the edit at hand wrote words that are not its own, and what the last item wrote.
        self.wandered, self.written = False, dict[int, int]()

    @property
    def itself(self) -> bool:
        """Whether the kernel without an edit writes what is wrong in the buffer: it is the one that is wrong."""
        self.bench.choose(self.last)
        return any(self._fit(witness) is Fit.YES for witness in self.witnesses.wrong)

    def survivors(self) -> Iterator[Survivor]:
        """The edits that give the buffer or a part of it, the most likely first."""
        seen = self._measured()
        self.end = time.thread_time() + SLOWER * self.seconds  # kernels are read by now
        likely = list(self.like(self.bench))
        for row in likely:
            self._try(row)
            self.bench.choose(row.step)
        if not any(self._fits_all(row) for row in self.whole[:MOST_WHOLE]):
            self._try_others(likely, seen)
        last = self.taken + CONFIRMED
        rows = takewhile(lambda row: self.taken < last, self.whole[:MOST_CONFIRMED])
        same = [row for row in rows if self._fits_all(row)]
        same.sort(key=lambda row: row.of_host)  # of lines that give the same, a kernel's is told first
        for number, row in enumerate(same, 1):  # an edit that fits a sample may fail on the whole buffer
            if found := list(self._predicted([row], tuple(same[number:]))):
                yield from found
                return
        parts = [row for _, row in sorted(self.parts, key=lambda row: -row[0])]
        moved = [row for _, row in sorted(self.moved, key=lambda row: -row[0])]
        moved[:MOST_RANKED] = sorted(moved[:MOST_RANKED], key=self._agreement, reverse=True)
        cheap = self.bench.cost <= PLAIN_STEPS
        many = min(MOST_MOVED, MOVED_STEPS // max(1, self.bench.cost)) if cheap else MOST_PARTS
        chosen = iter if cheap else partial(filter, self._promising)
        yield from self._predicted(chain(self.whole[:MOST_WHOLE], chosen(moved[:many])))
        inside = sorted(self.inside[:MOST_CONFIRMED], key=lambda row: not self._gives_all(row))
        yield from self._predicted(chosen([*inside[:MOST_INSIDE], *parts[:MOST_PARTS]]))
        if not self.known and not self.exact and len(self.witnesses.wrong) >= LEAST_PAIRED:
            firsts = [row for row in (*parts, *moved, *inside) if row.entry is None]
            pairs = filter(self._fits_all, self._pairs(firsts[:MOST_PAIRED]))
            yield from self._predicted(islice(pairs, MOST_PARTS))

    def _try_others(self, likely: list[Candidate], seen: list[dict[int, int]]) -> None:
        """Try all edits that are not tried yet."""
        for device in self._devices():
            if self._late:
                break
            self._try(Candidate(0, device=device))
        self.bench.choose(0)
        if any(self._fits_all(row) for row in self.whole[:MOST_WHOLE]):
            self.end_at = self.taken + LINES
        elif any(self._gives_all(row) for row in self.inside[:MOST_INSIDE]):
            self.end_at = min(self.end_at, self.taken + LINES)
        for at in reversed(range(self.last + 1)):
            for candidate in self._candidates(at, seen[at]):
                if self._late:
                    break
                if candidate not in likely:
                    self._try(candidate)
            self.bench.choose(at)

    def _devices(self) -> Iterator[DeviceEdit]:
        """The edits of what the kernels are launched with, and of what they read."""
        previous = None if self.ev.previous is None else self.ev.previous.call
        of_host = host.edits(self.bench.steps)
        yield from of_host if self.known else ()  # what is known has no line yet
        yield from launched.edits(self.bench.steps, previous)
        yield from loaded.edits(self.bench.steps, self.bench.inputs, self.ev.others, previous)
        yield from of_host

    def _pairs(self, firsts: list[Candidate]) -> Iterator[Candidate]:
        """Pairs of edits that give all witnesses, where the first one gives some of them."""
        end, wrong = min(self.most, self.taken + PAIRS * self.most), self.witnesses.wrong
        try:
            for first in firsts:
                self._choose(first)
                left = [one for one in wrong if self._fit(one) not in _HITS] or wrong
                rest = [one for one in (*wrong, *self.witnesses.right) if one not in left]
                for row in self._seconds(first):
                    if self.taken > end or time.thread_time() > self.end:
                        return
                    self._choose(row)
                    if all(self._fit(witness) is Fit.YES for witness in (*left, *rest)):
                        yield row
                self.bench.choose(first.step)
        finally:
            for at in range(len(self.bench.steps)):
                self.bench.choose(at)

    def _seconds(self, first: Candidate) -> Iterator[Candidate]:
        """An edit with each other one: of the same kernel, or of what the kernels are launched with."""
        if first.device is not None:
            for at, step in enumerate(self.bench.steps):
                yield from (Candidate(at, edit, device=first.device) for edit in step.schema.edits)
                self.bench.choose(at)
            return
        edits = self.bench.steps[first.step].schema.edits
        yield from (replace(first, edit=edit, also=first.edit) for edit in edits if edit is not first.edit)
        yield from (replace(first, device=device) for device in self._devices())

    def _choose(self, row: Candidate) -> None:
        self.bench.choose(row.step, row.edit, row.entry, row.device, row.also)

    @property
    def _late(self) -> bool:
        """Whether no further edit is tried."""
        some = self.whole or self.inside or self.parts or self.moved
        share, seconds = TRIED if some or self.lacking else HOPELESS
        if self.lacking:  # what it lacks is tried last
            seconds = self.seconds
        end = min(self.end_at, share * self.most, seconds * PLACES_PER_SECOND)
        return self.taken > end or time.thread_time() > self.end

    @property
    def _over(self) -> bool:
        """Whether nothing more is computed."""
        return self.taken > self.most or time.thread_time() > self.end + self.seconds

    @cached_property
    def _every(self) -> list[Witness]:
        """The items that a survivor must fit."""
        every, most = self.witnesses.every, max(LEAST_EVERY, PLACES_OF_EVERY // self.places[0])
        return every[:: -(-len(every) // most)] if every else []

    @cached_property
    def _sample(self) -> tuple[list[Witness], int]:
        """Wrong items and some of all, and how many wrong words these have."""
        every = self.witnesses.every
        chosen = list(dict.fromkeys((*self.witnesses.wrong, *every[:: -(-len(every) // COMPARED)])))
        return chosen, sum(self.witnesses.wrong_bits[at] != 0 for one in chosen for at in one.words)

    def _gain(self, row: Candidate) -> tuple[int, int]:
        """How many wrong words of a sample are as the buffer has them, and how many words are written otherwise."""
        if self._over:
            return 0, 0
        self._choose(row)
        right, other, bits = 0, 0, self.witnesses.wrong_bits
        for witness in self._sample[0]:
            self._fit(witness)
            left = (at for at in witness.words if bits[at] and at not in self.written)
            right += sum(self.witnesses.unwritten(at) for at in left)
            for at, value in self.written.items():
                inside = 0 <= at < len(bits)
                right += inside and bits[at] != 0 and self.witnesses.corrects(at, value)
                other += not (inside and self.witnesses.holds(at, value))
        self.bench.choose(row.step)
        return right, other

    def _gives_all(self, row: Candidate) -> bool:
        """Whether an edit gives every wrong cell of a sample."""
        self._choose(row)
        bits = self.witnesses.wrong_bits
        wrong = (one for one in self._sample[0] if any(bits[at] for at in one.words))
        found = not self._over and all(self._fit(one) in _HITS for one in wrong)
        self.bench.choose(row.step)
        return found

    def _promising(self, row: Candidate) -> bool:
        """Whether an edit gives enough of the wrong words of a sample to be worth the whole buffer."""
        return self._over or self._gain(row)[0] > LEAST_GAIN * self._sample[1]

    def _agreement(self, row: Candidate) -> float:
        """The gain, less what is written otherwise. That counts for less: another item may write there later."""
        right, other = self._gain(row)
        return right - OTHERWISE * other

    def _predicted(self, rows: Iterable[Candidate], alike: tuple[Candidate, ...] = ()) -> Iterator[Survivor]:
        for number, row in enumerate(rows):
            if number and self._over:
                return
            fills, actual = self.witnesses.fills, self.ev.actual.words
            words = predicted(self.bench, row, fills, actual, PLAIN_STEPS)
            if words is not None:
                self.exact |= not np.any((words ^ actual) & self.mask)
                yield Survivor(row, words, alike)

    def _measured(self) -> list[dict[int, int]]:
        """Which places of each step's kernel the right one reaches on the witnesses; its steps are counted as well."""
        schemas = [step.schema for step in self.bench.steps]
        self.bench.choose(self.last)
        for schema in schemas:
            schema.forget()
            schema.watching(True)
            schema.left[0] = 1 << 60
        most, wrong = 0, self.witnesses.wrong
        for items, witness in enumerate((*wrong[:2], *self.witnesses.right, *wrong[2:]), 1):
            before = sum(schema.left[0] for schema in schemas)
            self.bench.forget(every=True)
            self.bench.stores(self.last, witness.item)
            most = max(most, before - sum(schema.left[0] for schema in schemas))
            rest = ({step.schema for step in self.bench.steps[at:]} for at in range(len(schemas)))
            self.places = [sum(schema.places for schema in made) // items + EACH_CALL for made in rest]
            if items * self.places[0] > MEASURED:
                break
        self.limit = TIMES * most + 64
        self.bench.cost = most * int(np.prod(self.bench.steps[-1].launch.reached))
        for schema in schemas:
            schema.watching(False)
        return [schema.seen for schema in schemas]

    def _candidates(self, at: int, seen: dict[int, int]) -> list[Candidate]:
        """The edits of places that are reached with such values, the likely kinds first."""
        schema = self.bench.steps[at].schema
        found = list[tuple[tuple[bool, bool, int, int], Candidate]]()
        for edit in schema.edits:
            if edit.made.wants & seen.get(edit.copy.at[edit.old][0].number, 0):
                for entry in (None, *schema.alone(edit)):
                    moves, kind = schema.moves(edit, entry), _ORDER.index(edit.made.kind)
                    order = (moves, entry is not None, kind, edit.number)
                    found.append((order, Candidate(at, edit, entry)))
        rows = [row for _, row in sorted(found, key=lambda row: row[0])]
        return rows

    def _try(self, row: Candidate) -> None:
        """Run an edit on the witnesses, wrong ones first; it is kept if it gives some of them."""
        self.wandered = False
        self._choose(row)
        wrong, right = self.witnesses.wrong, self.witnesses.right
        first = self._fit(wrong[0])
        if self._moves(row):
            some = [first, *(self._fit(witness) for witness in (*wrong[1:2], *right[:1]))]
            if self.wandered:  # what an item writes may be written again by another one
                self.moved.append((sum(some), row))
                return
        if first is Fit.NO and (len(wrong) == 1 or self.whole or self._fit(wrong[-1]) is Fit.NO):
            return
        fits = [first, *(self._fit(witness) for witness in wrong[1:])]
        hits = sum(fit in _HITS for fit in fits)
        if Fit.NO in fits:
            if hits:
                self.parts.append((hits, row))
            return
        around = [] if Fit.INSIDE in fits else [self._fit(witness) for witness in right]
        if Fit.INSIDE in fits or Fit.NO in around:
            self.inside.append(row)
        elif Fit.OPEN in fits or Fit.OPEN in around:
            self.moved.append((hits + sum(around), row))
        else:
            self.whole.append(row)

    def _moves(self, row: Candidate) -> bool:
        """Whether an edit may change the place of what is written."""
        if row.device is not None and row.device.moves:
            return True
        return row.edit is not None and self.bench.steps[row.step].schema.moves(row.edit, row.entry)

    def _fits_all(self, row: Candidate) -> bool:
        """Whether an edit gives what every item writes, or a sample of these."""
        if row not in self.confirmed and not self._over:
            self._choose(row)
            self.confirmed[row] = all(self._fit(witness) >= Fit.OPEN for witness in self._every)
            self.bench.choose(row.step)
        return self.confirmed.get(row, False)

    def _fit(self, witness: Witness) -> Fit:
        """Whether the chosen edit makes a work item write what the buffer holds."""
        for step in self.bench.steps:
            step.schema.left[0] = self.limit
        self.bench.forget()
        held: dict[int, int] | None
        try:
            out = self.bench.stores(self.last, witness.item)
            held = {index(at): int(value) for at, value in out.items()}
        except Exception:  # whatever stops a wrong kernel
            held = None
        self.written = held or {}
        self.taken += self.places[min(self.bench.first, len(self.places) - 1)]
        if held is None:
            return Fit.NO
        open_ = Fit.OPEN if self.bench.missed else Fit.NO
        own = [at for at in witness.words if at in held]
        elsewhere = [at for at in held if at not in witness.words]
        self.wandered |= bool(elsewhere) or self.bench.missed
        if not all(self.witnesses.holds(at, held[at]) for at in own):
            wrong = [at for at in witness.words if self.witnesses.wrong_bits[at]]
            corrected = wrong and all(at in held and self.witnesses.corrects(at, held[at]) for at in wrong)
            return Fit.INSIDE if corrected and not elsewhere else open_
        free = all(self.witnesses.unwritten(at) for at in witness.words if at not in held)
        if elsewhere:
            return (
                Fit.YES if free and all(self.witnesses.holds(at, held[at]) for at in elsewhere) else Fit.OPEN
            )
        return Fit.YES if free else open_

"""The search: every edit on a few work items, the survivors on the whole buffer.

Steps of loops are counted and decide; seconds are an outer limit alone, so that a busy machine says the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from operator import index

import numpy as np

from refsim.bytediff.evidence import Evidence
from refsim.bytediff.search.bench import Bench
from refsim.bytediff.search.schema import Edit
from refsim.bytediff.search.whole import predicted
from refsim.bytediff.search.witnesses import Witness, Witnesses

#: How many edits that fit all witnesses, all wrong ones, or some of these are tried on the whole buffer.
MOST_WHOLE, MOST_INSIDE, MOST_PARTS = 2, 2, 3
#: A search takes so many steps of loops on witnesses at most, and an edit of one item so many times those of the right
#: kernel. Whole buffers that take more than the last number are computed by compiled copies.
MOST_STEPS, TIMES, PLAIN_STEPS = 400_000, 4, 20_000
#: A survivor must fit so many items, and so many survivors are looked at.
MOST_EVERY, MOST_CONFIRMED = 400, 40
#: What edits of each kind are tried and told before others: how often they are what people got wrong.
_ORDER = (
    "compare", "condition", "constant", "operand", "name", "order", "call", "fused", "relu", "bound", "unsigned",
    "lanes", "loop", "index", "arguments exchanged", "operands exchanged", "values exchanged", "operator", "sign",
    "type", "rounded up", "statement",
)  # fmt: skip


@dataclass(frozen=True)
class Survivor:
    """An edit of a step, and the words of the buffer that it gives; ``alike`` are edits that give the same."""

    step: int
    edit: Edit
    words: np.ndarray
    alike: tuple[Edit, ...] = ()


@dataclass
class Search:
    """The search for the edit that gives one buffer; ``seconds`` ends it where its steps do not."""

    ev: Evidence
    seconds: float = 10.0
    whole: list[tuple[int, Edit]] = field(default_factory=list)
    inside: list[tuple[int, Edit]] = field(default_factory=list)
    parts: list[tuple[int, int, Edit]] = field(default_factory=list)

    def __post_init__(self) -> None:
        words = {name: buffer.words for name, buffer in self.ev.inputs.items()}
        self.bench = Bench(self.ev.call, words)
        self.end = time.monotonic() + self.seconds
        self.taken = 0

    @cached_property
    def witnesses(self) -> Witnesses:
        return Witnesses.of(self.ev, self.bench.steps[-1].launch, MOST_EVERY)

    def survivors(self) -> Iterator[Survivor]:
        """The edits that give the buffer or a part of it, the most likely first."""
        seen = self._measured()
        for at in reversed(range(len(self.bench.steps))):
            for edit in self._edits(at, seen[at]):
                if self.taken > MOST_STEPS or time.monotonic() > self.end:
                    break
                self._tried(at, edit)
            self.bench.choose(at, None)
        same = [row for row in self.whole[:MOST_CONFIRMED] if self._fits_all(*row)]
        self.parts.sort(key=lambda row: -row[0])
        chosen = same[:1] or [
            *self.whole[:MOST_WHOLE], *self.inside[:MOST_INSIDE], *(row[1:] for row in self.parts[:MOST_PARTS])
        ]  # fmt: skip
        for at, edit in chosen:
            if time.monotonic() > self.end:
                break
            words = predicted(self.bench, at, edit, self.witnesses.fills, self.ev.actual.words, PLAIN_STEPS)
            if words is not None:
                yield Survivor(at, edit, words, tuple(edit for _, edit in same[1:]))

    def _measured(self) -> list[dict[int, int]]:
        """Which places of each step's kernel the right one reaches on the witnesses; its steps are counted as well."""
        schemas = [step.schema for step in self.bench.steps]
        self.bench.choose(len(schemas) - 1, None)
        for schema in schemas:
            schema.seen.clear()
            schema.watching(True)
            schema.left[0] = 1 << 60
        items = [*self.witnesses.wrong, *self.witnesses.right]
        self.most = 0
        for witness in items:
            before = sum(schema.left[0] for schema in schemas)
            self.bench.stores(len(schemas) - 1, witness.item)
            self.most = max(self.most, before - sum(schema.left[0] for schema in schemas))
        self.bench.steps_each[self.bench.steps[-1].output] = self.most
        for schema in schemas:
            schema.watching(False)
        return [dict(schema.seen) for schema in schemas]

    def _edits(self, at: int, seen: dict[int, int]) -> list[Edit]:
        """The edits of places that are reached with such values, the likely kinds first."""
        schema, found = self.bench.steps[at].schema, list[Edit]()
        for copy in schema.copies.values():
            for edits in copy.at.values():
                kind = seen.get(edits[0].number, 0)
                found += [edit for edit in edits if edit.made.wants & kind]
        return sorted(found, key=lambda edit: (_ORDER.index(edit.made.kind), edit.number))

    def _tried(self, at: int, edit: Edit) -> None:
        """Run an edit on the witnesses, wrong ones first; it is kept if it gives some of them."""
        self.bench.choose(at, edit)
        wrong, right = self.witnesses.wrong, self.witnesses.right
        last = len(wrong) > 1 and not self.whole
        if not self._gives(wrong[0]) and not (last and self._gives(wrong[-1])):
            return
        hits = [self._gives(witness) for witness in wrong]
        if not all(hits):
            self.parts.append((sum(hits), at, edit))
        elif all(self._gives(witness) for witness in right):
            self.whole.append((at, edit))
        else:
            self.inside.append((at, edit))

    def _fits_all(self, at: int, edit: Edit) -> bool:
        """Whether an edit gives what every item writes, or a sample of these."""
        self.bench.choose(at, edit)
        found = time.monotonic() < self.end and all(self._gives(witness) for witness in self.witnesses.every)
        self.bench.choose(at, None)
        return found

    def _gives(self, witness: Witness) -> bool:
        """Whether the chosen edit makes a work item write what the buffer holds."""
        limit = TIMES * self.most + 64
        for step in self.bench.steps:
            step.schema.left[0] = limit
        self.bench.forget()
        held: dict[int, int] | None
        try:
            out = self.bench.stores(len(self.bench.steps) - 1, witness.item)
            held = {index(at): int(value) for at, value in out.items()}
        except Exception:  # whatever stops a wrong kernel
            held = None
        self.taken += sum(limit - step.schema.left[0] for step in self.bench.steps)
        if held is None:
            return False
        own = [at for at in witness.words if at in held]
        if not all(self.witnesses.holds(at, held[at]) for at in own):
            return False
        elsewhere = [at for at in held if at not in witness.words]
        if elsewhere:
            return any(self.witnesses.holds(at, held[at]) for at in elsewhere)
        return all(self.witnesses.unwritten(at) for at in witness.words if at not in held)

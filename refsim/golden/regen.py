"""Renew the corpus from its rules: first find out what would change, then write it and record the reason."""

from __future__ import annotations

import datetime
import io
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from refsim.core import atomic_write
from refsim.core.errors import ParameterError
from refsim.formats.cases import add_to_zip, contents
from refsim.golden.rules import RULES, case
from refsim.golden.store import SUMS, Corpus, Entry, digest, line, write_sums
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.registry import OPS

CHANGELOG = "CHANGELOG.md"
MAX_CASE_BYTES = 24_000
LEAST_PER_LAYOUTS, LEAST_PER_OPERATOR = 4, 40


@dataclass
class Change:
    """How the digests of one operator change."""

    op: str
    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    redrawn: list[str] = field(default_factory=list)  # another case under the same number
    changed: list[str] = field(default_factory=list)  # the same case, other bytes: the meaning changed

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.redrawn or self.changed)

    def lines(self) -> Iterator[str]:
        for what in ("added", "removed", "redrawn", "changed"):
            names = getattr(self, what)
            if names:
                some = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
                yield f"{self.op}: {len(names)} {what}: {some}"


@dataclass(frozen=True)
class Planned:
    """One operator's new files and how they differ from the old."""

    change: Change
    digests: bytes
    cases: bytes


def plan(op: str, corpus: Corpus | None) -> Planned:
    """Compute an operator's part of the corpus without writing anything."""
    entries, whole = [], io.BytesIO()
    chosen = _Chosen(op)
    with zipfile.ZipFile(whole, "w") as archive:
        for number in range(RULES[op].count):
            bound = bind(case(op, number))
            expected = bound.call.expected(bound.inputs)
            entries.append(Entry(number, bound.case, digest(bound.call, expected)))
            if chosen.wants(number, bound):
                add_to_zip(archive, f"{number:04d}", contents(bound, expected))
    old = {e.number: e for e in corpus.entries(op)} if corpus is not None and op in corpus.operators() else {}
    text = "".join(line(entry) + "\n" for entry in entries)
    return Planned(_change(op, old, entries), text.encode("ascii"), whole.getvalue())


def _change(op: str, old: dict[int, Entry], new: Sequence[Entry]) -> Change:
    change = Change(op)
    for entry in new:
        before = old.pop(entry.number, None)
        if before is None:
            change.added.append(entry.name)
        elif before.sha256 != entry.sha256:
            alike = line(Entry(entry.number, before.case, "")) == line(Entry(entry.number, entry.case, ""))
            (change.changed if alike else change.redrawn).append(entry.name)
        elif line(before) != line(entry):
            change.redrawn.append(entry.name)
    change.removed.extend(entry.name for entry in old.values())
    return change


class _Chosen:
    """Which cases are stored in full: some small ones of each combination of layouts, spread over its cases."""

    def __init__(self, op: str) -> None:
        self._combinations = len(OPS[op].layouts)
        self._per_layouts = max(LEAST_PER_LAYOUTS, LEAST_PER_OPERATOR // self._combinations)
        slots = RULES[op].count // self._combinations
        spread = [(5 + 37 * k) % slots for k in range(self._per_layouts + 3)]  # a few spare ones
        self._preferred = frozenset(spread)
        self._taken: Counter[int] = Counter()

    def wants(self, number: int, bound: BoundCase) -> bool:
        slot, combination = divmod(number, self._combinations)
        if slot not in self._preferred or self._taken[combination] == self._per_layouts:
            return False
        size = bound.call.out.nbytes + sum(b.desc.nbytes for b in bound.inputs.values())
        size += sum(value.nbytes for value in bound.call.consts.values() if value is not None)
        if size > MAX_CASE_BYTES:
            return False
        self._taken[combination] += 1
        return True


def write(root: Path, plans: Sequence[Planned], reason: str, today: datetime.date | None = None) -> None:
    """Write the planned files, the changelog and the sums. ParameterError without a reason."""
    if not reason.strip():
        raise ParameterError(
            "golden regen", "needs a reason", need="--reason TEXT, which goes into the changelog"
        )
    for folder in ("digests", "cases"):
        atomic_write.make_folder(root / folder)
    for planned in plans:
        atomic_write.write(root / "digests" / f"{planned.change.op}.jsonl", planned.digests)
        atomic_write.write(root / "cases" / f"{planned.change.op}.zip", planned.cases)
    log = root / CHANGELOG
    before = (
        log.read_text()
        if log.exists()
        else "# Changes of the corpus\n\nNewest last; written by `refsim golden regen`.\n"
    )
    rows = "".join(f"- {row}\n" for planned in plans for row in planned.change.lines())
    head = f"\n## {today or datetime.date.today()}: {' '.join(reason.split())}\n\n"
    atomic_write.write(log, (before + head + rows).encode())
    write_sums(root)


def existing(root: Path) -> Corpus | None:
    """The corpus in this folder, or None."""
    return Corpus(root) if (root / SUMS).is_file() else None

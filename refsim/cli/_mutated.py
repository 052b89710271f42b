"""What `refsim mutate` found, as values, and their text; tests/mutants makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.core.meanings import OwnId, Seconds
from refsim.core.plain import Column
from refsim.core.result import Command, Comparison, Result, Table, Text

OUTCOME = ("mutant", "bug", "place", "subject", "outcome", "case", "rank", "cause")


@dataclass(frozen=True)
class SeededBug:
    """A known bug, as docs/mutants.md lists it."""

    mutant: Annotated[OwnId, Column()]
    bug: Annotated[str, "The kind of bug.", Column(drop=2)]
    place: Annotated[str, "The part of the sources that it is put into.", Column(drop=1)]
    subject: Annotated[str, "The operator, or what else is run.", Column(drop=3)]
    files: Annotated[str, "The files that it changes, with spaces between them.", Column()]


@dataclass(frozen=True, kw_only=True)
class SeededOutcome:
    """What became of a known bug."""

    id: OwnId
    bug: Annotated[str, "The kind of bug."]
    place: Annotated[str, "The part of the sources that it is put into."]
    executor: Annotated[str, "What ran the cases."]
    subject: Annotated[str, "The operator, or what else was run."]
    files: Annotated[Sequence[str], "The files that it changes."]
    killed: Annotated[bool, "Whether a case noticed it."]
    how: Annotated[str, "In which way, or that it survived."]
    case: Annotated[str | None, "The case that noticed it."]
    tried: Annotated[int, "How many cases ran."]
    differing: Annotated[int, "Cells of the case that differ."]
    true_causes: Annotated[Sequence[str], "Causes that are true."]
    causes: Annotated[Sequence[str], "The first causes that were named."]
    rank: Annotated[int | None, "Place of the first true one, from 1; null if it is none of them."]
    message: Annotated[str, "What was said where no buffer was compared."]
    seconds: Seconds

    def cells(self) -> tuple[object, ...]:
        cause = self.causes[0] if self.causes else self.message
        return (self.id, self.bug, self.place, self.subject, self.how, self.case, self.rank, cause)


@dataclass(frozen=True)
class ListedBugs(Result):
    """With --list: the known bugs."""

    mutants: Annotated[Sequence[SeededBug], "The known bugs."]

    def text(self) -> Text:
        yield Table.of(SeededBug, self.mutants)


@dataclass(frozen=True, kw_only=True)
class TriedBugs(Comparison):
    """What became of the known bugs."""

    mutants: Annotated[Sequence[SeededOutcome], "The known bugs."]
    left_out: Annotated[Mapping[str, str], "What cannot run here, and why."]
    survived: Annotated[Sequence[str], "Ids."]
    unnamed: Annotated[Sequence[str], "Ids of those whose cause was not named."]

    def text(self) -> Text:
        yield Table(OUTCOME, [row.cells() for row in self.mutants], drop=("place", "subject", "bug", "case"))
        yield from (f"left out: mutants of {place}: {reason}" for place, reason in self.left_out.items())
        yield from (f"killed, but the first causes are others: {name}" for name in self.unnamed)
        for name in self.survived:
            yield f"survived: {name}"
            yield Command(f"  refsim mutate --id {name}")
        killed = len(self.mutants) - len(self.survived)
        named = f"true cause among the first three of {killed - len(self.unnamed)}"
        yield f"{killed} of {len(self.mutants)} killed; {named}"


@dataclass(frozen=True)
class RandomChange:
    """A change drawn at random."""

    id: Annotated[OwnId, Column("change")]
    area: Annotated[str, "The part of the sources.", Column()]
    file: Annotated[str, "The file that it changes."]
    line: Annotated[int, "The line."]
    kind: Annotated[str, "The kind of change."]
    what: Annotated[str, "The change in words.", Column()]


@dataclass(frozen=True)
class RandomVerdict:
    """What became of a change."""

    id: OwnId
    area: Annotated[str, "The part of the sources."]
    what: Annotated[str, "The change in words."]
    verdict: Annotated[str, "What noticed it, that it survived, or that it is no bug."]
    by: Annotated[str, "The case, value or test that noticed it."] = ""
    said: Annotated[str, "How it was noticed, or why it is no bug."] = ""
    cause: Annotated[str, "The true cause, as it was named; empty if it was not."] = ""
    region: Annotated[str, "The true region, as it was named; empty if it was not."] = ""
    causes: Annotated[tuple[str, ...], "The first causes that were named."] = ()
    pattern: Annotated[tuple[str, ...], "What the differences have in common."] = ()
    seconds: Seconds = 0.0
    place: Annotated[
        str, "Whether the place that was told is the changed one; empty if none could be told."
    ] = ""
    reports: Annotated[tuple[float, ...], "Seconds that each report took."] = ()


@dataclass(frozen=True, kw_only=True)
class RandomTotal:
    """The changes of one area, or of all."""

    area: Annotated[str, "The part of the sources, or `all`."]
    drawn: Annotated[int, "How many changes there are."]
    invalid: Annotated[int, "Of which no program can be made."]
    equivalent: Annotated[int, "Which change no byte."]
    corpus: Annotated[int, "Noticed by a case of the corpus."]
    models: Annotated[int, "Noticed by a model."]
    tests: Annotated[int, "Noticed by a test."]
    survived: Annotated[int, "Noticed by nothing."]
    noticed: Annotated[int, "How many were noticed."]
    named: Annotated[int, "Of how many the cause or the region was named."]
    reported: Annotated[int, "Noticed by a case or a model, which a report is made of."]
    places: Annotated[int, "Of how many a report could tell the place."]
    placed: Annotated[int, "Of how many it was right."]
    among_equals: Annotated[int, "Of how many it, or one of the edits with the same bytes, was right."]
    repaired: Annotated[int, "The same, with the shaders whose line a search for a repair told."]
    seconds: Annotated[tuple[float, float] | None, "Of a report: the median, and what 95 % did not exceed."]


@dataclass(frozen=True)
class ListedChanges(Result):
    """With --random and --list: the changes."""

    random: Annotated[Sequence[RandomChange], "The changes."]

    def text(self) -> Text:
        yield Table.of(RandomChange, self.random)


@dataclass(frozen=True, kw_only=True)
class TriedChanges(Comparison):
    """With --random: what became of the changes."""

    random: Annotated[Sequence[RandomVerdict], "The changes."]
    seed: Annotated[int, "The seed."]
    left_out: Annotated[Mapping[str, str], "What cannot run here, and why."]
    totals: Annotated[Sequence[RandomTotal], "Counts by area, and of all."]
    survived: Annotated[Sequence[str], "Ids."]
    rows: Table
    summary: Table

    def text(self) -> Text:
        yield self.rows
        yield from (f"left out: {area}: {reason}" for area, reason in self.left_out.items())
        for each in self.random:
            if each.id in self.survived:
                yield f"survived: {each.what}"
                yield Command(f"  refsim mutate --random-id {each.id}")
        yield self.summary

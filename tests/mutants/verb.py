"""What `refsim mutate` does in a checkout: choose bugs or draw changes, run them, show, record or list them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from mutants import objects, page, record, run
from mutants.bugs import BUGS, GPU, PLACES
from mutants.generated import sample, trial
from mutants.generated.change import Change
from mutants.generated.targets import AREAS
from mutants.generated.trial import EQUIVALENT, INVALID, LIVES, Verdict
from mutants.mutant import Mutant
from mutants.seeded import ALL
from mutants.tree import ONE_THREAD
from refsim.cli._mutated import (
    ListedBugs,
    ListedChanges,
    RandomChange,
    SeededBug,
    TriedBugs,
    TriedChanges,
)
from refsim.cli.kit.text import wrote
from refsim.core import choices
from refsim.core.doing import progress
from refsim.core.errors import MissingDependencyError, ParameterError, RefsimError
from refsim.core.result import Table
from refsim.exec.process import ProcessError, Worker
from refsim.exec.runner import Caller
from refsim.exec.task_threads import ProcessServer, served

Row = tuple[str, Change]
COLUMNS = ("change", "verdict", "by", "named", "first cause, or what was said")


def mutate(
    ids: Sequence[str],
    bugs: Sequence[str],
    places: Sequence[str],
    workers: int,
    listing: bool,
    keep: bool,
) -> TriedBugs | ListedBugs:
    """The verb without ``--random``; its options as `refsim.cli.mutate` explains them."""
    chosen = _chosen(ids, bugs, places)
    if listing:
        return ListedBugs([
            SeededBug(m.id, m.bug, m.place, m.subject, " ".join(sorted({e.file for e in m.edits}))) for m in chosen
        ])  # fmt: skip
    left_out = _left_out(chosen, explicit=bool(ids or places))
    chosen = [mutant for mutant in chosen if mutant.place not in left_out]
    outcomes = []
    with progress("mutants", len(chosen)) as advance:
        for outcome in run.run_all(chosen, workers):
            outcomes.append(outcome)
            advance()
    if keep:
        page.renew(record.renew(outcomes))
    survived = [outcome.mutant.id for outcome in outcomes if not outcome.killed]
    unnamed = [outcome.mutant.id for outcome in outcomes if outcome.killed and not outcome.named]
    return TriedBugs(
        mutants=[outcome.row() for outcome in outcomes], left_out=left_out,
        survived=survived, unnamed=unnamed, same=not survived,
    )  # fmt: skip


def mutate_randomly(
    count: int,
    seed: int,
    ids: Sequence[str],
    areas: Sequence[str],
    part: str | None,
    first: int | None,
    workers: int,
    results: str | None,
    no_tests: bool,
    listing: bool,
    keep: bool,
) -> TriedChanges | ListedChanges:
    """The verb with ``--random``: draw ``count`` changes by ``seed``, or take those of ``ids``; run them."""
    _known("--area", areas, AREAS)
    rows = [sample.named(id) for id in ids] or sample.drawn(count, seed, tuple(areas))
    rows = _part(rows, part)[:first]
    if listing:
        return ListedChanges([RandomChange(c.id, area, c.file, c.line, c.kind, str(c)) for area, c in rows])
    missing = run.missing(GPU) if any(area == "shaders" for area, _ in rows) else None
    left_out = {} if missing is None else {"shaders": missing}
    kept = [row for row in rows if row[0] not in left_out]
    if missing is not None and (ids or areas or not kept):
        raise MissingDependencyError("mutate", missing)
    found = list(_verdicts(kept, workers, results, not no_tests))
    if results is not None:
        wrote(results)
    if keep:
        record.write(found, count, seed, left_out, first)
    survived = [each.id for each in found if each.verdict == LIVES]
    totals = record.totals(found)
    return TriedChanges(
        random=found, seed=seed, left_out=left_out, totals=totals, survived=survived, same=not survived,
        rows=Table(COLUMNS, list(map(_row, found))), summary=Table(tuple(page.COLUMNS), list(map(page.cells, totals))),
    )  # fmt: skip


def _known(option: str, given: Sequence[str], names: Iterable[str]) -> None:
    """click.BadParameter, worded as click words it, for what is not a choice."""
    for value in given:
        if value not in names:
            held = list(names)
            cut = choices.listed(held) != ", ".join(held) and not choices.meant(value, held)
            more = "; refsim mutate --list shows all" if cut else ""
            raise click.BadParameter(
                f"{value!r} is not one of {choices.need(value, held)}{more}", param_hint=f"'{option}'"
            )


# --- known bugs ------------------------------------------------------------------------------------------


def _chosen(ids: Sequence[str], bugs: Sequence[str], places: Sequence[str]) -> list[Mutant]:
    _known("--bug", bugs, BUGS)
    _known("--executor", places, PLACES)
    for name in ids:
        if name not in ALL:
            need = f"one that --list names{choices.meant(name, ALL)}"
            raise ParameterError("mutate", "no such mutant", got=name, need=need)
    found = [
        mutant
        for mutant in ALL.values()
        if (not ids or mutant.id in ids)
        and (not bugs or mutant.bug in bugs)
        and (not places or mutant.place in places)
    ]
    if not found:
        raise ParameterError("mutate", "no mutant is all of that", need="one that --list names")
    return found


def _left_out(chosen: Sequence[Mutant], explicit: bool) -> dict[str, str]:
    """Place -> why its mutants cannot be run here.

    MissingDependencyError for what was asked for by name, and where nothing is left.
    """
    reasons = {place: run.missing(place) for place in {mutant.place for mutant in chosen}}
    found = {place: reason for place, reason in reasons.items() if reason is not None}
    if found and (explicit or len(found) == len(reasons)):
        raise MissingDependencyError("mutate", "; ".join(f"{place}: {why}" for place, why in found.items()))
    return found


# --- random changes --------------------------------------------------------------------------------------


def _part(rows: list[Row], part: str | None) -> list[Row]:
    """Every K-th row from row I on, of ``I/K``."""
    if part is None:
        return rows
    first, _, step = part.partition("/")
    if not (first.isdecimal() and step.isdecimal() and 0 <= int(first) < int(step)):
        raise ParameterError("mutate --part", "not a part", got=part, need="I/K with I from 0 to K - 1")
    return rows[int(first) :: int(step)]


def _verdicts(rows: Sequence[Row], workers: int, results: str | None, tests: bool) -> Iterator[Verdict]:
    """The verdicts in the order of the rows; those that ``results`` has already are not found again.

    Each is kept as soon as it is found. What fails in this program stops no other change: it is told at the end.
    """
    path = Path(results) if results else None
    known = {each.id: each for each in record.read_verdicts(path)} if path else {}
    todo = [row for row in rows if row[1].id not in known]
    failed: list[str] = []
    with (
        progress("mutants", len(rows)) as advance,
        TemporaryDirectory(prefix="refsim-mutant-objects-") as held,
    ):
        for _ in range(len(rows) - len(todo)):
            advance()
        servers = [_Trying(held, tests) for _ in range(max(1, min(workers, len(todo))))]
        for row, found in served("mutate", todo, servers):
            advance()
            if isinstance(found, RefsimError):
                failed.append(f"{row[0]} {row[1].id}: {found}")
                continue
            known[found.id] = found
            if path:
                record.append(path, found)
    if failed:
        raise ProcessError("mutate", f"{len(failed)} changes could not be tried", got="; ".join(failed))
    yield from (known[change.id] for _, change in rows)


class _Trying(ProcessServer):
    """A process that tries changes: a diff takes as long as a case, and threads would wait for each other there."""

    def __init__(self, held: str, tests: bool) -> None:
        around = {**ONE_THREAD, objects.FOLDER: held}
        super().__init__(lambda _: Worker(Caller, where="mutate", environment=around, keep_stderr=True))
        self._tests = tests

    def serve(self, row: Row) -> list[tuple[Row, Verdict | RefsimError]]:
        """What became of a change; an error of the process is told, and the next change gets another one."""
        try:
            return [(row, self.worker().call("call", trial.run, *row, self._tests))]
        except RefsimError as error:
            return [(row, error)]


def _row(each: Verdict) -> Sequence[object]:
    said = each.causes[0] if each.causes else each.said
    named = "-" if each.verdict in (INVALID, EQUIVALENT) else ("yes" if each.named else "no")
    return (each.id, each.verdict, each.by, named, " ".join(said.split()))

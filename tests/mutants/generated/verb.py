"""What `refsim mutate --random` does: draw changes, run them, show, keep and record what became of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from mutants import objects
from mutants import run as seeded
from mutants.bugs import GPU
from mutants.generated import record, sample
from mutants.generated.change import Change
from mutants.generated.targets import AREAS
from mutants.generated.trial import EQUIVALENT, INVALID, Verdict, run
from mutants.tree import ONE_THREAD
from mutants.verb import known
from refsim.cli._mutated import ListedChanges, RandomChange, TriedChanges
from refsim.cli.kit.text import wrote
from refsim.core.doing import progress
from refsim.core.errors import MissingDependencyError, ParameterError, RefsimError
from refsim.core.result import Table
from refsim.exec.process import ProcessError, Worker
from refsim.exec.runner import Caller

Row = tuple[str, Change]
COLUMNS = ("change", "verdict", "by", "named", "first cause, or what was said")


def mutate(
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
    """Draw ``count`` changes by ``seed``, or take those of ``ids``; run them."""
    known("--area", areas, AREAS)
    rows = [sample.named(id) for id in ids] or sample.drawn(count, seed, tuple(areas))
    rows = _part(rows, part)[:first]
    if listing:
        return _list(rows)
    left_out = {}
    missing = seeded.missing(GPU)
    if missing is not None and any(area == "shaders" for area, _ in rows):
        if ids or areas:
            raise MissingDependencyError("mutate", missing)
        left_out = {"shaders": missing}
        rows = [row for row in rows if row[0] != "shaders"]
        if not rows:
            raise MissingDependencyError("mutate", missing)
    found = list(_verdicts(rows, workers, results, not no_tests))
    if results is not None:
        wrote(results)
    summary = record.summary(found)
    if keep:
        record.write(found, count, seed, left_out, first)
    survived = [each.id for each in found if each.verdict == "survived"]
    return TriedChanges(
        random=found, seed=seed, left_out=left_out,
        totals=[total.row() for total in summary], survived=survived, same=not survived,
        rows=Table(COLUMNS, list(map(_row, found))),
        summary=Table(record.COLUMNS, [total.cells() for total in summary]),
    )  # fmt: skip


def _part(rows: list[Row], part: str | None) -> list[Row]:
    """Every K-th row from row I on, of ``I/K``."""
    if part is None:
        return rows
    first, _, step = part.partition("/")
    if not (first.isdecimal() and step.isdecimal() and 0 <= int(first) < int(step)):
        raise ParameterError("mutate --part", "not a part", got=part, need="I/K with I from 0 to K - 1")
    return rows[int(first) :: int(step)]


def _list(rows: Sequence[Row]) -> ListedChanges:
    return ListedChanges([
        RandomChange(change.id, area, change.file, change.line, change.kind, str(change)) for area, change in rows
    ])  # fmt: skip


def _verdicts(rows: Sequence[Row], workers: int, results: str | None, tests: bool) -> Iterator[Verdict]:
    """The verdicts in the order of the rows; those that ``results`` has already are not found again.

    Each is kept as soon as it is found. What fails in this program stops no other change: it is told at the end.
    """
    path = Path(results) if results else None
    known = {each.id: each for each in record.read_verdicts(path)} if path else {}
    todo = [row for row in rows if row[1].id not in known]
    failed: list[str] = []
    with progress("mutants", len(rows)) as advance, _Pool(min(workers, len(todo)), tests) as pool:
        for _ in range(len(rows) - len(todo)):
            advance()
        for row, found in pool.run(todo):
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


class _Pool:
    """Processes that try changes: a diff takes as long as a case, and threads would wait for each other there."""

    def __init__(self, workers: int, tests: bool) -> None:
        self._workers, self._tests = max(1, workers), tests

    def __enter__(self) -> _Pool:
        self._objects = TemporaryDirectory(prefix="refsim-mutant-objects-")
        self._threads = ThreadPoolExecutor(self._workers)
        self._idle: SimpleQueue[Worker | None] = SimpleQueue()
        for _ in range(self._workers):
            self._idle.put(None)
        return self

    def __exit__(self, *error: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        for _ in range(self._workers):
            worker = self._idle.get()
            if worker is not None:
                worker.close()
        self._objects.cleanup()

    def run(self, rows: Sequence[Row]) -> Iterator[tuple[Row, Verdict | RefsimError]]:
        """What became of each, as soon as it is known."""
        waiting = {self._threads.submit(self._one, row): row for row in rows}
        for done in as_completed(waiting):
            yield waiting[done], done.result()

    def _one(self, row: Row) -> Verdict | RefsimError:
        worker = self._idle.get()
        try:
            around = {**ONE_THREAD, objects.FOLDER: self._objects.name}
            if worker is None or not worker.alive:
                worker = Worker(Caller, where="mutate", environment=around, keep_stderr=True)
            found: Verdict = worker.call("call", run, *row, self._tests)
            return found
        except RefsimError as error:
            return error
        finally:
            self._idle.put(worker)


def _row(each: Verdict) -> Sequence[object]:
    said = each.causes[0] if each.causes else each.said
    named = "-" if each.verdict in (INVALID, EQUIVALENT) else ("yes" if each.named else "no")
    return (each.id, each.verdict, each.by, named, " ".join(said.split()))

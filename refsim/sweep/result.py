"""A sweep from its plan to what it found, as a value: counts, why calls were refused, and the failures.

This process computes the chunks, processes of this machine, or a cluster of many machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from refsim.core import choices
from refsim.core.errors import FormatError, IncompleteError, MissingDependencyError, ParameterError
from refsim.core.extras import SWEEP_FIX
from refsim.core.meanings import ComparedBytes, OperatorName, Seconds
from refsim.core.qmath import CANONICAL
from refsim.core.result import MOST_SHOWN, Command, Result, Same, Table, Text, rest
from refsim.core.status import DIFFERENT, SAME
from refsim.exec.executor import canonical_only
from refsim.exec.share import Share
from refsim.exec.task_threads import served
from refsim.formats.cases import write_folder
from refsim.sweep.chunk import ChunkWorker
from refsim.sweep.database import Database
from refsim.sweep.outcome import COMPARED, FAILED, MOST_TOLD, REFUSED, STATUSES, Outcome, SweepFailure, summed
from refsim.sweep.plan import Chunk, SweepPlan, SweepVariant

_ALL = "all"


@dataclass(frozen=True)
class SweepRow:
    """What became of the calls of one operator on one executor."""

    operator: OperatorName
    executor: Annotated[str, "The executor."]
    threads: Annotated[int, "Its threads."]
    isa: Annotated[str | None, "The instruction set that it compiled for; null: the machine's."]
    configurations: Annotated[int, "How many configurations."]
    statuses: Annotated[Mapping[str, int], "Calls by what became of them."]
    bytes: ComparedBytes
    seconds: Seconds

    @classmethod
    def of(cls, one: Outcome) -> SweepRow:
        by, statuses = one.variant, {name: one.statuses[name] for name in STATUSES}
        about = (one.subject, by.executor, by.threads, by.isa or None)
        return cls(*about, one.count, statuses, one.nbytes, round(one.seconds, 3))


@dataclass(frozen=True, kw_only=True)
class Swept(Result):
    """Random configurations. ``idle``: executors with kernels of their own of which not one ran."""

    seed: Annotated[int, "The seed."]
    configurations: Annotated[int, "How many configurations."]
    profiles: Annotated[Sequence[str], "Names of numerics profiles."]
    counts: Annotated[Sequence[SweepRow], "By operator and executor."]
    refused: Annotated[Mapping[str, int], "Calls by reason."]
    failures: Annotated[Sequence[SweepFailure], "What failed."]
    failed: Annotated[int, "Calls that failed."]
    seconds: Seconds
    found: Sequence[Outcome]
    idle: Sequence[Share]

    @property
    def same(self) -> Same:
        return not self.failed and not self.idle

    @property
    def status(self) -> int:
        for one in self.idle if not self.failed else ():
            one.check()
        return SAME if not self.failed else DIFFERENT

    def text(self) -> Text:
        rows = [*self.found, *summed(self.found, _ALL)]
        used = [status for status in STATUSES if any(row.statuses[status] for row in rows)]
        heads = ("operator", "executor", "configs count", *(f"{status} count" for status in used), "bytes")
        yield Table(
            heads,
            [
                (row.subject, row.variant, row.count, *(row.statuses[status] for status in used), row.nbytes)
                for row in rows
            ],
        )
        for text, count in Counter(self.refused).most_common(MOST_SHOWN):
            yield f"{REFUSED} {count}: {text}"
        yield from rest(len(self.refused), f"{REFUSED}: ")
        written = Counter((one.operator, one.executor) for one in self.failures if one.folder)
        for one in self.failures[:MOST_SHOWN]:
            yield f"{one.operator} on {one.executor}, seed {one.seed}, {one.profile}: {one.status}"
            yield f"  {one.case}"
            yield f"  {one.message}"
            if one.folder:
                yield Command(f"  refsim replay {one.folder} -x {one.variant.executor}")
            elif written[one.operator, one.executor] >= MOST_FOLDERS:
                yield f"  its case is not written: {MOST_FOLDERS} of this operator and executor are"
        yield from rest(len(self.failures))
        calls = sum(row.statuses[status] for row in self.found for status in COMPARED)
        if self.failed > len(self.failures):
            more = self.failed - len(self.failures)
            yield f"{more} more are only counted: a chunk tells {MOST_TOLD} of each executor"
        compared = f"{self.configurations} configurations, {calls} calls compared"
        yield f"{compared}, {self.failed} failed, {self.seconds:.1f} s"


def swept(
    plan: SweepPlan,
    found: Sequence[Outcome],
    failed: Sequence[SweepFailure],
    seconds: float,
    foreign: Collection[str],
) -> Swept:
    """``foreign``: the executors with kernels of their own."""
    wrong = sum(one.statuses[status] for one in found for status in FAILED)
    return Swept(
        seed=plan.seed, configurations=plan.total, profiles=[profile.name for profile in plan.profiles],
        counts=[SweepRow.of(one) for one in found], refused=reasons(found),
        failures=failed, failed=wrong, seconds=round(seconds, 3),
        found=found, idle=idle(found, foreign),
    )  # fmt: skip


def idle(found: Sequence[Outcome], foreign: Collection[str]) -> list[Share]:
    """The executors with kernels of their own (``foreign``) of which not one ran."""
    rows = [row for row in summed(found, _ALL) if row.variant.executor in foreign]
    ran = [(row, sum(row.statuses.values()) - row.statuses[REFUSED]) for row in rows]
    return [
        Share(row.variant.executor, 0, row.statuses[REFUSED], tuple(row.reasons)) for row, n in ran if not n
    ]


def reasons(found: Sequence[Outcome]) -> Counter[str]:
    """Why calls were refused, and how many."""
    return sum((outcome.reasons for outcome in found), Counter[str]())


def check_ran(plan: SweepPlan, found: Sequence[Outcome]) -> None:
    """IncompleteError if every call was refused."""
    if any(outcome.failed for outcome in found) or any(
        one.statuses[name] for one in found for name in COMPARED
    ):
        return
    refused = reasons(found)
    numerics = 0 < len(refused) == sum(why in map(canonical_only, plan.profiles) for why in refused)
    other = "more configurations (-n), or operators that it takes"
    raise IncompleteError(
        "sweep",
        "every call was refused",
        got="; ".join(refused) or "no results",
        need=f"--profile {CANONICAL.name}" if numerics else other,
    )


#: Computes chunks in any order.
Serve = Callable[[Sequence[Chunk]], Iterator[list[Outcome]]]
#: How many cases are written for an operator on a variant.
MOST_FOLDERS = 5
LOCAL, NONE = "local", "none"


def sweep(chunks: Sequence[Chunk], serve: Serve, database: Database, folder: Path) -> Iterator[list[Outcome]]:
    """Compute the chunks; each is in the database when its outcomes are yielded, and cases of failures in ``folder``.

    Only the first few failures of an operator on a variant are written as folders.
    """
    written: Counter[tuple[str, SweepVariant]] = Counter()
    for outcomes in serve(chunks):
        for outcome in outcomes:
            for at, failure in enumerate(outcome.failures):
                key = failure.operator, failure.variant
                if failure.files and written[key] < MOST_FOLDERS:
                    written[key] += 1
                    outcome.failures[at] = replace(failure, folder=_write(folder, failure))
        database.add(outcomes)
        yield outcomes


def _write(folder: Path, failure: SweepFailure) -> str:
    target = folder / failure.name
    try:
        write_folder(target, failure.files)
    except FormatError:
        if not target.exists():  # else the case is there, from a chunk that was not finished
            raise
    return str(target)


def server(scheduler: str | None, workers: int, note: Callable[[str], None]) -> Serve:
    """What computes chunks. ``note`` is told what the user should know meanwhile.

    MissingDependencyError if a scheduler is asked for and dask is not installed; ParameterError for no address.
    """
    near = choices.nearest(scheduler, (LOCAL, NONE)) if scheduler and ":" not in scheduler else None
    if near not in (None, scheduler):
        raise ParameterError(
            "sweep --scheduler",
            "unknown",
            got=scheduler,
            need=f"{LOCAL}, {NONE} or HOST:PORT{choices.asked(near)}",
        )
    if workers == 0:
        if scheduler not in (None, NONE):
            raise ParameterError("sweep --workers", "a scheduler needs some", got=0, need=">= 1")
        return inside
    installed = find_spec("distributed") is not None
    if scheduler == NONE or (scheduler is None and not installed):
        return partial(processes, workers=workers)
    if not installed:
        raise MissingDependencyError("sweep --scheduler", "dask.distributed is not installed", need=SWEEP_FIX)
    from refsim.sweep import cluster

    if scheduler in (None, LOCAL):
        return partial(cluster.local, workers=workers, note=note)
    return partial(cluster.remote, address=str(scheduler), note=note)


def inside(chunks: Sequence[Chunk]) -> Iterator[list[Outcome]]:
    """One chunk after the other, in this process; what names an instruction set has a process of its own."""
    worker = ChunkWorker(inside=True)
    try:
        yield from map(worker.run, chunks)
    finally:
        worker.close()


def processes(chunks: Sequence[Chunk], workers: int) -> Iterator[list[Outcome]]:
    """The chunks in so many processes; outcomes come in the order in which they end.

    Raises what opening an executor raises. The processes end when the caller is done, or interrupted.
    """
    return served("sweep", chunks, [ChunkWorker() for _ in range(max(1, min(workers, len(chunks))))])

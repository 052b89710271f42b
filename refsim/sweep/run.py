"""A sweep from its plan to its results: chunks that are left are computed, stored, and their failures written down.

This process computes them, processes of this machine, or a cluster of many machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from refsim.core import choices
from refsim.core.errors import FormatError, MissingDependencyError, ParameterError
from refsim.core.extras import SWEEP_FIX
from refsim.exec.task_threads import served
from refsim.formats.cases import write_folder
from refsim.sweep.chunk import ChunkWorker
from refsim.sweep.database import Database
from refsim.sweep.outcome import Outcome, SweepFailure
from refsim.sweep.plan import Chunk, SweepVariant

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

"""Chunks on this machine without any other package: in this process, or in processes of refsim's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from refsim.exec.task_threads import served
from refsim.sweep.chunk_worker import ChunkWorker
from refsim.sweep.outcome import Outcome
from refsim.sweep.plan import Chunk


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

"""Chunks on this machine without any other package: in this process, or in processes of refsim's own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence

from refsim.core import cache
from refsim.core.errors import RefsimError
from refsim.sweep.bench import Bench
from refsim.sweep.outcome import Outcome
from refsim.sweep.plan import Chunk

#: How long threads may take to end.
GRACE_S = 5.0
Found = list[Outcome] | Exception | None


def inside(chunks: Sequence[Chunk]) -> Iterator[list[Outcome]]:
    """One chunk after the other, in this process; what names an instruction set has a process of its own."""
    bench = Bench(inside=True)
    try:
        yield from map(bench.run, chunks)
    finally:
        bench.close()


def processes(chunks: Sequence[Chunk], workers: int) -> Iterator[list[Outcome]]:
    """The chunks in so many processes; outcomes come in the order in which they end.

    Raises what opening an executor raises. The processes end when the caller is done, or interrupted.
    """
    cache.base()  # if it cannot be used, that is said here: what workers say is only read when they die
    waiting: queue.SimpleQueue[Chunk] = queue.SimpleQueue()
    for chunk in chunks:
        waiting.put(chunk)
    results: queue.SimpleQueue[Found] = queue.SimpleQueue()
    benches = [Bench() for _ in range(max(1, min(workers, len(chunks))))]
    threads = [
        threading.Thread(target=_serve, args=(bench, waiting, results), daemon=True) for bench in benches
    ]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            found = results.get()
            if isinstance(found, Exception):
                raise found
            if found is None:
                running -= 1
            else:
                yield found
    finally:
        for bench in benches:
            bench.stop()
        for thread in threads:
            thread.join(GRACE_S)


def _serve(bench: Bench, waiting: queue.SimpleQueue[Chunk], results: queue.SimpleQueue[Found]) -> None:
    """One thread: gives chunks to its bench until none wait."""
    try:
        while not bench.stopped:
            try:
                chunk = waiting.get_nowait()
            except queue.Empty:
                break
            results.put(bench.run(chunk))
    except RefsimError as error:
        results.put(error)
    except Exception as error:  # anything else would leave the parent waiting
        results.put(RefsimError("sweep", "a worker's thread failed", got=repr(error)))
    finally:
        bench.close()
        results.put(None)

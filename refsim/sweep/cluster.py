"""Chunks on a dask cluster: of this machine, or of many, with any mix of devices.

Before any work, each worker is asked which executors it can open and which sources it runs. An executor that a worker
lacks is named, and its part of a chunk goes to those that have it. So a chunk may be cut by executors, and workers that
come later are asked when they are seen. What computes is a process of its own behind each of a worker's threads.
"""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from refsim.core.errors import DeviceError, ParameterError, RefsimError
from refsim.exec.fingerprint import foreign, sources
from refsim.sweep.chunk import ChunkWorker
from refsim.sweep.executors import available
from refsim.sweep.outcome import Outcome
from refsim.sweep.plan import Chunk, SweepVariant

Note = Callable[[str], None]
#: Chunks given to each thread at once, so that none waits for the next; how often new workers are looked for.
AHEAD, LOOK_S = 2, 5.0
#: How long to wait for the first worker.
WAIT_S = 60.0

_own = threading.local()
_workers: list[ChunkWorker] = []


def run_chunk(chunk: Chunk) -> list[Outcome] | RefsimError:
    """On a worker: the outcomes, or the error that makes them impossible."""
    if not hasattr(_own, "worker"):
        _own.worker = ChunkWorker()
        _workers.append(_own.worker)
    worker: ChunkWorker = _own.worker
    try:
        return worker.run(chunk)
    except RefsimError as error:
        return error


def stop_workers() -> None:
    """On a worker: end its processes."""
    while _workers:
        _workers.pop().stop()


atexit.register(stop_workers)


def about(
    variants: Sequence[SweepVariant], brought: Mapping[str, str]
) -> tuple[str, dict[SweepVariant, RefsimError | None]]:
    """On a worker: its sources, and which executors it lacks, and why.

    ``brought``: executor -> digest of the modules or the package that it has where the sweep was started. It is a
    ParameterError if a worker has others.
    """
    found = available(variants)
    for variant, error in found.items():
        if error is None and variant.executor in brought:
            digest = foreign([variant.executor])[variant.executor]
            if digest != brought[variant.executor]:
                found[variant] = ParameterError(
                    f"executor {variant.executor}", "other modules, or another package, on a worker",
                    got=digest[:16], need=brought[variant.executor][:16],
                )  # fmt: skip
    return sources(), found


def local(chunks: Sequence[Chunk], workers: int, note: Note) -> Iterator[list[Outcome]]:
    """The chunks on a cluster that lives as long as they take. Its workers are threads with a process each."""
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        cluster = LocalCluster(
            n_workers=1, threads_per_worker=workers, processes=False, silence_logs=logging.ERROR,
            # without an address it takes port 8787, and warns if that is taken
            dashboard_address="127.0.0.1:0", scheduler_kwargs={"dashboard": False},
        )  # fmt: skip
        client = stack.enter_context(Client(stack.enter_context(cluster)))
        stack.callback(stop_workers)
        yield from _served(client, chunks, note)


def remote(chunks: Sequence[Chunk], address: str, note: Note) -> Iterator[list[Outcome]]:
    """The chunks on the cluster of a scheduler. DeviceError if nothing answers there, or it has no workers."""
    from distributed import Client

    with ExitStack() as stack:
        try:
            client = stack.enter_context(Client(address, timeout=WAIT_S / 2))
            client.wait_for_workers(1, timeout=WAIT_S)
        except (OSError, TimeoutError, ValueError) as error:
            raise DeviceError(
                f"scheduler {address}", "no worker can be reached", got=str(error) or type(error).__name__
            ) from error
        yield from _served(client, chunks, note)


class Crowd:
    """The workers of a cluster, and who has which executor."""

    def __init__(self, client: Any, variants: Sequence[SweepVariant], note: Note) -> None:
        self._client, self._variants, self._note = client, variants, note
        self._sources = sources()
        self._brought = foreign(variant.executor for variant in variants)
        self.has: dict[str, frozenset[SweepVariant]] = {}
        self.threads = 0
        self.lacking: dict[SweepVariant, RefsimError] = {}

    def look(self) -> None:
        """Forget workers that went, ask those that came. ParameterError for one with other sources, or a wrong name."""
        workers: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        self.has = {address: held for address, held in self.has.items() if address in workers}
        self.threads = sum(row["nthreads"] for row in workers.values())
        fresh = [address for address in workers if address not in self.has]
        if not fresh:
            return
        answers = self._client.run(about, self._variants, self._brought, workers=fresh)
        for address, (digest, found) in answers.items():
            if digest != self._sources:
                raise ParameterError(
                    f"worker {address}", "runs other sources", got=digest[:16], need=self._sources[:16]
                )
            for variant, error in found.items():
                if isinstance(error, ParameterError):
                    raise error
                if error is not None:
                    self.lacking[variant] = error
                    self._note(f"{address} has no {variant}: {error}")
            self.has[address] = frozenset(v for v, error in found.items() if error is None)

    def parts(self, chunk: Chunk) -> Iterator[tuple[Chunk, list[str]]]:
        """A chunk cut into parts, each with the workers that can run all of it. An executor that none has raises."""
        groups: dict[frozenset[str], list[SweepVariant]] = {}
        for variant in chunk.variants:
            able = frozenset(address for address, held in self.has.items() if variant in held)
            if not able:
                raise self.lacking.get(variant) or DeviceError("sweep", "no worker is left", need=variant)
            groups.setdefault(able, []).append(variant)
        for able, variants in groups.items():
            yield replace(chunk, variants=tuple(variants)), sorted(able)


def _served(client: Any, chunks: Sequence[Chunk], note: Note) -> Iterator[list[Outcome]]:
    crowd = Crowd(client, tuple(dict.fromkeys(v for chunk in chunks for v in chunk.variants)), note)
    crowd.look()
    waiting = iter(chunks)
    running: dict[Any, tuple[Chunk, list[str]]] = {}
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def submit(chunk: Chunk) -> None:
        for part, able in crowd.parts(chunk):
            future = client.submit(run_chunk, part, workers=able, pure=False)
            running[future] = (part, able)
            future.add_done_callback(done.put)

    def fill() -> None:
        while len(running) < AHEAD * max(1, crowd.threads):
            chunk = next(waiting, None)
            if chunk is None:
                return
            submit(chunk)

    fill()
    seen = time.monotonic()
    while running:
        try:
            future = done.get(timeout=LOOK_S)
        except queue.Empty:
            future = None
        if future is None or time.monotonic() > seen + LOOK_S:
            seen = time.monotonic()
            crowd.look()
            for lost, (part, able) in list(running.items()):
                if not crowd.has.keys() & set(able):  # all workers that could run it went
                    del running[lost]
                    lost.cancel()
                    submit(part)
        if future in running:
            part, _ = running.pop(future)
            if future.status != "finished":  # its worker died more often than dask tries again
                submit(part)
            else:
                found = future.result()
                if isinstance(found, RefsimError):
                    raise found
                yield found
        fill()

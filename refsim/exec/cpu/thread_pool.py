"""Threads that run a list of jobs together, one native call each. Results do not depend on their number."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np

from refsim.core.errors import GuardError
from refsim.exec.cpu import compiled, wake
from refsim.exec.cpu.job import LINE_BYTES, Job, next_line
from refsim.exec.cpu.runner import entry, first_job, job_table, shared_words

#: Bytes behind scratch that hold this value and that no kernel may write.
_GUARD_BYTES, _GUARD = 256, 0xA5


def scratch_for(jobs: Sequence[Job], threads: int) -> list[np.ndarray]:
    """Working memory for lists of these jobs that never run at the same time: a block for each thread."""
    size = max((job.scratch for job in jobs), default=0)
    blocks = [np.empty(size + LINE_BYTES + _GUARD_BYTES, np.uint8) for _ in range(threads)]
    for block in blocks:
        _guard_of(block)[:] = _GUARD
    return blocks


def _guard_of(block: np.ndarray) -> np.ndarray:
    """The bytes of a block of scratch that nothing may write: those behind the largest job's."""
    first = -int(block.ctypes.data) % LINE_BYTES
    return block[first + len(block) - LINE_BYTES - _GUARD_BYTES :]


class JobList:
    """Jobs in order, with what the runner needs to execute them: its table, and scratch for each thread.

    Made once and run often; not by two callers at the same time. ``scratch``: of `scratch_for`, else it makes its own.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        threads: int = 1,
        buffers: Mapping[str, int] | None = None,
        scratch: Sequence[np.ndarray] | None = None,
    ) -> None:
        self.jobs = tuple(jobs)
        #: more threads than the widest job has tasks would only wait
        self.threads = max(1, min(threads, max((job.tasks for job in jobs), default=1)))
        self._table = job_table(self.jobs)
        self._shared, self._runs = shared_words(self.threads, processors()), 0
        self._relocations = [r for job in self.jobs for r in job.relocations]
        self._scratch = scratch_for(jobs, self.threads) if scratch is None else scratch[: self.threads]
        # an array's address takes a microsecond to ask for
        self._table_at, self._shared_at = self._table.ctypes.data, self._shared.ctypes.data
        self._scratch_at = [next_line(int(block.ctypes.data)) for block in self._scratch]
        self._scratch_table = np.array(self._scratch_at, np.int64)
        if buffers is not None:
            self.bind(buffers)

    def bind(self, buffers: Mapping[str, int]) -> None:
        """Tell where the buffers lie: addresses by the names that the jobs' relocations have."""
        for r in self._relocations:
            r.block[r.word] = buffers[r.buffer]

    def run(self) -> None:
        """Execute, on the buffers that were bound last."""
        if self.threads == 1:
            entry()(self._table_at, len(self.jobs), None, self._scratch_at[0], 0)
            return
        self._shared[0] = first_job(self._runs, len(self.jobs))
        self._runs += 1
        _pool(self.threads - 1).run(
            self._table_at, len(self.jobs), self._shared_at, self._scratch_table.ctypes.data
        )

    def __str__(self) -> str:
        """The kernels of the jobs, each with the file that writes it."""
        return compiled.told(kernel for job in self.jobs for kernel in job.kernels)

    def check_scratch(self, where: str) -> None:
        """GuardError if a job wrote behind its scratch."""
        for block in self._scratch:
            broken = np.flatnonzero(_guard_of(block) != _GUARD)
            if broken.size:
                raise GuardError(
                    where, "wrote behind its scratch", got=f"a write to byte {int(broken[0])} behind it"
                )


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ThreadPool:
    """Helper threads that wait for job lists; they end with the process.

    A thread that is woken may be put behind the one that woke it, on the same processor, for as long as a run lasts.
    So helpers are kept off the caller's processor, where there is another one.
    """

    def __init__(self, helpers: int) -> None:
        self._lock = threading.Lock()
        self._helpers, self._runs, self._words_at = helpers, 0, wake.words(helpers, processors()).ctypes.data
        prepare, helper, self._launch = wake.functions()
        prepare(self._words_at, helpers)
        self._threads = [
            threading.Thread(
                target=helper, args=(self._words_at, helpers, number, wake.runner_address()), daemon=True
            )
            for number in range(1, helpers + 1)
        ]
        for thread in self._threads:
            thread.start()
        self._avoided: int | None = None

    def run(self, table: int, jobs: int, shared: int, scratch: int) -> None:
        """Execute a list of so many jobs; the others are addresses: its table and shared words, those of scratch."""
        with self._lock:
            self._keep_off(_processor())
            self._runs += 1
            self._launch(
                self._words_at, self._helpers, wake.runner_address(), self._runs, table, jobs, shared, scratch
            )

    def _keep_off(self, processor: int | None) -> None:
        """Let the helpers run anywhere but there."""
        if processor is None or processor == self._avoided:
            return
        self._avoided = processor
        others = os.sched_getaffinity(0) - {processor}
        try:
            for thread in self._threads if others else ():
                os.sched_setaffinity(thread.native_id or 0, others)
        except OSError:  # not allowed here: then they run where they are put
            pass


@cache
def _find_processor() -> Callable[[], int] | None:
    """The C library's function that tells where a thread runs; None where there is none, or no choice."""
    if not hasattr(os, "sched_setaffinity"):
        return None
    return getattr(ctypes.CDLL(None), "sched_getcpu", None)


def _processor() -> int | None:
    """The processor that this thread is on, if that can be told and changed."""
    find = _find_processor()
    found = find() if find is not None else -1
    return found if found >= 0 else None


_pools: dict[int, ThreadPool] = {}
_pools_lock = threading.Lock()
if hasattr(os, "register_at_fork"):  # threads do not come along
    os.register_at_fork(after_in_child=_pools.clear)


def _pool(helpers: int) -> ThreadPool:
    with _pools_lock:
        if helpers not in _pools:
            _pools[helpers] = ThreadPool(helpers)
        return _pools[helpers]

"""Crew: threads that run a list of jobs together, one native call each; results do not depend on their number."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from queue import SimpleQueue

import numpy as np

from refsim.exec.cpu.job import FIRST, LAST, Job, entry, shared_words, table

_ALIGN = 64


class Program:
    """Jobs in order with the runner's table and each thread's scratch, made once. Not for two callers at once."""

    def __init__(
        self, jobs: Sequence[Job], threads: int = 1, buffers: Mapping[str, int] | None = None
    ) -> None:
        self.jobs = tuple(jobs)
        #: more threads than the widest job has tasks would only wait
        self.threads = max(1, min(threads, max((job.tasks for job in jobs), default=1)))
        self._table = table(self.jobs)
        self._shared = shared_words(len(self.jobs))
        size = max((job.scratch for job in jobs), default=0)
        self._slots = [slot for job in self.jobs for slot in job.slots]
        self._scratch = [np.empty(size + _ALIGN, np.uint8) for _ in range(self.threads)]
        # an array's address takes a microsecond to ask for
        self._table_at, self._shared_at = self._table.ctypes.data, _aligned(self._shared)
        self._scratch_at = [_aligned(block) for block in self._scratch]
        if buffers is not None:
            self.bind(buffers)

    @property
    def scratch_bytes(self) -> int:
        return sum(block.nbytes for block in self._scratch)

    def bind(self, buffers: Mapping[str, int]) -> None:
        """Tell where the buffers lie: addresses by the names that the jobs' slots have."""
        for slot in self._slots:
            slot.block[slot.place] = buffers[slot.buffer]

    def run(self) -> None:
        """Execute; the buffers are those that were bound last."""
        if self.threads == 1:
            self.work(0, alone=True)
            return
        self._shared[:] = 0
        crew = _crew(self.threads - 1)
        crew.start(self)
        self.work(0)
        crew.join()

    def work(self, thread: int, alone: bool = False) -> None:
        """One thread's share of a run."""
        shared = None if alone else self._shared_at
        end = LAST if thread % 2 else FIRST
        entry()(self._table_at, len(self.jobs), shared, self._scratch_at[thread], end)


def _aligned(block: np.ndarray) -> int:
    """The first address in a block that begins a line of memory."""
    return -(-int(block.ctypes.data) // _ALIGN) * _ALIGN


class Crew:
    """Helper threads that wait for programs; they end with the process.

    A thread that is woken may be put behind the one that woke it, on the same processor, for as long as a run lasts.
    So helpers are kept off the caller's processor, where there is another one.
    """

    def __init__(self, helpers: int) -> None:
        self._lock = threading.Lock()
        self._todo: list[SimpleQueue[Program]] = [SimpleQueue() for _ in range(helpers)]
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._help, args=(number,), daemon=True) for number in range(helpers)
        ]
        for thread in self._threads:
            thread.start()
        self._avoided: int | None = None

    def start(self, program: Program) -> None:
        self._lock.acquire()
        self._keep_off(_processor())
        for queue in self._todo:
            queue.put(program)

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

    def join(self) -> None:
        errors = [self._done.get() for _ in self._todo]
        self._lock.release()
        for error in errors:
            if error is not None:
                raise error

    def _help(self, number: int) -> None:
        while True:
            program = self._todo[number].get()
            try:
                program.work(number + 1)
                self._done.put(None)
            except BaseException as error:  # goes to the caller, who waits for it
                self._done.put(error)


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


_crews: dict[int, Crew] = {}
_crews_lock = threading.Lock()


def _crew(helpers: int) -> Crew:
    with _crews_lock:
        if helpers not in _crews:
            _crews[helpers] = Crew(helpers)
        return _crews[helpers]

"""The runner: the native function that every thread calls once, to execute a list of jobs together.

It takes the jobs in order. Each thread has a share of a job's tasks, neighbours of each other: what a thread wrote it
mostly reads in the next job too, out of its own caches. Who is done first takes tasks out of other shares. All wait for
the last task before they begin the next job: a job reads what the one before has written.

Threads slow each other down where they write to the same memory. So each has a line of its own that says which tasks of
its share are left, and one that says how many it has done. The first thread adds the latter up and says when a job is
over; the others look at that word alone. Nobody waits for a thread that has not begun: others take its share.
"""

from __future__ import annotations

import ctypes
import platform
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.ir import I1, I32, I64, PTR, VOID, Function, ModuleText, Value
from refsim.exec.cpu.job import Job

#: Words of one job in the runner's table: kernel, argument block, tasks; units, into which the tasks are put together
#: so that a number of 16 bits counts them, and tasks of a unit.
_JOB_WORDS = 5
_MOST_UNITS = (1 << 16) - 1
#: What threads share, each on a line of memory of its own (8 words): the number of the run's first job (from 1), the
#: threads and the looks of a thread that waits before it lets others run; the number of the last job that is over; then
#: two lines of each thread. Numbers of jobs grow from run to run, so nothing is set back in between.
_FIRST, _THREADS, _LOOKS, _OVER, _HEAD, _LINE = 0, 1, 2, 8, 16, 8
#: In the words of a thread: units left, and units done. The upper half is the number of the job that this is about.
_LEFT, _DONE, _THREAD_WORDS = 0, _LINE, 2 * _LINE
#: Looks of a thread that waits before it takes from other shares, and before it lets others run between looks: about
#: 1 and 20 us. Set by hand; `python -m bench.threads` shows what a step costs.
_PATIENCE, _SPINS = 20, 500
_X86 = platform.machine().lower() in ("x86_64", "amd64")


def runner(module: ModuleText, name: str) -> None:
    """Write the function that every thread runs.

    Parameters: job table, jobs, what threads share (null for a single thread), scratch of this thread, its number.
    """
    with module.function(name, (PTR, I64, PTR, PTR, I64)) as fn:
        table, count, shared, scratch, thread = fn.params

        def row_of(j: Value) -> Value:
            return table + j * (8 * _JOB_WORDS)

        def alone(j: Value) -> None:
            row = row_of(j)
            kernel, block, tasks = fn.load(row, PTR), fn.load(row + 8, PTR), fn.load(row + 16, I64)
            fn.call_pointer(kernel, block, fn.i64(0), tasks, scratch)

        def together() -> None:
            team = _Team(fn, shared, thread, scratch)
            fn.loop(count, lambda j: team.job(row_of(j), j))

        fn.when(fn.is_null(shared), lambda: fn.loop(count, alone), together)


class _Team:
    """What a thread does that has others beside it."""

    def __init__(self, fn: Function, shared: Value, thread: Value, scratch: Value) -> None:
        self.fn, self.shared, self.thread, self.scratch = fn, shared, thread, scratch
        self.first, self.threads, self.most = (
            fn.load(shared + 8 * word, I64) for word in (_FIRST, _THREADS, _LOOKS)
        )
        self.own, self.over = self._line(thread), shared + 8 * _OVER
        self.done, self.looks, self.taken = (fn.emit(PTR, "alloca i64, align 8") for _ in range(3))

    def _line(self, thread: Value) -> Value:
        return self.shared + (thread * (8 * _THREAD_WORDS) + 8 * _HEAD)

    def job(self, row: Value, j: Value) -> None:
        """Do this thread's part of a job, and wait for the others."""
        fn = self.fn
        number = self.first + j
        kernel, block = fn.load(row, PTR), fn.load(row + 8, PTR)
        tasks, units, unit = (fn.load(row + 8 * word, I64) for word in (2, 3, 4))
        work = _JobRow(number & 0xFFFF_FFFF, kernel, block, tasks, units, unit)

        def begin() -> None:
            fn.store(fn.i64(0), self.done)
            fn.repeat(lambda: self._take(work, self.thread, 1))
            fn.when(self.thread.eq(0), lambda: self._gather(work, number), lambda: self._wait(work, number))

        fn.when(read(fn, self.over) < number, begin)

    def _take(self, work: _JobRow, whose: Value, part: int) -> Value:
        """Claim a part of what is left of a share and do it; whether something was left.

        A share that nobody has begun is whole: its word is of a job before. ``part``: 1 for half of it, 2 for a
        quarter.
        """
        fn = self.fn
        line = self._line(whose)
        word = read(fn, line)
        age = ((word.shr(32) - work.number) << 32) >> 32  # below 0: of a job before
        first, last = ((work.units * (whose + k) + (self.threads - 1)) // self.threads for k in range(2))
        begun = age.eq(0)
        begin, end = begun.select((word >> 16) & 0xFFFF, first), begun.select(word & 0xFFFF, last)
        some = (age <= 0).select(begin < end, fn.const(0, I1))
        fn.store(fn.i64(0), self.taken)

        def claim() -> None:
            take = ((end - begin) + ((1 << part) - 1)) >> part
            own = whose.eq(self.thread)
            at = own.select(begin, end - take)
            left = own.select((begin + take << 16) | end, (begin << 16) | (end - take))
            made = exchange(fn, line, word, (work.number << 32) | left)
            fn.store(fn.i64(1), self.taken)

            def run() -> None:
                to = ((at + take) * work.unit).min(work.tasks)
                fn.call_pointer(work.kernel, work.block, at * work.unit, to, self.scratch)
                sum_ = fn.load(self.done, I64) + take
                fn.store(sum_, self.done)
                write(fn, self.own + 8 * _DONE, (work.number << 32) | sum_)

            fn.when(made, run)

        fn.when(some, claim)
        return fn.load(self.taken, I64).eq(1)

    def _help(self, work: _JobRow) -> None:
        """Take from every other share, once."""

        def other(k: Value) -> None:
            following = self.thread + k
            whose = (following >= self.threads).select(following - self.threads, following)
            self._take(work, whose, 2)

        self.fn.loop(self.threads, other, start=1)

    def _until(self, work: _JobRow, is_over: Callable[[], Value]) -> None:
        """Look until a job is over; help the others after a while."""
        fn = self.fn
        fn.store(fn.i64(0), self.looks)

        def look() -> Value:
            missing = is_over().eq(0)

            def again() -> None:
                seen = fn.load(self.looks, I64) + 1
                fn.store(seen, self.looks)
                rest(fn)
                fn.when((seen % _PATIENCE).eq(0), lambda: self._help(work))
                fn.when(seen > self.most, yield_)

            def yield_() -> None:
                self._help(work)
                fn.call("sched_yield", I32)

            fn.when(missing, again)
            return missing

        fn.repeat(look)

    def _gather(self, work: _JobRow, number: Value) -> None:
        """The first thread: until all units are done; then tell the others."""
        fn = self.fn

        def all_done() -> Value:
            def one(t: Value, total: Value) -> Value:
                word = read(fn, self._line(t) + 8 * _DONE)
                return total + word.shr(32).eq(work.number).select(word & 0xFFFF_FFFF, 0)

            (total,) = fn.loop(self.threads, one, [fn.load(self.done, I64)], start=1)
            return (total >= work.units).zext(I64)

        self._until(work, all_done)
        write(fn, self.over, number)

    def _wait(self, work: _JobRow, number: Value) -> None:
        """The other threads: until the first one says so."""
        self._until(work, lambda: (read(self.fn, self.over) >= number).zext(I64))


class _JobRow(NamedTuple):
    """A job's row, and the low half of its number."""

    number: Value
    kernel: Value
    block: Value
    tasks: Value
    units: Value
    unit: Value


def exchange(fn: Function, at: Value, before: Value, after: Value) -> Value:
    """Write a word if it is still what it was; whether it was."""
    both = fn.emit(I64, f"cmpxchg {at}, {before}, {after} seq_cst seq_cst, align 8")
    return fn.emit(I1, f"extractvalue {{ i64, i1 }} {both.text}, 1")


def read(fn: Function, at: Value, order: str = "acquire") -> Value:
    """A word that other threads write, and all that they wrote before it."""
    return fn.emit(I64, f"load atomic i64, {at} {order}, align 8")


def write(fn: Function, at: Value, value: Value, order: str = "release") -> None:
    """Set a word that other threads read: they see all that was written before."""
    fn.line(f"store atomic {value}, {at} {order}, align 8")


def rest(fn: Function) -> None:
    """Between two looks at a word, so that the processor can do other things."""
    if _X86:
        fn.call("llvm.x86.sse2.pause", VOID)


def shared_words(threads: int, processors: int) -> np.ndarray:
    """Words for the runs of a list by so many threads, beginning at a line of memory; the first is for `runs`.

    Where threads share processors, one that waits lets others run at once.
    """
    block = np.zeros(_HEAD + threads * _THREAD_WORDS + _LINE, np.int64)
    words = block[-block.ctypes.data % (8 * _LINE) // 8 :]
    words[_THREADS], words[_LOOKS] = threads, _SPINS if threads <= processors else 0
    return words


def first_job(run: int, jobs: int) -> int:
    """The number of the first of so many jobs in a run (from 0): what word 0 must be then."""
    return run * jobs + 1


def job_table(jobs: Sequence[Job]) -> np.ndarray:
    """The runner's table: int64 (jobs, 5)."""
    rows = []
    for job in jobs:
        unit = max(1, -(-job.tasks // _MOST_UNITS))
        rows.append([job.kernel, job.block.ctypes.data, job.tasks, -(-job.tasks // unit), unit])
    return np.array(rows, np.int64)


@cache
def entry() -> Callable[[int, int, int | None, int, int], None]:
    """The runner; called through ctypes it runs without the interpreter's lock."""
    kind = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    )
    return kind(compiled.address(runner))


def makespan(costs: Sequence[float], threads: int) -> float:
    """The time from the first task to the end of the last, for tasks of these costs divided as `runner` does it.

    But tasks are taken one at a time here, from the longest of the other shares.
    """
    ends = [-(-len(costs) * thread // threads) for thread in range(threads + 1)]
    shares = [deque(costs[first:last]) for first, last in pairwise(ends)]
    free = [0.0] * threads
    for _ in costs:
        thread = free.index(min(free))
        own = shares[thread]
        free[thread] += own.popleft() if own else max(shares, key=len).pop()
    return max(free)

"""The runner: the native function that every thread calls once, to execute a list of jobs together.

It takes the jobs in order. Threads claim the tasks of a job one at a time, and all wait for its last task before they
begin the next job: a job reads what the one before has written.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.ir import I32, I64, PTR, VOID, Function, Module, Value
from refsim.exec.cpu.job import Job

#: Words of one job in the runner's table: kernel, argument block, tasks.
_JOB_WORDS = 3
#: Words of one job among those that threads share: tasks claimed, tasks done, whether all are; on cache lines of their
#: own, so that threads which wait for the last do not slow down those that count.
_SHARED_WORDS = 24
_DONE, _OVER = 8, 16
#: Looks at a shared word before a waiting thread lets others run between looks. Set by hand; no bench measures it
#: alone.
_SPINS = 500
_X86 = platform.machine().lower() in ("x86_64", "amd64")
#: What a thread adds to the word of tasks claimed, to take one from either end.
FIRST, LAST = 1, 1 << 32


def runner(module: Module, name: str) -> None:
    """Write the function that every thread runs: all jobs in order, tasks claimed one at a time, a wait after each.

    Some threads claim from the first task upwards, others from the last downwards: what a thread wrote it mostly reads
    in the next job too, out of its own caches. The word of tasks claimed counts the former in its low half, the
    latter in its high half.

    Parameters: job table, jobs, shared words (zeroed; null for a single thread), scratch of this thread, what it
    adds to claim a task (`FIRST` or `LAST`).
    """
    with module.function(name, (PTR, I64, PTR, PTR, I64)) as fn:
        table, count, shared, scratch, step = fn.params
        looks, more = (fn.emit(PTR, "alloca i64, align 8") for _ in range(2))

        def job(j: Value) -> None:
            row = table + j * (8 * _JOB_WORDS)
            kernel, block, tasks = fn.load(row, PTR), fn.load(row + 8, PTR), fn.load(row + 16, I64)

            def alone() -> None:
                fn.call_pointer(kernel, block, fn.i64(0), tasks, scratch)

            def together() -> None:
                claimed = shared + j * (8 * _SHARED_WORDS)
                done, over = claimed + 8 * _DONE, claimed + 8 * _OVER

                def left(word: Value) -> Value:
                    return (word & (LAST - 1)) + (word >> 32) < tasks

                def work(before: Value) -> None:
                    task = (step < LAST).select(before & (LAST - 1), tasks - (before >> 32) - 1)
                    fn.call_pointer(kernel, block, task, task + 1, scratch)
                    last = _atomic_add(fn, done, fn.i64(1)).eq(tasks - 1)
                    fn.when(last, lambda: write(fn, over, fn.i64(1)))

                def claim() -> None:
                    before = _atomic_add(fn, claimed, step)
                    fn.store(left(before).zext(I64), more)
                    fn.when(left(before), lambda: work(before))

                def look() -> Value:
                    # counting is slow where many threads do it: who comes too late only looks
                    fn.store(fn.i64(0), more)
                    fn.when(left(read(fn, claimed)), claim)
                    return fn.load(more, I64).eq(1)

                fn.repeat(look)
                fn.when(tasks > 0, lambda: _wait(fn, over, looks))

            fn.when(fn.is_null(shared), alone, together)

        fn.loop(count, job)


def _atomic_add(fn: Function, at: Value, amount: Value) -> Value:
    return fn.emit(I64, f"atomicrmw add {at}, {amount} seq_cst, align 8")


def read(fn: Function, at: Value) -> Value:
    """A word that other threads write."""
    return fn.emit(I64, f"load atomic i64, {at} seq_cst, align 8")


def write(fn: Function, at: Value, value: Value) -> None:
    """Set a word that other threads read: they see all that was written before."""
    fn.line(f"store atomic {value}, {at} seq_cst, align 8")


def rest(fn: Function) -> None:
    """Between two looks at a word, so that the processor can do other things."""
    if _X86:
        fn.call("llvm.x86.sse2.pause", VOID)


def _wait(fn: Function, at: Value, looks: Value) -> None:
    """Until a shared word is not 0: spin a while, then let other threads run between looks."""
    fn.store(fn.i64(0), looks)

    def look() -> Value:
        missing = read(fn, at).eq(0)

        def again() -> None:
            seen = fn.load(looks, I64) + 1
            fn.store(seen, looks)
            rest(fn)
            fn.when(seen > _SPINS, lambda: fn.call("sched_yield", I32))

        fn.when(missing, again)
        return missing

    fn.repeat(look)


def shared_words(jobs: int) -> np.ndarray:
    """Zeroed words for one run by several threads."""
    return np.zeros(jobs * _SHARED_WORDS + _SHARED_WORDS, np.int64)


def job_table(jobs: Sequence[Job]) -> np.ndarray:
    """The runner's table: int64 (jobs, 3)."""
    return np.array([[job.kernel, job.block.ctypes.data, job.tasks] for job in jobs], np.int64)


@cache
def entry() -> Callable[[int, int, int | None, int, int], None]:
    """The runner; called through ctypes it runs without the interpreter's lock."""
    kind = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    )
    return kind(compiled.address(runner))


def makespan(costs: Sequence[float], threads: int) -> float:
    """The time from the first task to the end of the last, for tasks of these costs claimed as `runner` does it."""
    free = [0.0] * threads
    low, high = 0, len(costs)
    while low < high:
        thread = free.index(min(free))
        from_end = thread % 2
        high, low = high - from_end, low + 1 - from_end
        free[thread] += costs[high if from_end else low - 1]
    return max(free)

"""How threads of a pool are given a list of jobs, and sleep until then: native functions, without the interpreter.

Each helper thread calls `helper` once and never returns. Helpers look at a word of their own for a while, then they
sleep on a condition variable of the C library. Threads wake each other as a tree: thread t wakes 2t + 1 and 2t + 2.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.ir import I1, I32, I64, PTR, Function, ModuleText, Value
from refsim.exec.cpu.runner import read as read_word
from refsim.exec.cpu.runner import rest, runner
from refsim.exec.cpu.runner import write as write_word

#: Words of a pool before those of its helpers: the run's arguments, how often a helper looks for a run before it
#: sleeps, and how many helpers have finished the run.
_TABLE, _COUNT, _SHARED, _SCRATCH, _LOOKS, _FINISHED, _HEAD = 0, 1, 2, 3, 4, 8, 16
#: Words of a helper: a mutex and a condition variable of the C library (with room for any), the number of the last run
#: it was given, and whether it sleeps; on cache lines of their own.
_MUTEX, _CONDITION, _RUN, _SLEEPS, _WORDS = 0, 16, 32, 33, 40
#: Looks of a helper at its word before it sleeps, where each thread has a processor: about 200 us, so that none sleeps
#: between two runs, which cost 30 us more then. And of the caller before it lets others run, about 40 us.
LOOKS, WAITS = 5000, 1000


#: A helper that says that it sleeps looks for a run after that, and who gives it a run looks whether it sleeps after
#: that: only this order of all such steps keeps a run from being missed.
read, write = partial(read_word, order="seq_cst"), partial(write_word, order="seq_cst")


def words(helpers: int, processors: int) -> np.ndarray:
    """Words of a pool, beginning at a cache line: int64. They stay, since helpers may look at any time."""
    count = _HEAD + helpers * _WORDS
    block = np.zeros(count + 8, np.int64)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(block))
    first = -block.ctypes.data % 64 // 8
    found = block[first : first + count]
    found[_LOOKS] = LOOKS if helpers < processors else LOOKS // 10
    return found


def _word(block: Value, number: int) -> Value:
    """Where a word of a pool, or of a helper, lies."""
    return block + 8 * number


def _row(pool: Value, thread: Value) -> Value:
    """The words of a helper; its number as a thread begins with 1."""
    return pool + ((thread - 1) * (8 * _WORDS) + 8 * _HEAD)


def _give(fn: Function, pool: Value, helpers: Value, thread: Value, run: Value) -> None:
    """Give a run to the threads that this one wakes."""

    def child(c: Value) -> None:
        row = _row(pool, c)
        write(fn, _word(row, _RUN), run)

        def wake() -> None:
            fn.call("pthread_mutex_lock", I32, _word(row, _MUTEX))
            fn.call("pthread_cond_signal", I32, _word(row, _CONDITION))
            fn.call("pthread_mutex_unlock", I32, _word(row, _MUTEX))

        fn.when(read(fn, _word(row, _SLEEPS)).eq(1), wake)

    first = thread * 2 + 1
    fn.loop((first + 2).min(helpers + 1), child, start=first)


def _spin(
    fn: Function, at: Value, missing: Callable[[Value], Value], looks: Value, most: Value | int = WAITS
) -> None:
    """Look at a word while `missing` says of its value that it is not the wanted one, but not too often."""
    fn.store(fn.i64(0), looks)

    def look() -> Value:
        seen = fn.load(looks, I64) + 1
        fn.store(seen, looks)
        rest(fn)
        return missing(read(fn, at)).select(seen < most, 0)

    fn.repeat(look)


def _work(fn: Function, pool: Value, run_jobs: Value, thread: Value) -> None:
    """A thread's share of the run."""
    scratch = fn.load(fn.load(_word(pool, _SCRATCH), PTR) + thread * 8, PTR)
    fn.call_pointer(
        run_jobs,
        fn.load(_word(pool, _TABLE), PTR),
        fn.load(_word(pool, _COUNT), I64),
        fn.load(_word(pool, _SHARED), PTR),
        scratch,
        thread,
    )


def prepare(module: ModuleText, name: str) -> None:
    """Write the function that makes a pool ready: words, helpers."""
    with module.function(name, (PTR, I64)) as fn:
        pool, helpers = fn.params

        def one(t: Value) -> None:
            row, none = _row(pool, t), fn.pointer(fn.i64(0))
            fn.call("pthread_mutex_init", I32, _word(row, _MUTEX), none)
            fn.call("pthread_cond_init", I32, _word(row, _CONDITION), none)

        fn.loop(helpers + 1, one, start=1)


def helper(module: ModuleText, name: str) -> None:
    """Write what a helper thread executes for ever: words, helpers, its number, the runner."""
    with module.function(name, (PTR, I64, I64, PTR)) as fn:
        pool, helpers, thread, run_jobs = fn.params
        looks = fn.emit(PTR, "alloca i64, align 8")
        last = fn.emit(PTR, "alloca i64, align 8")
        fn.store(fn.i64(0), last)
        row = _row(pool, thread)
        at = _word(row, _RUN)
        most = fn.load(_word(pool, _LOOKS), I64)

        def sleep() -> None:
            fn.call("pthread_mutex_lock", I32, _word(row, _MUTEX))
            write(fn, _word(row, _SLEEPS), fn.i64(1))

            def wait() -> Value:
                still = read(fn, at).eq(fn.load(last, I64))
                fn.when(
                    still,
                    lambda: fn.call("pthread_cond_wait", I32, _word(row, _CONDITION), _word(row, _MUTEX)),
                )
                return still

            fn.repeat(wait)
            write(fn, _word(row, _SLEEPS), fn.i64(0))
            fn.call("pthread_mutex_unlock", I32, _word(row, _MUTEX))

        def turn() -> Value:
            _spin(fn, at, lambda run: run.eq(fn.load(last, I64)), looks, most)
            fn.when(read(fn, at).eq(fn.load(last, I64)), sleep)
            run = read(fn, at)
            fn.store(run, last)
            _give(fn, pool, helpers, thread, run)
            _work(fn, pool, run_jobs, thread)
            fn.emit(I64, f"atomicrmw add {_word(pool, _FINISHED)}, i64 1 seq_cst, align 8")
            return fn.const(1, I1)

        fn.repeat(turn)


def launch(module: ModuleText, name: str) -> None:
    """Write the function that runs a list of jobs on all threads of a pool, this one among them.

    Parameters: words, helpers, the runner, the number of this run (from 1), the list's table, its jobs, its shared
    words, addresses of the threads' scratch.
    """
    with module.function(name, (PTR, I64, PTR, I64, PTR, I64, PTR, PTR)) as fn:
        pool, helpers, run_jobs, run, table, count, shared, scratch = fn.params
        looks = fn.emit(PTR, "alloca i64, align 8")
        for word, value in ((_TABLE, table), (_COUNT, count), (_SHARED, shared), (_SCRATCH, scratch)):
            fn.store(value, _word(pool, word))
        finished = _word(pool, _FINISHED)
        write(fn, finished, fn.i64(0))
        here = fn.i64(0)
        _give(fn, pool, helpers, here, run)
        _work(fn, pool, run_jobs, here)

        def missing() -> Value:
            _spin(fn, finished, lambda done: done < helpers, looks)
            left = read(fn, finished) < helpers
            fn.when(left, lambda: fn.call("sched_yield", I32))
            return left

        fn.repeat(missing)


@cache
def functions() -> tuple[Callable[..., None], Callable[..., None], Callable[..., None]]:
    """`prepare`, `helper` and `launch`; called through ctypes they run without the interpreter's lock."""
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    kinds = (
        (prepare, (pointer, word)),
        (helper, (pointer, word, word, pointer)),
        (launch, (pointer, word, pointer, word, pointer, word, pointer, pointer)),
    )
    made = [ctypes.CFUNCTYPE(None, *kind)(compiled.address(build)) for build, kind in kinds]
    return made[0], made[1], made[2]


@cache
def runner_address() -> int:
    return compiled.address(runner)

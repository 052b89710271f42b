"""Job: one native kernel over one argument block, split into tasks; and the runner that executes a list of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.args import KERNEL_PARAMS, Fields
from refsim.exec.cpu.ir import I32, I64, PTR, Function, Module, Value


@dataclass(frozen=True)
class Slot:
    """A word of an argument block that receives the address of a buffer when the job runs."""

    block: np.ndarray
    place: int
    buffer: str


@dataclass(frozen=True)
class Job:
    """``kernel`` is an entry point; ``block`` its arguments; tasks 0 to ``tasks`` may run in any order, at once.

    ``scratch`` is what one thread needs, in bytes; ``keep`` are arrays that the argument block points into;
    ``temps`` are buffers between the jobs of a call, bytes by name.
    """

    name: str
    kernel: int
    block: np.ndarray
    tasks: int
    scratch: int
    slots: tuple[Slot, ...]
    keep: tuple[np.ndarray, ...] = ()
    temps: tuple[tuple[str, int], ...] = ()
    parts: tuple[Job, ...] = ()

    @property
    def variant(self) -> str:
        """The kernel's name and what it is specialized for; of all parts, if there are some."""
        return " + ".join(part.variant for part in self.parts) or compiled.name_of(self.kernel)

    def renamed(self, **names: str) -> Job:
        """The job with some of its buffers under other names."""
        slots = tuple(replace(slot, buffer=names.get(slot.buffer, slot.buffer)) for slot in self.slots)
        temps = tuple((names.get(name, name), nbytes) for name, nbytes in self.temps)
        return replace(self, slots=slots, temps=temps)


@dataclass
class Arguments:
    """Argument blocks under construction: addresses of buffers and of other arrays are filled in later or kept."""

    slots: list[Slot] = field(default_factory=list)
    keep: list[np.ndarray] = field(default_factory=list)

    def address(self, array: np.ndarray) -> int:
        """The address of an array, which the job keeps alive."""
        self.keep.append(array)
        return int(array.ctypes.data)

    def block(
        self, fields: Fields, buffers: dict[str, str], **values: float | np.floating | np.integer
    ) -> np.ndarray:
        """A block whose fields in `buffers` receive addresses of those buffers at run time."""
        block = fields.pack(**values, **dict.fromkeys(buffers, 0))
        self.keep.append(block)
        self.slots += [Slot(block, fields.place(name), buffer) for name, buffer in buffers.items()]
        return block


# --- several kernels as one job --------------------------------------------------------------------------

_PART = Fields("kernel", "block", "tasks")
_PARTS = Fields("count", "parts", "round_tasks")


def parts(module: Module, name: str) -> None:
    """Write the kernel whose tasks are those of some jobs, in rounds: some tasks of each job, then the next ones."""
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, scratch = fn.params
        a = _PARTS.read(fn, block)

        def task(t: Value) -> None:
            turn, number = t // a.round_tasks, t % a.round_tasks

            def part(j: Value, first: Value) -> Value:
                p = _PART.read(fn, a.pointer("parts") + j * _PART.nbytes)
                own = number - first
                at = turn * p.tasks + own

                def run() -> None:
                    fn.call_pointer(p.pointer("kernel"), p.pointer("block"), at, at + 1, scratch)

                fn.when(own.compare("ult", p.tasks), run)
                return first + p.tasks

            fn.loop(a.count, part, [fn.i64(0)])

        fn.loop(end, task, start=begin)


def together(jobs: Sequence[Job], rounds: int = 1) -> Job:
    """One job of several that do not wait for each other, each with as many tasks in every one of the rounds."""
    if len(jobs) == 1:
        return jobs[0]
    args = Arguments()
    shares = [job.tasks // rounds for job in jobs]
    assert all(share * rounds == job.tasks for share, job in zip(shares, jobs, strict=True))
    rows = [
        _PART.pack(kernel=job.kernel, block=job.block.ctypes.data, tasks=share)
        for share, job in zip(shares, jobs, strict=True)
    ]
    table = args.address(np.concatenate(rows))
    block = args.block(_PARTS, {}, count=len(jobs), parts=table, round_tasks=max(1, sum(shares)))
    return Job(
        name=jobs[0].name,
        kernel=compiled.address(parts),
        block=block,
        tasks=sum(job.tasks for job in jobs),
        scratch=max(job.scratch for job in jobs),
        slots=tuple(slot for job in jobs for slot in job.slots),
        keep=(*args.keep, *(array for job in jobs for array in job.keep)),
        temps=tuple(temp for job in jobs for temp in job.temps),
        parts=tuple(jobs),
    )


def ends(costs: Sequence[float], threads: int) -> float:
    """When the last of some threads ends that claim tasks of these costs as `runner` lets them."""
    free = [0.0] * threads
    low, high = 0, len(costs)
    while low < high:
        thread = free.index(min(free))
        from_end = thread % 2
        high, low = high - from_end, low + 1 - from_end
        free[thread] += costs[high if from_end else low - 1]
    return max(free)


# --- the runner ------------------------------------------------------------------------------------------

#: Words of one job in the runner's table: kernel, argument block, tasks.
_JOB_WORDS = 3
#: Words of one job among those that threads share: tasks claimed, tasks done; on cache lines of their own.
_SHARED_WORDS = 16
_SPINS = 2000
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
        looks = fn.emit(PTR, "alloca i64, align 8")

        def job(j: Value) -> None:
            row = table + j * (8 * _JOB_WORDS)
            kernel, block, tasks = fn.load(row, PTR), fn.load(row + 8, PTR), fn.load(row + 16, I64)

            def alone() -> None:
                fn.call_pointer(kernel, block, fn.i64(0), tasks, scratch)

            def together() -> None:
                claimed = shared + j * (8 * _SHARED_WORDS)
                done = claimed + 4 * _SHARED_WORDS

                def claim() -> Value:
                    before = _atomic_add(fn, claimed, step)
                    low, high = before & (LAST - 1), before >> 32
                    left = low + high < tasks

                    def work() -> None:
                        task = (step < LAST).select(low, tasks - high - 1)
                        fn.call_pointer(kernel, block, task, task + 1, scratch)
                        _atomic_add(fn, done, fn.i64(1))

                    fn.when(left, work)
                    return left

                fn.repeat(claim)
                _wait(fn, done, tasks, looks)

            fn.when(fn.is_null(shared), alone, together)

        fn.loop(count, job)


def _atomic_add(fn: Function, at: Value, amount: Value) -> Value:
    return fn.emit(I64, f"atomicrmw add {at}, {amount} seq_cst, align 8")


def _wait(fn: Function, at: Value, target: Value, looks: Value) -> None:
    """Until a shared word has reached a value: spin a while, then let other threads run between looks."""

    def missing() -> Value:
        return fn.emit(I64, f"load atomic i64, {at} seq_cst, align 8") < target

    fn.store(fn.i64(0), looks)

    def look() -> Value:
        seen = fn.load(looks, I64) + 1
        fn.store(seen, looks)
        fn.when(seen > _SPINS, lambda: fn.call("sched_yield", I32))
        return missing()

    fn.repeat(look)


def shared_words(jobs: int) -> np.ndarray:
    """Zeroed words for one run by several threads."""
    return np.zeros(jobs * _SHARED_WORDS + _SHARED_WORDS, np.int64)


def table(jobs: Sequence[Job]) -> np.ndarray:
    """The runner's table."""
    return np.array([[job.kernel, job.block.ctypes.data, job.tasks] for job in jobs], np.int64)


@cache
def entry() -> Callable[[int, int, int | None, int, int], None]:
    """The runner; called through ctypes it runs without the interpreter's lock."""
    kind = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
    )
    return kind(compiled.address(runner))

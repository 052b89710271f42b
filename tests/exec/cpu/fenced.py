"""Buffers that end, or begin, at memory that nobody may touch; and a process that runs calls over them.

A native kernel may read a little beyond a buffer (`refsim.exec.cpu.job.Job.exact` says where it may not), up to
`SLACK` bytes, which `refsim.exec.cpu.plan.CpuPlan` has behind the last value. What is read there is thrown away, so
that no byte shows how far it goes. Here it ends the process.

python tests/exec/cpu/fenced.py THREADS COUNT   runs cases of the corpus, and prints before each what runs.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock
from weakref import ref

import numpy as np
from cases import BY_LAYOUT

sys.path.insert(0, str(Path(__file__).parents[2]))
from examples import small

from refsim.core.buffer import ALIGN, FAR_WORDS, GUARD_WORDS, PackedBuffer
from refsim.exec.cpu import NativeExecutor, routes
from refsim.exec.cpu import executor as native
from refsim.exec.cpu.thread_pool import JobList
from refsim.golden import rules
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS

SLACK, PAGE = 64, mmap.PAGESIZE
#: Words of the inputs of a case together.
MOST_WORDS = 20_000
#: How many times as many cases families have whose kernels go by the layouts.
LAYOUTS = 5
#: Channels of which the kernel of depthwise convolutions has not a whole vector of words; each in every layout.
FEW_CHANNELS = 16
_made: list[ref[Fenced]] = []
_AROUND = 4 * (GUARD_WORDS + FAR_WORDS)


class Fenced(PackedBuffer):
    """A buffer whose words end `SLACK` bytes (and what fills up a line) before a page; or that begin with one."""

    front = False

    def _lie_in(self, count: int) -> None:
        inner = 4 * count - 2 * _AROUND
        size = -(-(4 * count) // PAGE) * PAGE + 4 * PAGE
        self._memory = np.frombuffer(mmap.mmap(-1, size), np.uint8)
        ahead = -(-_AROUND // PAGE) * PAGE
        end = -(-inner // ALIGN) * ALIGN + SLACK
        begin = ahead if self.front else -(-(ahead + end) // PAGE) * PAGE - end
        first = begin - _AROUND
        self._around = self._memory[first : first + 4 * count].view(np.int32)
        self.memory = self._around[FAR_WORDS:-FAR_WORDS]
        self.words = self.memory[GUARD_WORDS:-GUARD_WORDS]
        self._fence = (0, begin) if self.front else (begin + end, size)
        assert all(place % PAGE == 0 for place in self._fence) and self.words.ctypes.data % ALIGN == 0
        _made.append(ref(self))

    def protect(self, allowed: int) -> None:
        begin, end = self._fence
        at = ctypes.c_void_p(self._memory.ctypes.data + begin)
        assert ctypes.CDLL(None).mprotect(at, ctypes.c_size_t(end - begin), allowed) == 0


class Front(Fenced):
    front = True


def fenced(kind: type[Fenced], buffer: PackedBuffer) -> Fenced:
    made = kind(buffer.desc)
    made.words[:] = buffer.words
    return made


def run(kind: type[Fenced], bound: BoundCase, executor: NativeExecutor) -> PackedBuffer:
    """The output of a call whose inputs and output are fenced while its kernels run."""
    real = JobList.run

    def alone(jobs: JobList) -> None:
        buffers = [buffer for each in _made if (buffer := each()) is not None]
        for buffer in buffers:
            buffer.protect(0)
        print(jobs, flush=True)
        try:
            real(jobs)
        finally:
            for buffer in buffers:
                buffer.protect(mmap.PROT_READ | mmap.PROT_WRITE)

    inputs: Mapping[str, PackedBuffer] = {name: fenced(kind, each) for name, each in bound.inputs.items()}
    with mock.patch.object(JobList, "run", alone), mock.patch.object(native, "PackedBuffer", kind):
        _made[:] = [each for each in _made if each() is not None]
        return executor.run_call(bound.call, inputs)


def few_channels(op: str) -> Iterator[tuple[str, BoundCase]]:
    """The first small case of the corpus with so few channels, for each number of their words and each layout."""
    found = set[tuple[int, str]]()
    for number in range(rules.RULES[op].count):
        case = rules.case(op, number)
        shape, layout = case.inputs["x"]
        key = (-(-shape[-3] // 4), str(layout))
        if shape[-3] <= FEW_CHANNELS and shape[-1] >= 8 and np.prod(shape) <= MOST_WORDS and key not in found:
            found.add(key)
            yield f"{op}/{number:04d}", bind(case)


def main(threads: int, count: int) -> None:
    """Every operator on every route that takes it; those whose kernels go by the layouts with more cases."""
    executors = {rule.route: NativeExecutor(threads, {"*": rule.route}) for rule in routes.RULES}
    for op, row in OPS.items():
        few = few_channels(op) if op == "q8ta_conv2d_dw" else ()
        for name, bound in (
            *small(op, count * (LAYOUTS if row.family in BY_LAYOUT else 1), MOST_WORDS),
            *few,
        ):
            for route, executor in executors.items():
                chosen = executor.choose(Prepared(bound.call))
                if chosen.route != route or not chosen.jobs():
                    continue
                for kind in (Fenced, Front):
                    print(f"{name} by {route}", flush=True)
                    assert run(kind, bound, executor) == bound.call.expected(bound.inputs), name


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

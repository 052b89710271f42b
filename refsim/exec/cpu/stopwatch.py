"""Times of the steps of one native call: jobs that write down the time stand between the steps' jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.args import ArgLayout
from refsim.exec.cpu.ir import I32, ModuleText
from refsim.exec.cpu.job import Arguments, Job
from refsim.exec.cpu.step import PlanStep
from refsim.exec.cpu.thread_pool import JobList

_ARGS = ArgLayout("clock", "at")


def stamp(module: ModuleText, name: str) -> None:
    """Write the kernel that stores the time of a clock, as seconds and nanoseconds (int64 each)."""
    with _ARGS.kernel(module, name) as (fn, a, _, _):
        fn.call("clock_gettime", I32, a.i32("clock"), a.pointer("at"))


class TimedSteps:
    """Native steps as one list of jobs that also tells how long each step took."""

    def __init__(
        self,
        steps: Sequence[PlanStep],
        threads: int,
        buffers: Mapping[str, int],
        scratch: Sequence[np.ndarray],
    ) -> None:
        self._times = np.zeros((len(steps) + 1, 2), np.int64)
        self._list = JobList(list(self._jobs(steps)), threads, buffers, scratch)

    def run(self) -> list[float]:
        """Execute; the seconds of each step, what threads wait for each other included."""
        self._list.run()
        return [float(took) for took in np.diff(self._times, axis=0) @ (1.0, 1e-9)]

    def _jobs(self, steps: Sequence[PlanStep]) -> Iterator[Job]:
        yield self._stamp(0)
        for number, step in enumerate(steps, 1):
            yield from step.jobs
            yield self._stamp(number)

    def _stamp(self, number: int) -> Job:
        args = Arguments()
        at = args.address(self._times[number], shared=True)
        block = args.block(_ARGS, {}, clock=time.CLOCK_MONOTONIC, at=at)
        return Job("stamp", compiled.address(stamp), block, 1, 0, (), tuple(args.owned))

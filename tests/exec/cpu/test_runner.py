"""Threads that run a list of jobs together: each task once, after all of the job before, whoever comes late."""

from __future__ import annotations

import os

import numpy as np
import pytest

from refsim.exec.cpu import compiled, runner, thread_pool
from refsim.exec.cpu.args import KERNEL_PARAMS, ArgLayout
from refsim.exec.cpu.ir import I64, ModuleText, Value
from refsim.exec.cpu.job import Arguments, Job

_ARGS = ArgLayout("before", "before_tasks", "out", "runs")


def follows(module: ModuleText, name: str) -> None:
    """Task t counts that it ran and writes the least value of the row before, plus 1."""
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, _ = fn.params
        a = _ARGS.read(fn, block)

        def task(t: Value) -> None:
            least = fn.loop(
                a.before_tasks,
                lambda i, found: found.min(fn.load(a.pointer("before") + i * 8, I64)),
                [fn.i64(1 << 62)],
            )[0]
            fn.store(least + 1, a.pointer("out") + t * 8)
            ran = a.pointer("runs") + t * 8
            fn.store(fn.load(ran, I64) + 1, ran)

        fn.loop(end, task, start=begin)


class Chain:
    """Rows of values, a job for each but the first."""

    def __init__(self, tasks: list[int]) -> None:
        self.rows = [np.zeros(count, np.int64) for count in (1, *tasks)]
        self.runs = [np.zeros(count, np.int64) for count in tasks]
        self.jobs = [self._job(n) for n in range(len(tasks))]

    def _job(self, number: int) -> Job:
        before, out = self.rows[number : number + 2]
        args = Arguments()
        block = _ARGS.pack(
            before=before.ctypes.data,
            before_tasks=len(before),
            out=out.ctypes.data,
            runs=self.runs[number].ctypes.data,
        )
        return args.job("follows", compiled.address(follows), block, len(out))

    def check(self, jobs: thread_pool.JobList, times: int) -> None:
        for run in range(1, times + 1):
            self.rows[0][:] = 1000 * run
            jobs.run()
            for number, row in enumerate(self.rows):
                assert (row == 1000 * run + number).all(), (run, number)
        assert all((runs == times).all() for runs in self.runs)


@pytest.mark.few(2)
@pytest.mark.parametrize("threads", [2, 5, 3, 16])
def test_each_task_runs_once_after_the_job_before(threads: int) -> None:
    rng = np.random.default_rng(threads)
    chain = Chain([int(n) for n in rng.choice([1, 2, 3, 7, 16, 33, 100], 60)] + [threads])
    chain.check(thread_pool.JobList(chain.jobs, threads), 50)


def test_more_tasks_than_16_bits_count() -> None:
    chain = Chain([3, (1 << 17) + 5, 2])
    chain.check(thread_pool.JobList(chain.jobs, 2), 5)


def test_a_thread_that_never_comes_is_not_waited_for() -> None:
    """The first thread alone, with the words of a list for three: it takes the others' shares."""
    chain = Chain([1, 2, 3, 8, 50])
    jobs = thread_pool.JobList(chain.jobs, 3)
    for run in (0, 1):
        chain.rows[0][:] = 7 + run
        jobs._shared[0] = runner.first_job(run, len(chain.jobs))
        runner.entry()(jobs._table_at, len(chain.jobs), jobs._shared_at, jobs._scratch_at[0], 0)
        assert chain.rows[-1].tolist() == [12 + run] * 50
    assert all((runs == 2).all() for runs in chain.runs)


def test_one_that_comes_late_does_nothing_again() -> None:
    chain = Chain([4, 9])
    jobs = thread_pool.JobList(chain.jobs, 2)
    jobs._shared[0] = runner.first_job(0, 2)
    for thread in (0, 1):
        runner.entry()(jobs._table_at, 2, jobs._shared_at, jobs._scratch_at[thread], thread)
    assert all((runs == 1).all() for runs in chain.runs)


def test_numbers_of_jobs_may_outgrow_half_a_word() -> None:
    """Threads keep the lower half of a job's number: 2**32 jobs are an hour of short runs."""
    chain = Chain([5, 2, 9, 1])
    jobs = thread_pool.JobList(chain.jobs, 3)
    jobs._runs = (1 << 30) - 3
    jobs._shared[8] = runner.first_job(jobs._runs, 4) - 1
    for thread in range(3):
        number = runner.first_job(jobs._runs, 4) - 1
        jobs._shared.view(np.uint64)[16 + 16 * thread] = (number & 0xFFFFFFFF) << 32
    chain.check(jobs, 6)


def test_waiting_threads_yield_where_there_are_more_than_processors() -> None:
    few = runner.shared_words(3, processors=2)
    enough = runner.shared_words(2, processors=2)
    assert few[runner._LOOKS] == 0 < enough[runner._LOOKS]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system forks no processes")
def test_a_child_process_runs_a_list_that_its_parent_ran() -> None:
    chain = Chain([3, 8, 1, 20])
    jobs = thread_pool.JobList(chain.jobs, 2)
    chain.check(jobs, 3)
    child = os.fork()
    if not child:
        try:
            for runs in chain.runs:
                runs[:] = 0
            chain.check(jobs, 3)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

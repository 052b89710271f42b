"""Threads that run a list of jobs together: each task once, after all of the job before, whoever comes late."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

import numpy as np
import pytest

from refsim.exec.cpu import compiled, runner, thread_pool, wake
from refsim.exec.cpu.args import KERNEL_PARAMS, ArgLayout
from refsim.exec.cpu.ir import I64, ModuleText, Value
from refsim.exec.cpu.job import Arguments, Job, combine

_ARGS = ArgLayout("before", "before_tasks", "out", "runs")
_LATE = ArgLayout("at", "steps", "source")
LINE = 64


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


def late(module: ModuleText, name: str) -> None:
    """The first task takes its time; each writes what comes of that, or the word that ``source`` has then."""
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, _ = fn.params
        a = _LATE.read(fn, block)

        def task(t: Value) -> None:
            steps = t.eq(0).select(a.steps, 0)
            first = fn.load(a.pointer("source"), I64)
            (made,) = fn.loop(steps, lambda _, x: (x * x + 1,), [first])  # no formula gives the last one
            fn.store(made, a.pointer("at") + t * 8)

        fn.loop(end, task, start=begin)


def following(before: np.ndarray, out: np.ndarray, runs: np.ndarray, scratch: int = 0) -> Job:
    """A task for each element of ``out``."""
    args = Arguments()
    at = {name: array.ctypes.data for name, array in (("before", before), ("out", out), ("runs", runs))}
    block = args.block(_ARGS, {}, before_tasks=len(before), **at)
    return args.job("follows", compiled.address(follows), block, len(out), scratch)


class Chain:
    """Rows of values, a job for each but the first."""

    def __init__(self, tasks: list[int]) -> None:
        self.rows = [np.zeros(count, np.int64) for count in (1, *tasks)]
        self.runs = [np.zeros(count, np.int64) for count in tasks]
        rows = zip(self.rows, self.rows[1:], self.runs, strict=False)
        self.jobs = [following(*row) for row in rows]

    def check(self, jobs: thread_pool.JobList, times: int, pause: float = 0) -> None:
        for run in range(1, times + 1):
            self.rows[0][:] = 1000 * run
            time.sleep(pause)
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


@pytest.mark.parametrize("threads", [2, 3, 6, 9])
def test_threads_wake_each_other(threads: int) -> None:
    """Runs one after another, which helpers look out for, and runs for which they have to be woken."""
    for pause in (0, 0.01):
        chain = Chain([11, 11, 11])
        chain.check(thread_pool.JobList(chain.jobs, threads), 10, pause)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("shares", "rounds"), [((1,), 1), ((3, 1), 1), ((1, 7, 2), 3), ((0, 5), 2)])
def test_parts_of_a_job_run_each_task_once(shares: Sequence[int], rounds: int, threads: int) -> None:
    out, runs = ([np.zeros(share * rounds + 1, np.int64) for share in shares] for _ in range(2))
    before = np.arange(len(shares))
    jobs = [following(before[n : n + 1], out[n][:-1], runs[n], 8 * (n + 1)) for n, _ in enumerate(shares)]
    combined = combine(jobs, rounds)
    assert combined.tasks == sum(shares) * rounds and combined.scratch == 8 * len(shares)
    assert combined.variant == " + ".join(["follows"] * len(shares))
    thread_pool.JobList([combined], threads).run()
    for number, (row, ran) in enumerate(zip(out, runs, strict=True), 1):
        assert row.tolist() == [number] * (len(row) - 1) + [0]
        assert ran.tolist() == [1] * (len(row) - 1) + [0]


def test_a_job_waits_for_the_last_task_of_the_one_before() -> None:
    words, jobs = np.array([3, 0, 0, 0], np.int64), []
    for source, at, steps, tasks in ((0, 1, 20_000_000, 2), (1, 3, 0, 1)):
        args = Arguments()
        places = {name: words.ctypes.data + 8 * place for name, place in (("source", source), ("at", at))}
        block = args.block(_LATE, {}, steps=steps, **places)
        jobs.append(args.job("late", compiled.address(late), block, tasks))
    thread_pool.JobList(jobs, 2).run()
    assert words[1] not in (0, 3) and words[3] == words[1]


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
    for helpers, processors, looks in ((1, 2, 1), (2, 2, 10), (7, 8, 1), (8, 8, 10)):
        assert wake.words(helpers, processors)[wake._LOOKS] == wake.LOOKS // looks


@pytest.mark.parametrize("helpers", [1, 2, 3, 7, 31])
def test_words_of_helpers_lie_on_lines_of_their_own(helpers: int) -> None:
    """A line of the cache that two threads write to would go back and forth between them."""
    for _ in range(20):  # wherever the memory comes from
        words = wake.words(helpers, 8)
        assert words.ctypes.data % LINE == 0
        assert words.nbytes >= 8 * (wake._HEAD + helpers * wake._WORDS)
        assert np.flatnonzero(words).tolist() == [wake._LOOKS]
    assert 8 * wake._HEAD % LINE == 0 == 8 * wake._WORDS % LINE


def test_a_share_ends_with_its_last_thread() -> None:
    assert runner.makespan([5.0], 4) == 5.0
    assert runner.makespan([1.0] * 8, 2) == runner.makespan([1.0] * 7, 2) == 4.0
    # the first thread's share are the first two tasks
    assert runner.makespan([2.0, 2.0, 3.0], 2) == 4.0
    # the second thread takes the second task
    assert runner.makespan([3.0, 1.0, 1.0, 1.0], 2) == 3.0
    assert runner.makespan([], 2) == 0.0


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

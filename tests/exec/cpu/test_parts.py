"""Pieces that several kernels share: narrowing, jobs of several kernels, shares of several threads."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refsim.core.buffer import PackedBuffer
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor, compiled
from refsim.exec.cpu.args import KERNEL_PARAMS, ArgLayout
from refsim.exec.cpu.depthwise.prepack import groups
from refsim.exec.cpu.ir import I32, I64, PTR, ModuleText, Value, vec
from refsim.exec.cpu.isa import ISAS, cpu
from refsim.exec.cpu.job import Arguments, Job, combine
from refsim.exec.cpu.narrow import VECTORS, narrow, order
from refsim.exec.cpu.runner import makespan
from refsim.exec.cpu.thread_pool import JobList
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.prepared import Prepared

WIDEST = cpu().isa


def narrowed(module: ModuleText, name: str, *, lanes: int, packs: bool) -> None:
    """Four vectors of integers to bytes."""
    with module.function(name, (PTR, PTR)) as fn:
        source, to = fn.params
        vectors = [fn.load(source + 4 * lanes * v, vec(I32, lanes)) for v in range(VECTORS)]
        fn.store(narrow(fn, vectors, packs), to)


@pytest.mark.parametrize("packs", [False, True] if WIDEST.packs else [False])
@pytest.mark.parametrize("lanes", [n for n in (4, 8, 16) if n <= WIDEST.lanes])
def test_narrowing_saturates_and_puts_every_lane_in_its_place(lanes: int, packs: bool) -> None:
    rng = np.random.default_rng(lanes)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
        compiled.address(narrowed, lanes=lanes, packs=packs)
    )
    edges = [-(2**31), -40000, -32769, -129, -128, 0, 127, 128, 32768, 40000, 2**31 - 1]
    for source in (rng.integers(-300, 300, (VECTORS, lanes)), rng.choice(edges, (VECTORS, lanes))):
        given_, made = source.astype(np.int32), np.zeros(VECTORS * lanes, np.int8)
        run(given_.ctypes.data, made.ctypes.data)
        want = np.zeros_like(made)
        want[order(lanes)] = np.clip(source, -128, 127)
        assert np.array_equal(made, want)


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@given(st.integers(1, 300).map(lambda words: 4 * words))
def test_groups_cover_all_channels_and_end_at_the_last(isa, channels: int) -> None:  # type: ignore[no-untyped-def]
    found = [(g, g.channels(channels, isa.lanes // g.lanes)) for g in groups(channels, isa)]
    covered = np.concatenate([lanes.reshape(-1) for _, lanes in found])
    assert set(covered.tolist()) == set(range(channels))
    assert all(g.lanes in (4, 8, 16) and g.lanes <= isa.lanes for g, _ in found)
    # each group's channels are neighbours: but for tensors smaller than the narrowest group
    for g, lanes in found:
        for group in lanes:
            first = int(group.min())
            size = min(VECTORS * g.lanes, channels)
            assert np.array_equal(np.unique(group), np.arange(first, first + size))
            # the bytes of a vector are the group's channels once for each range of columns
            whole = np.empty(VECTORS * isa.lanes, np.int64)
            whole[order(isa.lanes)] = group
            expected = np.minimum(first + np.arange(VECTORS * g.lanes), channels - 1)
            assert np.array_equal(whole, np.tile(expected, isa.lanes // g.lanes))


@pytest.mark.skipif(not WIDEST.maddubs, reason=f"{WIDEST.name} has no saturating byte products")
@pytest.mark.parametrize("fill", [127, -128])
def test_byte_products_at_their_limits(fill: int) -> None:
    """All weights and all inputs at either end: every pair would saturate."""
    params = {"in_scale": 0.01, "in_zp": 3, "out_scale": 60.0, "out_zp": -4}
    case = Case("q8ta_linear", params, {"x": ((9, 64), "4H4W")}, "4H4W", features={"out_channels": 40})
    bound = bind(case)
    weight = bound.call.consts["weight"]
    assert weight is not None
    ends_ = np.where(np.arange(weight.size).reshape(weight.shape) % 3 == 0, -128, 127).astype(np.int8)
    for chosen in (ends_, np.full_like(weight, fill)):
        sums = chosen.reshape(len(chosen), -1).sum(1, dtype=np.int32)
        consts = {**bound.call.consts, "weight": chosen, "weight_sums": sums}
        prepared = Prepared(replace(bound.call, consts=consts))
        for value in (127, -128):
            x = PackedBuffer.pack(np.full((9, 64), value, np.int8), bound.call.descs["x"].layout)
            wanted = EmulatedExecutor().run_prepared(prepared, {"x": x})
            executor = NativeExecutor(force={"*": "gemm8"})
            assert executor.choose(prepared).route == "gemm8"
            assert np.array_equal(executor.run_prepared(prepared, {"x": x}).raw, wanted.raw)


_MARK = ArgLayout("at", "number")


def mark(module: ModuleText, name: str) -> None:
    """Each task adds the job's number to a word of its own."""
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, _ = fn.params
        a = _MARK.read(fn, block)

        def task(t: Value) -> None:
            place = a.pointer("at") + t * 4
            fn.store(fn.load(place, I32) + a.i32("number"), place)

        fn.loop(end, task, start=begin)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("shares", "rounds"), [((1,), 1), ((3, 1), 1), ((1, 7, 2), 3), ((0, 5), 2)])
def test_parts_of_a_job_run_each_task_once(shares: Sequence[int], rounds: int, threads: int) -> None:
    memory = [np.zeros(share * rounds + 1, np.int32) for share in shares]
    jobs = []
    for number, (share, words) in enumerate(zip(shares, memory, strict=True), 1):
        args = Arguments()
        block = args.block(_MARK, {}, at=words.ctypes.data, number=number)
        tasks = share * rounds
        jobs.append(Job("mark", compiled.address(mark), block, tasks, 8 * number, (), tuple(args.owned)))
    combined = combine(jobs, rounds)
    assert combined.tasks == sum(shares) * rounds
    assert combined.scratch == 8 * len(shares)
    assert combined.variant == " + ".join(["mark"] * len(shares))
    JobList([combined], threads).run()
    for number, words in enumerate(memory, 1):
        assert words.tolist() == [number] * (len(words) - 1) + [0]


@pytest.mark.parametrize("threads", [2, 3, 6, 9])
def test_threads_wake_each_other(threads: int) -> None:
    """Runs one after another, which helpers look out for, and runs for which they have to be woken."""
    words, args = np.zeros(12, np.int32), Arguments()
    block = args.block(_MARK, {}, at=words.ctypes.data, number=1)
    job = Job("mark", compiled.address(mark), block, 11, 0, (), tuple(args.owned))
    jobs = JobList([job] * 3, threads)
    for pause in (0.0, 0.01):
        for _ in range(10):
            time.sleep(pause)
            jobs.run()
    assert words.tolist() == [60] * 11 + [0]


_LATE = ArgLayout("at", "steps", "source")


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


def test_a_job_waits_for_the_last_task_of_the_one_before() -> None:
    words, jobs = np.array([3, 0, 0, 0], np.int64), []
    for source, at, steps, tasks in ((0, 1, 20_000_000, 2), (1, 3, 0, 1)):
        args = Arguments()
        places = {name: words.ctypes.data + 8 * place for name, place in (("source", source), ("at", at))}
        block = args.block(_LATE, {}, steps=steps, **places)
        jobs.append(Job("late", compiled.address(late), block, tasks, 0, (), tuple(args.owned)))
    JobList(jobs, 2).run()
    assert words[1] not in (0, 3) and words[3] == words[1]


def test_a_share_ends_with_its_last_thread() -> None:
    assert makespan([5.0], 4) == 5.0
    assert makespan([1.0] * 8, 2) == 4.0
    assert makespan([1.0] * 7, 2) == 4.0
    # the first thread's share are the first two tasks
    assert makespan([2.0, 2.0, 3.0], 2) == 4.0
    # the second thread takes the second task
    assert makespan([3.0, 1.0, 1.0, 1.0], 2) == 3.0
    assert makespan([], 2) == 0.0

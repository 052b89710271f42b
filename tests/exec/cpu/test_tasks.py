"""The tasks of a job share its work: each writes bytes of its own, and together they write what the job writes."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from cases import conv
from wide import wide

from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds
from refsim.exec.cpu import NativeExecutor
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.job import Job
from refsim.exec.cpu.thread_pool import scratch_for
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
FILLS = (0x55, 0xAA)
MOST_TASKS = 200


def written(bound: BoundCase, job: Job) -> Iterator[np.ndarray]:
    """For each task, which bytes of the output it writes: whatever lay there before, the same stands there then."""
    scratch = scratch_for([job], 1)[0]
    at = -(-int(scratch.ctypes.data) // 64) * 64
    run = _KERNEL(job.kernel)
    for task in range(job.tasks):
        seen = []
        for fill in FILLS:
            out = PackedBuffer(bound.call.out)
            out.raw[:] = fill
            buffers = {
                name: buffer.words.ctypes.data for name, buffer in {**bound.inputs, "out": out}.items()
            }
            for r in job.relocations:
                r.block[r.word] = buffers[r.buffer]
            run(job.block.ctypes.data, task, task + 1, at)
            seen.append(out.raw.copy())
        yield seen[0] == seen[1]


def check(bound: BoundCase, threads: int, route: str = "") -> str:
    """The route, if it is one job of several tasks that share the work as they should; else ""."""
    choice = NativeExecutor(threads, {"*": route} if route else {}).choose(Prepared(bound.call))
    jobs = choice.jobs() or ()
    if len(jobs) != 1 or jobs[0].temps or not 1 < jobs[0].tasks <= MOST_TASKS:
        return ""
    times = np.sum([each.astype(np.int32) for each in written(bound, jobs[0])], 0)
    desc = bound.call.out
    elements = times[byte_kinds(desc) == ByteKind.VALUE] if desc.is_int8 else times
    assert elements.min() >= 1, f"{choice.route}: no task writes some elements: {bound.case}"
    # the last groups of channels of a depthwise convolution begin where they end with the last channel
    most = 2 if choice.route == "depthwise" else 1
    assert times.max() <= most, f"{choice.route}: {(times > most).sum()} bytes written again: {bound.case}"
    return choice.route


@pytest.mark.parametrize("threads", (1, 3, 8))
@pytest.mark.parametrize("op", OPS)
def test_tasks_share_the_output(op: str, threads: int) -> None:
    for seed in range(8):
        check(bind(wide(op, 500 + seed)), threads)


@pytest.mark.parametrize("route", ["winograd4", "winograd2", "gemm", "gemm8", "amx_emulated"])
def test_tasks_of_other_routes_share_it_too(route: str) -> None:
    taken = Counter(
        check(
            bind(conv("q8ta_conv2d_im2col", (images, 24, size, size + 3), out, 3, layout=layout)),
            threads,
            route,
        )
        for images, size, out in ((1, 9, 150), (2, 17, 40), (1, 30, 200))
        for layout in ("4C", "4W4C")
        for threads in (1, 3, 8, 16)
    )
    least = 0 if route == "gemm8" and not cpu().isa.maddubs else 6
    assert taken[route] >= least, taken


def test_most_routes_are_among_them() -> None:
    taken = {check(bind(wide(op, 500 + seed)), 3) for op in OPS for seed in range(8)}
    wanted = {"gemm", "gemv", "depthwise", "repack", "transpose", "contiguous", "strided", "row_range"}
    assert wanted <= taken, wanted - taken

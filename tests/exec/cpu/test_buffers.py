"""What kernels read and write: every element, none twice, nothing beyond the memory behind a buffer."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import fenced
import numpy as np
import pytest
from cases import conv
from examples import small
from wide import wide

from refsim.core.buffer import GUARD, ByteKind, PackedBuffer, byte_kinds
from refsim.core.errors import DeviceError
from refsim.core.lifetimes import ALIGN
from refsim.core.tensor import TensorDesc
from refsim.exec import emulated
from refsim.exec.cpu import EmulatedExecutor, NativeExecutor, isa
from refsim.exec.cpu import executor as native
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.job import Job
from refsim.exec.cpu.thread_pool import scratch_for
from refsim.exec.executor import Executor
from refsim.golden import rules
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS

#: Cases of the corpus for each operator, of small tensors.
EACH, MOST_WORDS = 12, 8000
EXECUTORS = {"cpu": NativeExecutor(), "cpu, 3 threads": NativeExecutor(3), "cpu:emulated": EmulatedExecutor()}


class Filled(PackedBuffer):
    """A buffer with something in it from the beginning."""

    def __init__(self, desc: TensorDesc) -> None:
        super().__init__(desc)
        self.words[:] = GUARD


@pytest.mark.few(38)
@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
@pytest.mark.parametrize("op", OPS)
def test_what_lay_there_before_does_not_show(
    op: str, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (native, emulated):
        monkeypatch.setattr(module, "PackedBuffer", Filled)
    chosen = list(small(op, EACH, MOST_WORDS))
    assert len(chosen) == EACH
    for name, bound in chosen:
        out = executor.run_call(bound.call, bound.inputs)
        assert np.array_equal(out.unpack(), bound.call.expected(bound.inputs).unpack()), name


@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
def test_rows_that_a_table_lacks_are_zeros(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (native, emulated):
        monkeypatch.setattr(module, "PackedBuffer", Filled)
    for number in range(EACH):
        bound = bind(rules.case("embedding_q4gsw", number))
        weight = bound.call.consts["weight"]
        assert weight is not None
        beyond = (-1, len(weight), 2**31 - 1, -(2**31), len(weight) - 1, 0)
        indices = bound.inputs["indices"].data
        indices[:] = np.resize(np.array(beyond, np.int32), indices.size)
        out = executor.run_call(bound.call, bound.inputs)
        assert out == bound.call.expected(bound.inputs), bound.case
        assert not out.data[: out.desc.shape[-1]].any(), bound.case


# --- what lies beyond a buffer ---------------------------------------------------------------------------


#: Cases of each operator, on every route.
FENCED = 6
#: What a route must have run at least once, on any processor.
REACHED = {
    "gemm",
    "depthwise",
    "transpose",
    "repack",
    "contiguous",
    "strided",
    "via_nhwc",
    "linear",
    "groups",
}

fences = pytest.mark.skipif(not hasattr(mmap, "PROT_READ"), reason="pages cannot be closed here")


@fences
@pytest.mark.few(1)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", ["", "avx2", "portable"])
def test_nothing_is_read_beyond_the_memory_behind_a_buffer(name: str, threads: int) -> None:
    try:
        around = {**os.environ, **(isa.environment(name) if name else {})}
    except DeviceError as error:
        pytest.skip(str(error))
    command = [sys.executable, "-X", "faulthandler", fenced.__file__, str(threads), str(FENCED)]
    done = subprocess.run(
        command, env=around, cwd=Path(__file__).parents[3], capture_output=True, text=True, check=False
    )
    said = done.stdout.splitlines()
    assert done.returncode == 0, f"read out of bounds: {'; '.join(said[-2:])}; {done.stderr[:400]}"
    assert {line.partition(" by ")[2] for line in said} > REACHED


def test_a_plan_has_so_much_memory_behind_its_last_value() -> None:
    assert fenced.SLACK == ALIGN


@fences
@pytest.mark.parametrize(("kind", "inside", "outside"), [("Fenced", 63, 64), ("Front", 0, -1)])
def test_what_lies_beyond_is_closed(kind: str, inside: int, outside: int) -> None:
    """One byte more, or one before, ends the process. Places are bytes from the end, or from the beginning."""
    code = f"""
import ctypes, fenced
from refsim.core.tensor import TensorDesc
buffer = fenced.{kind}(TensorDesc((1, 4, 4, 4), "4C"))
at = buffer.words.ctypes.data + (0 if buffer.front else buffer.words.nbytes)
buffer.protect(0)
for place in ({inside}, {outside}):
    print(ctypes.c_int8.from_address(at + place).value, flush=True)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    assert len(done.stdout.split()) == 1 and done.returncode < 0, done.stderr


# --- each task writes bytes of its own -------------------------------------------------------------------


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
def test_tasks_share_the_output(threads: int) -> None:
    taken = {check(bind(wide(op, 500 + seed)), threads) for op in OPS for seed in range(8)}
    wanted = {"gemm", "depthwise", "repack", "transpose", "contiguous", "strided"}
    wanted |= {"gemv", "row_range"} if threads > 1 else set()
    assert wanted <= taken


@pytest.mark.parametrize("route", ["winograd4", "winograd2", "gemm", "gemm8", "amx_emulated"])
def test_tasks_of_other_routes_share_it_too(route: str) -> None:
    sizes, taken = ((1, 9, 150), (2, 17, 40), (1, 30, 200)), Counter[str]()
    for (images, size, out), layout, threads in product(sizes, ("4C", "4W4C"), (1, 3, 8, 16)):
        case = conv("q8ta_conv2d_im2col", (images, 24, size, size + 3), out, 3, layout=layout)
        taken[check(bind(case), threads, route)] += 1
    least = 0 if route == "gemm8" and not cpu().isa.maddubs else 6
    assert taken[route] >= least, taken

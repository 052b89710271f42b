"""The CPU's executors: native kernels in LLVM IR, and the emulated kernels, which write the same bytes."""

from __future__ import annotations

from refsim.exec.cpu.executor import NativeExecutor
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.executor import Executor, ExecutorInfo

__all__ = ["EmulatedExecutor", "NativeExecutor", "executors", "open_named"]


def open_named(rest: str, threads: int) -> Executor | None:
    """``cpu`` or ``cpu:emulated``, by what stands behind the colon."""
    if rest == "emulated":
        return EmulatedExecutor()
    return None if rest else NativeExecutor(threads)


def executors() -> list[ExecutorInfo]:
    return [
        ExecutorInfo("cpu", True, "native kernels, the emulated ones where there is none"),
        ExecutorInfo("cpu:emulated", True, "emulated kernels in Numba, one invocation at a time"),
    ]

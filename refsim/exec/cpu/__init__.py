"""The CPU's executors: native kernels written in LLVM IR, and the emulated kernels, which write the same bytes.

Where things are; every module imports only from its own row and the rows above:

- ``ir``, ``isa``: a notation for LLVM IR, and the processor to write it for
- ``args``, ``strides``, ``compiled``, ``job``, ``runner``, ``wake``, ``thread_pool``: a kernel's arguments, a tensor's
  strides, machine code; a kernel with its arguments, and the threads that run a list of them
- ``table``, ``epilogue``, ``narrow``, ``tile4x4``, ``nhwc``, ``dot``: pieces that kernels of several families are made
  of
- ``conv_problem``, ``amx``, ``gemm``, ``winograd``, ``depthwise``, ``elementwise``, ``relayout``, ``quantize``,
  ``pool``, ``groups``: the families. ``kernel.py`` writes a kernel's code; ``prepack.py`` lays out the constants for
  it and makes the job
- ``routes``: which kernel computes a call
- ``step``, ``fusion``, ``schedule``, ``stopwatch``, ``plan``, ``executor``: whole graphs
"""

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

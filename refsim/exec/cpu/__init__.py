"""The CPU executors: plain model kernels in Numba, and fast kernels in LLVM IR that write the same bytes."""

from refsim.exec.cpu.executor import FastExecutor
from refsim.exec.emulated import ModelExecutor

__all__ = ["FastExecutor", "ModelExecutor"]

"""The CPU executors: plain model kernels in Numba, and fast kernels in LLVM IR that write the same bytes."""

from refsim.cpu.fast import FastExecutor
from refsim.cpu.model import ModelExecutor

__all__ = ["FastExecutor", "ModelExecutor"]

"""The Numba CPU executor."""

from refsim.cpu.model import ModelExecutor

__all__ = ["ModelExecutor"]

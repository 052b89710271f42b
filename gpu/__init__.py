"""Runs refsim's launches on a real Vulkan device through Kompute.

Importing this package imports neither ``kp`` nor the Vulkan loader: both are looked for when a device is
opened, so that the absence of either is a typed error with the command that mends it, never a failed import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refsim_gpu.worker import IsolatedExecutor


def open_executor(index: int = 0) -> IsolatedExecutor:
    """The executor of Vulkan device ``index``, in a process of its own; DeviceError or MissingDependencyError."""
    from refsim_gpu.worker import IsolatedExecutor

    executor = IsolatedExecutor(index)
    executor.open()
    return executor

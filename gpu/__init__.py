"""Runs refsim's launches on a real Vulkan device through Kompute.

Importing this package imports neither ``kp`` nor the Vulkan loader: both are looked for when a device is
opened, so that the absence of either is a typed error with the command that mends it, never a failed import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refsim_gpu.executor import KomputeExecutor


def open_executor(index: int = 0) -> KomputeExecutor:
    """The executor of Vulkan device ``index``; DeviceError or MissingDependencyError if there is none."""
    from refsim_gpu import executor

    return executor.open_executor(index)

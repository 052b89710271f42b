"""How verbs reach a Vulkan device: in a process of its own. MissingDependencyError without loader or `kp`."""

from __future__ import annotations

from typing import Any

from refsim.core.errors import DeviceError
from refsim.core.extras import GPU_FIX
from refsim.exec.factory import backend


def devices() -> list[Any]:
    """Every Vulkan device (`refsim_gpu.vulkan.DeviceInfo`); DeviceError if there is none."""
    found: list[Any] = backend("gpu").ask("devices")
    if not found:
        raise DeviceError("vulkan", "no driver offers a device", need=GPU_FIX)
    return found


def probe(index: int) -> Any:
    """What a probe found (`refsim_gpu.probe.Findings`); DeviceError if there is no such device, or it was lost."""
    return backend("gpu").ask("probe", index)

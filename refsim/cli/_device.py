"""How verbs reach a Vulkan device: in a process of its own, and with status 3 if there is none."""

from __future__ import annotations

from typing import Any

from refsim.core.errors import DeviceError, MissingDependencyError
from refsim.exec.factory import backend


def devices() -> list[Any]:
    """Every Vulkan device (`refsim_gpu.vulkan.DeviceInfo`); DeviceError if there is none."""
    found: list[Any] = _ask("devices")
    if not found:
        raise DeviceError("vulkan", "no driver offers a device", need="make gpu")
    return found


def probe(index: int) -> Any:
    """What a probe found (`refsim_gpu.probe.Findings`); DeviceError if there is no such device, or it was lost."""
    return _ask("probe", index)


def _ask(question: str, *arguments: object) -> Any:
    try:
        return backend("gpu").ask(question, *arguments)
    except MissingDependencyError as error:  # no package, no loader, no kp: as good as no device
        raise DeviceError(error.where, error.what, got=error.got, need=error.need) from error

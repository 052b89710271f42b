"""List the Vulkan devices: name, driver, memory, packed dot product, matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated

from refsim.cli._device import devices
from refsim.cli.kit.verb import verb
from refsim.core.counted import form
from refsim.core.extras import GPU_FIX, NO_KP
from refsim.core.plain import FLAT
from refsim.core.result import Result, Table, Text
from refsim.exec.device_info import DeviceInfo

COLUMNS = (
    "executor", "device", "kind", "vendor", "vulkan", "driver", "memory bytes", "packed dot product", "int8 matrices",
)  # fmt: skip


@dataclass(frozen=True)
class ListedDevice:
    """A device."""

    executor: Annotated[str, "Its name for -x."]
    info: Annotated[DeviceInfo, FLAT]

    def cells(self) -> tuple[object, ...]:
        d = self.info
        dot = "accelerated" if d.dot_4x8_accelerated else "yes" if d.integer_dot_product else "no"
        matrices = "yes" if d.int8_matrices else "no"
        about = (d.name, d.kind, d.vendor, d.api_version, d.driver, d.device_local_bytes)
        return (self.executor, *about, dot, matrices)


@dataclass(frozen=True)
class Devices(Result):
    """The Vulkan devices."""

    devices: Annotated[Sequence[ListedDevice], "The devices."]
    kp: Annotated[bool, "Whether the module kp is built; without it nothing runs on them."]
    fix: Annotated[str | None, "The command that builds it; null if it is built."]

    def text(self) -> Text:
        rows = [row.cells() for row in self.devices]
        yield Table(COLUMNS, rows, drop=("vulkan", "kind", "vendor", "memory bytes"))
        if not self.kp:
            yield f"nothing runs on {form(len(rows), 'it', 'them')}: {NO_KP}; fix: {GPU_FIX}"


@verb("devices")
def command() -> Devices:
    """List the devices that you can name with `-x gpu:N`. The status is 3 if there is none."""
    found, built = devices(), find_spec("kp") is not None
    return Devices([ListedDevice(f"gpu:{d.index}", d) for d in found], built, None if built else GPU_FIX)

"""Proves that this build of Kompute and this device move bytes faithfully; run it with ``python -m``."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from refsim.core.counted import counted
from refsim.core.errors import DeviceError
from refsim.exec.device_info import DeviceInfo
from refsim_gpu.command import command
from refsim_gpu.kompute import TENSOR_DTYPES, Device

SHADER = "probe/selftest"
LOCAL = 64
MULTIPLIER = 0x9E3779B1
OFFSET = 0xDEADBEEF
COUNT = 1000  # not a multiple of the workgroup: the tail past it must stay untouched
PADDED = 1024
UNTOUCHED = 0xA5A5A5A5


@dataclass(frozen=True)
class Report:
    device: DeviceInfo
    kp_version: str
    roundtrips: tuple[str, ...]
    """dtypes whose arrays came back from device memory with every bit the same."""
    words_compared: int

    def __str__(self) -> str:
        return (
            f"kp {self.kp_version} on {self.device.name} ({self.device.driver}): "
            f"round trips {' '.join(self.roundtrips)}, {self.words_compared} kernel words exact"
        )


def run(device_index: int = 0) -> Report:
    """Test a device that is opened for it. Raises MissingDependencyError without a Vulkan loader or kp, and what
    `check` does."""
    with Device(device_index) as device:
        return check(device)


def check(device: Device) -> Report:
    """Round-trip every tensor dtype through device memory and dispatch one small kernel, comparing exactly.

    DeviceError when a byte differs.
    """
    # any bits at all: NaN payloads and denormals have to survive too
    generator = np.random.default_rng(0)
    arrays = {
        name: np.frombuffer(generator.bytes(PADDED * dtype.itemsize), dtype)
        for name, dtype in TENSOR_DTYPES.items()
    }
    for array in arrays.values():
        roundtrip(device, array)
    got = device.once(
        SHADER,
        list(arrays.values()),
        np.full(PADDED, UNTOUCHED, np.uint32),
        (PADDED // LOCAL, 1, 1),
        spec=(LOCAL, MULTIPLIER),
        push=(OFFSET, COUNT),
    )
    compare(SHADER, got, expected(arrays))
    return Report(device.info, device.kp.__version__, tuple(arrays), got.size)


def roundtrip(device: Device, array: np.ndarray) -> None:
    """The array after a round trip through device memory; the staging copy is overwritten in between."""
    tensor = device.tensor(array)
    device.run(device.recorded(device.kp.OpTensorSyncDevice([tensor])))
    tensor.data()[:] = 0
    device.run(device.recorded(device.kp.OpTensorSyncLocal([tensor])))
    compare(f"round trip of {array.dtype}", tensor.data().view(np.uint32), array.view(np.uint32))


def expected(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """What ``probe/selftest.comp`` computes."""
    f32, i32, u32 = (arrays[name].view(np.uint32) for name in ("<f4", "<i4", "<u4"))
    f64 = arrays["<f8"].view(np.uint32).reshape(-1, 2)
    mixed: np.ndarray = f32.copy()
    for part in (i32, u32, f64[:, 0], f64[:, 1]):
        mixed = mixed * np.uint32(MULTIPLIER) ^ part
    mixed += np.uint32(OFFSET)
    mixed[COUNT:] = UNTOUCHED
    return mixed


def compare(where: str, got: np.ndarray, want: np.ndarray) -> None:
    wrong = np.flatnonzero(got != want)
    if wrong.size:
        first = wrong[0]
        raise DeviceError(
            where,
            f"{wrong.size} of {counted(want.size, 'word', 'differ')}, the first at {first}",
            got=hex(got[first]),
            need=hex(want[first]),
        )


@command("refsim_gpu.selftest")
def main(arguments: list[str]) -> int:
    print(run(int(arguments[0]) if arguments else 0))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

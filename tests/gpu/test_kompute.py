"""The guards around Kompute: what would crash or pass silently there is a typed error here."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from refsim.core.errors import (
    DeviceError,
    FormatError,
    LimitError,
    MissingDependencyError,
    ParameterError,
    RawBufferError,
)
from refsim.core.extras import GPU_FIX
from refsim_gpu import selftest, spirv, vulkan
from refsim_gpu.kompute import LAYER_VERSION, Device, layer_of, words

INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))


def test_selftest_passes(device: Device) -> None:
    report = selftest.run(device.info.index)
    assert report.roundtrips == ("<f4", "<i4", "<u4", "<f8")
    assert report.device.name in str(report)


def test_selftest_sees_one_wrong_word(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    good = selftest.expected
    monkeypatch.setattr(selftest, "expected", lambda arrays: good(arrays) ^ np.uint32(1))
    with pytest.raises(DeviceError, match="words differ, the first at 0"):
        selftest.run(device.info.index)


def test_device_is_described_as_kompute_sees_it(device: Device) -> None:
    seen = device.manager.get_device_properties()
    limits = device.info.limits
    assert device.info.name == seen["device_name"]
    assert limits["maxComputeWorkGroupCount"] == seen["max_work_group_count"]
    assert limits["maxComputeWorkGroupSize"] == seen["max_work_group_size"]
    assert limits["maxComputeWorkGroupInvocations"] == seen["max_work_group_invocations"]
    assert bool(limits["timestampComputeAndGraphics"]) == seen["timestamps_supported"]
    listed = [one["device_name"] for one in device.manager.list_devices()]
    assert [info.name for info in vulkan.devices()] == listed
    assert device.info.timestamp_ns > 0 and device.info.device_local_bytes > 0


@pytest.mark.usefixtures("device")
def test_unknown_device_index() -> None:
    with pytest.raises(DeviceError, match="no such device; got 99"):
        Device(99)


def test_no_driver_is_an_error_not_an_abort() -> None:
    code = "from refsim_gpu import selftest; raise SystemExit(selftest.main([]))"
    nothing = {"VK_ICD_FILENAMES": "/nonexistent", "VK_DRIVER_FILES": "/nonexistent"}
    result = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | nothing, text=True, capture_output=True, check=False
    )
    assert result.returncode == 3
    assert "no driver offers a device" in result.stderr


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32, np.float64])
def test_tensor_keeps_every_bit(device: Device, dtype: type) -> None:
    array = np.random.default_rng(1).integers(0, 256, 4096, np.uint8).view(dtype)
    assert device.tensor(array).data().tobytes() == array.tobytes()
    assert device.tensor(pickle.loads(pickle.dumps(array))).data().tobytes() == array.tobytes()
    assert device.tensor(array[::2], host=True).data().tobytes() == array[::2].tobytes()


def test_tensor_is_a_copy_and_its_data_an_alias(device: Device) -> None:
    array = np.arange(4, dtype=np.uint32)
    tensor = device.tensor(array)
    array[0] = 9
    tensor.data()[1] = 7
    assert tensor.data().tolist() == [0, 7, 2, 3]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float16, np.bool_, np.dtype(">u4")])
def test_tensor_refuses_other_dtypes(device: Device, dtype: np.dtype) -> None:
    with pytest.raises(RawBufferError, match="dtype has no Kompute tensor"):
        device.tensor(np.zeros(4, dtype))


def test_tensor_refuses_empty_and_oversized(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RawBufferError, match="empty"):
        device.tensor(np.zeros(0, np.uint32))
    small = device.info.limits | {"maxStorageBufferRange": 1024}
    monkeypatch.setattr(device, "info", replace(device.info, limits=small))
    with pytest.raises(LimitError, match="got 2048 bytes, need <= 1024"):
        device.tensor(np.zeros(512, np.uint32))


@pytest.mark.parametrize("host_bytes", [0, 1 << 20])
def test_memory_is_counted(device: Device, monkeypatch: pytest.MonkeyPatch, host_bytes: int) -> None:
    gc.collect()
    before = dict(device._live)
    room = before.get("device", 0) + 4096
    info = replace(device.info, device_local_bytes=room, host_bytes=host_bytes)
    monkeypatch.setattr(device, "info", info)
    size = 2048 if host_bytes else 1024  # staging shares the heap where there is but one
    kept = device.tensor(np.zeros(size // 4, np.float32))
    with pytest.raises(DeviceError, match="out of device memory"):
        device.tensor(np.zeros(size // 2, np.float32))
    del kept
    assert device._live["device"] == before.get("device", 0)
    device.tensor(np.zeros(size // 2, np.float32))


def probe(device: Device, **changes: object) -> object:
    tensors = [device.tensor(np.zeros(64, np.int32)) for _ in range(3)]
    arguments = {"code": spirv.load("probe/dot"), "tensors": tensors, "grid": (1, 1, 1), "push": (64,)}
    return device.algorithm(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"code": b""}, FormatError, "0 bytes"),
        ({"code": b"\x03\x02\x23\x07" + b"\0" * 17}, FormatError, "21 bytes"),
        ({"code": b"\0" * 40}, FormatError, "magic 0x00000000"),
        ({"grid": (0, 1, 1)}, LimitError, "grid outside"),
        ({"grid": (1, 1, 1 << 31)}, LimitError, "grid outside"),
        ({"local": (1024, 2, 1)}, LimitError, "workgroup outside"),
        ({"local": (0, 1, 1)}, LimitError, "workgroup outside"),
        ({"push": (0,) * 1024}, LimitError, "too many push bytes; got 4096"),
        ({"tensors": []}, ParameterError, "no tensor bound"),
    ],
)
def test_algorithm_refuses(device: Device, changes: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        probe(device, **changes)


@pytest.mark.parametrize("version", [None, LAYER_VERSION - 1])
def test_a_kp_without_this_layer_is_refused(version: int | None) -> None:
    kp = ModuleType("kp")
    if version is not None:
        kp.refsim = SimpleNamespace(VERSION=version)
    with pytest.raises(MissingDependencyError) as caught:
        layer_of(kp)
    assert caught.value.need == GPU_FIX and str(version or "none") in str(caught.value.got)


def test_a_recording_says_what_is_wrong(device: Device) -> None:
    """refsim's layer checks what Kompute would let pass, and what would take the process down."""
    recording = device.recorded(device.dispatch(probe(device)))
    recording.submit()
    with pytest.raises(RuntimeError, match="runs already"):
        recording.submit()
    recording.wait()
    recording.wait()  # of what does not run, nothing is waited for
    with pytest.raises(DeviceError, match="the recording has ended"):
        device.kp_call("x", recording.record, device.layer.Barrier())
    short = device.sequence(1)
    short.record(device.layer.Barrier())
    with pytest.raises(RuntimeError, match="more operations than timestamps"):
        short.record(device.layer.Barrier())
    with pytest.raises(DeviceError, match="vkCreateDevice failed: VkResult -7"):
        device.kp_call("x", device.layer.Context, INDEX, ["VK_no_such_extension"], [])
    with pytest.raises(DeviceError, match="no such device: 99"):
        device.kp_call("x", device.layer.Context, 99, [], [])


def test_what_outlives_a_device_does_no_harm() -> None:
    with Device(INDEX) as device:
        tensor = device.tensor(np.zeros(4, np.uint32))
        algorithm, recording = probe(device), device.recorded(device.kp.OpTensorSyncDevice([tensor]))
    assert not tensor.is_init() and not algorithm.is_init()
    with pytest.raises(RuntimeError, match="was destroyed"):
        recording.submit()


def test_timestamps_follow_each_operation(device: Device) -> None:
    if not device.info.limits["timestampComputeAndGraphics"]:
        pytest.skip("no timestamps")
    algorithm = probe(device)
    sequence = device.recorded(device.dispatch(algorithm), device.dispatch(algorithm), timestamps=True)
    device.run(sequence)
    ticks = sequence.get_timestamps()
    assert len(ticks) == 3 and ticks == sorted(ticks)
    device.run(sequence)  # they are reset, so that a sequence may run again
    assert sequence.get_timestamps()[0] >= ticks[-1]


def test_words_are_bits() -> None:
    assert words((-1, 1 << 31, 0x9E3779B1)).tolist() == [0xFFFFFFFF, 1 << 31, 0x9E3779B1]
    assert words(()).dtype == np.uint32

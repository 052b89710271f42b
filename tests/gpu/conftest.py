"""The device that GPU tests run on: the first, or the one that REFSIM_DEVICE names by index."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from needed import needs_device

from refsim.ops.base import gemm
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    with needs_device():
        opened = Device(int(os.environ.get("REFSIM_DEVICE", "0")))
    with opened:
        yield opened


@pytest.fixture(scope="module")
def executor(device: Device) -> Iterator[KomputeExecutor]:
    """Opened as users do it; a file that needs another one has its own."""
    with KomputeExecutor(device.info.index) as opened:
        yield opened


@pytest.fixture(params=gemm.TILE_CONFIGS, ids=lambda row: row.name)
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tile of matrix-like kernels: small cases never choose the large ones, so each is forced."""
    monkeypatch.setattr(gemm, "TILE_CONFIGS", (request.param,))

"""Recorded files with a float linear layer, on the device: the bits of ExecuTorch's own runtime, and of our kernels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import refsim
from refsim_gpu.conformance import Count, compare_model
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device

DATA = Path(__file__).parents[1] / "data" / "heads"
INDEX = int(os.environ.get("REFSIM_DEVICE", "0"))
FILES = sorted(path.stem for path in DATA.glob("*.pte"))
#: What the recording runtime does wrong, or converts out of range; and what it refuses.
OTHER = ("head_07", "head_16", "head_31", "int8_head", "two_heads")


@pytest.fixture(scope="module")
def executor(device: Device) -> Iterator[KomputeExecutor]:
    with KomputeExecutor(INDEX) as opened:
        yield opened


@pytest.mark.parametrize("name", [name for name in FILES if name not in OTHER])
def test_the_runtimes_bits(executor: KomputeExecutor, name: str) -> None:
    recorded = np.load(DATA / f"{name}.npz")
    (out,) = refsim.load(DATA / f"{name}.pte").run([recorded["in0"]], executor)
    assert out.tobytes() == recorded["upstream_out0"].tobytes()


@pytest.mark.parametrize("name", [*OTHER, "classifier"])
def test_every_buffer(executor: KomputeExecutor, name: str) -> None:
    count = Count(name)
    compare_model(executor, DATA / f"{name}.pte", [np.load(DATA / f"{name}.npz")["in0"]], count)
    assert count.compared and not count.failed

"""Recorded files with a float linear layer, on the device: the bits of ExecuTorch's own runtime, and of our kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import refsim
from refsim_gpu.conformance import Count, compare_model
from refsim_gpu.executor import KomputeExecutor

DATA = Path(__file__).parents[1] / "data" / "heads"
FILES = sorted(path.stem for path in DATA.glob("*.pte"))
#: What the recording runtime does wrong, or converts out of range; and what it refuses.
OTHER = ("head_07", "head_16", "head_31", "int8_head", "two_heads")


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

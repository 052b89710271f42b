"""Layers and a model of 8da4w language models on Vulkan: the bits of the definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from refsim.exec.model import load
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device

DATA = Path(__file__).parents[1] / "data" / "groups"


@pytest.mark.parametrize("path", sorted(DATA.glob("*.pte")), ids=lambda path: path.stem)
def test_the_same_bits_as_on_the_cpu(path: Path, device: Device) -> None:
    """tests/exec/test_group_layers.py holds the CPU's against what ET-VK's runtime gave."""
    with np.load(path.with_suffix(".npz")) as archive:
        given = archive["in0"]
    with KomputeExecutor() as executor:
        on_gpu, on_cpu = (load(path).run([given], where)[0] for where in (executor, "cpu:emulated"))
    assert np.array_equal(on_gpu.view(np.int32), on_cpu.view(np.int32))

"""Whole files of single operators give the bits of upstream's runtime on the device."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import refsim
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device

DATA = Path(__file__).parents[1] / "data" / "ops"
FILES = sorted(path for path in DATA.glob("*.pte") if path.with_suffix(".io.npz").is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_bits_of_upstream(device: Device, path: Path) -> None:
    arrays = np.load(path.with_suffix(".io.npz"))
    if "upstream_out0" not in arrays:
        pytest.skip("upstream's runtime refuses the file")
    with KomputeExecutor(int(os.environ.get("REFSIM_DEVICE", "0"))) as executor:
        (out,) = refsim.load(path).run([arrays["in0"]], executor=executor)
    assert out.tobytes() == arrays["upstream_out0"].tobytes()

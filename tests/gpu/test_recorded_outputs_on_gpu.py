"""Recorded files on the device: the bits of ExecuTorch's own runtime, and in every buffer those of our kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
from exec.recorded import OTHER_HEADS, files, inputs, outputs

import refsim
from refsim_gpu.conformance import Count, compare_model
from refsim_gpu.executor import KomputeExecutor

RECORDED = [path for path in files("ops", "heads") if path.stem not in OTHER_HEADS]
BUFFERS = [*files("groups"), *(path for path in files("heads") if path.stem in (*OTHER_HEADS, "classifier"))]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_runtimes_bits(executor: KomputeExecutor, path: Path) -> None:
    (out,), (need,) = refsim.load(path).run(inputs(path), executor), outputs(path)
    assert out.tobytes() == need.tobytes()


@pytest.mark.parametrize("path", BUFFERS, ids=lambda path: path.stem)
def test_every_buffer(executor: KomputeExecutor, path: Path) -> None:
    """tests/exec/test_recorded_outputs.py holds those of groups against what ET-VK's runtime gave."""
    count = Count(path.stem)
    compare_model(executor, path, inputs(path), count)
    assert count.compared and not count.failed

"""Small networks of the kinds that real models are made of: they are lowered, and the file gives what torch gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import refsim
from refsim.partition.container import write
from refsim.partition.lower import lower
from refsim.partition.report import steps

from .idioms import IDIOMS
from .quantize import quantize

#: How the plan goes: delegates, and what runs outside of them.
PLANS = {
    "Masked": "scalar_tensor.default delegate",
    "Islands": "delegate erf.default delegate erf.default",
    "Twins": "scalar_tensor.default delegate mean.dim mean.dim delegate clamp.Tensor clamp.Tensor delegate",
    "Anchors": "delegate sum.dim_IntList delegate",
    "Bert": "delegate",
    "Prelu": "delegate mean.dim delegate",
    "Pyramid": "delegate",
    "SuperResolution": "delegate",
}


@pytest.mark.parametrize("name", IDIOMS)
def test_float(name: str, tmp_path: Path) -> None:
    """Without quantization the results are torch's, up to the order of additions and the bounds of functions."""
    module, inputs = IDIOMS[name]()
    lowered = lower(torch.export.export(module, inputs), name)
    if name in PLANS:
        found = [step.split()[0].removeprefix("aten.") for step in steps(lowered)]
        assert " ".join(found) == PLANS[name]
    outputs = run(lowered, inputs, tmp_path)
    with torch.no_grad():
        wanted = module(*inputs)
    for ours, theirs in zip(outputs, wanted if isinstance(wanted, tuple | list) else (wanted,), strict=True):
        assert np.abs(ours - theirs.numpy()).max() <= 1e-3 * max(1.0, float(theirs.abs().max())), name


@pytest.mark.parametrize(
    "name", ["Prelu", "HardGate", "SuperResolution", "Islands", "MultiheadAttention", "Bert"]
)
def test_quantized(name: str, tmp_path: Path) -> None:
    module, inputs = IDIOMS[name]()
    exported = quantize(module, inputs)
    outputs = run(lower(exported, name), inputs, tmp_path)
    with torch.no_grad():
        wanted = exported.module()(*inputs)
    for ours, theirs in zip(outputs, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert np.abs(ours - theirs.numpy()).max() <= 12 * float(theirs.max() - theirs.min()) / 255, name


def run(lowered, inputs, tmp_path) -> list[np.ndarray]:  # type: ignore[no-untyped-def]
    path = tmp_path / "model.pte"
    path.write_bytes(write(lowered))
    return refsim.load(path).run([x.numpy() for x in inputs])

"""Small networks of the kinds that real models are made of: they are lowered, and the file gives what torch gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import refsim
from refsim import aten
from refsim.core.errors import GraphError
from refsim.formats.pte.read import read_pte
from refsim.partition.container import write
from refsim.partition.lower import Lowered, lower
from refsim.partition.report import steps

from .idioms import IDIOMS, IMAGE
from .network import Network, network, same
from .quantize import quantize

#: How the plan goes: delegates, and what runs outside of them.
PLANS = {
    **dict.fromkeys(("Bert", "edsr", "mobilefacenet", "yolov5", "yolov8"), "delegate"),
    "Masked": "scalar_tensor.default delegate",
    "Islands": "delegate erf.default delegate erf.default",
    "LargestChannels": "delegate topk.default getitem delegate",
    "fttransformer": "delegate mul.Scalar mul.Scalar delegate any.dim delegate",
    "senet": "delegate mean.dim delegate mean.dim delegate",
    "siamese": "delegate mean.dim mean.dim delegate",
}
#: Networks of additions and products alone: only the order of additions is another one than torch's.
CLOSE = ("unet", "unetbilinear", "ChannelShuffle", "edsr", "Circular", "LargestChannels")


def ran(lowered: Lowered, inputs: tuple[Tensor, ...], path: Path) -> list[np.ndarray]:
    """The outputs of the file. Every kernel of it is in the table of operators."""
    path.write_bytes(write(lowered))
    model = refsim.load(path)
    assert model.plan is not None and model.container is not None
    assert model.container.program.constant_segment is not None  # or the runtime does not load it
    names = [node.name for _, node in model.nodes() if node.is_float] + [
        str(op) for op in model.plan.operators
    ]
    assert [name for name in names if aten.find(name, lowered.where).row is None] == []
    return model.run([x.numpy() for x in inputs])


def wanted(module: Any, inputs: tuple[Tensor, ...]) -> list[np.ndarray]:
    with torch.no_grad():
        outs = module(*inputs)
    return [out.numpy() for out in (outs if isinstance(outs, tuple | list) else (outs,))]


@pytest.mark.parametrize("name", IDIOMS)
def test_float(name: str, tmp_path: Path) -> None:
    """Without quantization the results are torch's, up to the order of additions and the bounds of functions."""
    module, inputs = IDIOMS[name]()
    lowered = lower(torch.export.export(module, inputs), name)
    if name in PLANS:
        found = [step.split()[0].removeprefix("aten.") for step in steps(lowered)]
        assert " ".join(found) == PLANS[name]
    off = 2e-6 if name in CLOSE else 1e-3
    for ours, theirs in zip(ran(lowered, inputs, tmp_path / "m.pte"), wanted(module, inputs), strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() <= off * max(1.0, np.abs(theirs).max())


@pytest.mark.parametrize("name", ["mobilefacenet", "HardGate", "edsr", "Islands", "encoder_int8", "Bert"])
def test_quantized(name: str, tmp_path: Path) -> None:
    module, inputs = IDIOMS[name]()
    exported = quantize(module, inputs)
    outputs = ran(lower(exported, name), inputs, tmp_path / "m.pte")
    for ours, theirs in zip(outputs, wanted(exported.module(), inputs), strict=True):
        assert np.abs(ours - theirs).max() <= 12 * np.ptp(theirs) / 255


# --- plans around delegates ---


def exported(row: Network) -> torch.export.ExportedProgram:
    module, inputs = row.made("small")
    return torch.export.export(module.eval(), inputs)


def test_a_constant_that_two_delegates_read_is_stored_for_each() -> None:
    """As in ExecuTorch."""
    lowered = lower(
        exported(network(lambda m, x: m.a(m.a(torch.erf(m.a(m.a(x))))), (1, 4, 6, 5), a=same(4, 4)))
    )
    assert [call.delegate for call in lowered.schedule] == [0, None, 1]
    for delegate in lowered.delegates:
        assert len(delegate.source.program.constants) == 4  # a weight and a bias for each call
        assert len(delegate.serialized.data) == 2


@torch.library.custom_op("refsim_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def test_what_nothing_computes_is_not_written() -> None:
    lowered = lower(exported(network(lambda m, x: twice(x), IMAGE)))
    with pytest.raises(GraphError) as raised:
        write(lowered)
    assert raised.value.got == "refsim_tests.twice.default"


def test_what_is_quantized_at_run_time_outside_of_delegates() -> None:
    """More dims than the delegate's operator takes: the kernels have the names that ExecuTorch gives them."""
    ops = torch.ops.quantized_decomposed

    def forward(m: Any, x: Tensor) -> Tensor:
        given = (*ops.choose_qparams.tensor(x, -128, 127, 2**-12, torch.int8), -128, 127, torch.int8)
        return ops.dequantize_per_tensor.tensor(ops.quantize_per_tensor.tensor(x, *given), *given).erf()

    plan = read_pte(write(lower(exported(network(forward, (1, 1, 1, 2, 3))))), "dims").plan()
    assert [str(operator) for operator in plan.operators] == [
        "quantized_decomposed::choose_qparams.Tensor_out",
        "aten::erf.out",
    ]

"""Plans around delegates: kernels with the arguments of their out variants, and what they give when they run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import refsim
from refsim import aten
from refsim.core.errors import GraphError
from refsim.formats.pte.read import read_pte
from refsim.partition.container import write
from refsim.partition.lower import lower


class Network(nn.Module):
    """A function of its modules and inputs."""

    def __init__(self, function: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(self.parts, *inputs)


def conv(*channels: int, kernel: int = 3) -> nn.Conv2d:
    return nn.Conv2d(*channels, kernel, padding=kernel // 2)


IMAGE = (1, 4, 6, 5)
#: Name -> network, input, kernels that stay outside the delegates.
NETWORKS: dict[str, tuple[Network, Any, list[str]]] = {
    "reflection padding": (
        Network(lambda m, x: m[1](m[0](x)), nn.ReflectionPad2d(1), nn.Conv2d(4, 4, 3)),
        IMAGE, ["aten::abs.out"],
    ),
    "positions": (
        Network(
            lambda m, i: m[2](m[0](i) + m[1](torch.arange(i.shape[1]))),
            nn.Embedding(16, 8), nn.Embedding(16, 8), nn.Linear(8, 8),
        ),
        torch.arange(5)[None], [],
    ),
    "channels by index": (
        Network(lambda m, x: x[:, :, torch.tensor([2, 0, 1])].relu()), IMAGE, [],
    ),
    "largest channels": (
        Network(lambda m, x: m[0](x).topk(2, 1)[0] * 2, conv(4, 8)), IMAGE, ["aten::topk.values"],
    ),
    "hardsigmoid": (
        Network(lambda m, x: x * nn.functional.hardsigmoid(m[0](x)), conv(4, 4)), IMAGE, [],
    ),
    "circular padding": (
        Network(lambda m, x: nn.functional.pad(m[0](x), (1, 1, 1, 1), mode="circular"), conv(4, 4)), IMAGE, None,
    ),
    "a tenth": (Network(lambda m, x: m[0](x) * 0.1 + x, conv(4, 4)), IMAGE, []),
    "mean of rows": (
        Network(lambda m, x: m[0](x) + m[0](x).mean(2, keepdim=True), conv(4, 4)), IMAGE, [],
    ),
    "attention": (
        Network(lambda m, x: m[0](x, x, x, need_weights=False)[0], nn.MultiheadAttention(8, 2)), (5, 1, 8), None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_written_runs(name: str, tmp_path: Path) -> None:
    """Every operator is in the table, and the sum of all differences is that of other orders of additions."""
    network, x, kernels = NETWORKS[name]
    torch.manual_seed(1)
    network = network.eval()
    x = torch.randn(x) if isinstance(x, tuple) else x
    path = tmp_path / "model.pte"
    path.write_bytes(write(lower(torch.export.export(network, (x,)), name)))
    model = refsim.load(path)
    assert model.plan is not None and model.container is not None
    assert model.container.program.constant_segment is not None  # or the runtime does not load it
    outside = [str(operator) for operator in model.plan.operators]
    assert kernels is None or outside == kernels
    names = [node.name for _, node in model.nodes() if node.is_float] + outside
    assert [n for n in names if aten.find(n, name).row is None] == []
    (out,) = model.run([x.numpy()])
    need = network(x).detach().numpy()
    assert out.shape == need.shape
    assert np.abs(out - need).max() <= 2e-6 * np.abs(need).max()


def test_weights_of_two_delegates(tmp_path: Path) -> None:
    """A constant that two delegates read is copied for each reader, as in ExecuTorch."""
    shared = conv(4, 4)
    network = Network(lambda m, x: m[0](m[0](torch.erf(m[0](m[0](x))))), shared)
    x = torch.randn(IMAGE)
    lowered = lower(torch.export.export(network.eval(), (x,)), "shared")
    assert [call.delegate for call in lowered.schedule] == [0, None, 1]
    for delegate in lowered.delegates:
        assert len(delegate.source.program.constants) == 4  # a weight and a bias for each call
        assert len(delegate.serialized.data) == 2
    path = tmp_path / "model.pte"
    path.write_bytes(write(lowered))
    (out,) = refsim.load(path).run([x.numpy()])
    need = network(x).detach().numpy()
    assert np.abs(out - need).max() <= 2e-6 * np.abs(need).max()


@torch.library.custom_op("refsim_tests::twice", mutates_args=())
def twice(x: Tensor) -> Tensor:
    return x * 2


@twice.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def test_what_nothing_computes_is_not_written() -> None:
    lowered = lower(torch.export.export(Network(lambda m, x: twice(x)), (torch.ones(3),)), "twice")
    with pytest.raises(GraphError) as raised:
        write(lowered)
    assert raised.value.got == "refsim_tests.twice.default"


def test_what_is_quantized_at_run_time_outside_of_delegates() -> None:
    """More dims than the delegate's operator takes: the kernels have the names that ExecuTorch gives them."""
    ops = torch.ops.quantized_decomposed

    def network(m: Any, x: Tensor) -> Tensor:
        given = (*ops.choose_qparams.tensor(x, -128, 127, 2**-12, torch.int8), -128, 127, torch.int8)
        return ops.dequantize_per_tensor.tensor(ops.quantize_per_tensor.tensor(x, *given), *given).erf()

    lowered = lower(torch.export.export(Network(network), (torch.ones(1, 1, 1, 2, 3),)), "dims")
    plan = read_pte(write(lowered), "dims").plan()
    assert [str(operator) for operator in plan.operators] == [
        "quantized_decomposed::choose_qparams.Tensor_out",
        "aten::erf.out",
    ]

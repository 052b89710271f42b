"""8da4w programs of torchao: lowered as ExecuTorch lowers them, and run with the bits that its file gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
from torchao.quantization.granularity import PerGroup

from refsim.exec.executor import run_graph
from refsim.exec.factory import executor_named
from refsim.formats.vkgraph.read import read_blob
from refsim.graph.build import build
from refsim.graph.graph import Graph
from refsim.ops.base.traits import Family
from refsim.partition.lower import Lowered, lower

from . import executorch_lowering as theirs


class Mlp(nn.Module):
    """Two layers, the second without a bias."""

    def __init__(self, k: int = 64, inner: int = 32, out: int = 16) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(k, inner), nn.Linear(inner, out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.silu(self.up(x)))


class Block(nn.Module):
    """A residual block around it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(64), Mlp(64, 32, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(self.norm(x))


def exported(make: Make, shape: tuple[int, ...], group: int = 32) -> tuple[Any, torch.Tensor]:
    torch.manual_seed(7)
    network = make()
    for parameter in network.parameters():
        nn.init.uniform_(parameter, -0.3, 0.3)
    config = Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(group)
    )
    quantize_(network.eval(), config)
    x = torch.rand(shape) * 4 - 2
    return torch.export.export(network, (x,)), x


Make = Callable[[], nn.Module]
NETWORKS: dict[str, tuple[Make, tuple[int, ...], int]] = {
    "rows": (Mlp, (6, 64), 32),
    "one row": (Mlp, (1, 64), 32),
    "a leading dim of 1": (Mlp, (1, 6, 64), 32),
    "small groups": (lambda: Mlp(64, 48, 8), (5, 64), 16),
    "an odd number of words": (lambda: Mlp(64, 96, 12), (4, 64), 32),
    "a block": (Block, (6, 64), 32),
}


def graph_of(lowered: Lowered) -> Graph:
    (delegate,) = lowered.delegates
    return build(read_blob(delegate.serialized.blob(), "ours"), "ours")


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_delegate_and_the_same_bits(name: str) -> None:
    """Operators, arguments, layouts and the bytes of all constants; and what both graphs give here."""
    program, x = exported(*NETWORKS[name])
    lowered = lower(program)
    assert not lowered.refusals and not lowered.unfused
    (ours,), (other,) = lowered.delegates, theirs.delegates(theirs.lower(program))
    assert theirs.contents(read_blob(ours.serialized.blob(), "ours")) == theirs.contents(other)
    outs = [
        run_graph(graph, [x.numpy()], executor_named("cpu"))[0].reshape(-1)
        for graph in (graph_of(lowered), build(other, "theirs"))
    ]
    assert np.array_equal(outs[0].view(np.int32), outs[1].view(np.int32))
    with torch.no_grad():
        need = program.module()(x).numpy().reshape(-1)
    # a single row is not quantized here; a row's zero point may be another one than torchao's
    assert np.abs(outs[0] - need).max() < 0.03 * np.abs(need).max()


def test_both_outputs_of_choose_qparams_are_nodes() -> None:
    graph = graph_of(lower(exported(*NETWORKS["rows"])[0]))
    families = [node.call.op.family for node in graph.nodes if node.call is not None]
    assert families == [Family.ROW_RANGE, Family.ROW_RANGE, Family.GROUP_LINEAR] * 2
    assert [node.number for node in graph.nodes] == list(range(len(graph.nodes)))


def test_heads_after_a_projection_keep_their_shape() -> None:
    """A view behind the product is taken with it only if it gives back the rows; ExecuTorch takes any and fails."""

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.project = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.project(x).view(6, 4, 16).permute(1, 0, 2)

    program, x = exported(Heads, (6, 64))
    (out,) = run_graph(graph_of(lower(program)), [x.numpy()], executor_named("cpu"))
    with torch.no_grad():
        need = program.module()(x).numpy()
    assert out.shape == need.shape == (4, 6, 16)
    assert np.abs(out - need).max() < 0.02 * np.abs(need).max()


@pytest.mark.parametrize(
    ("network", "shape", "code"),
    [(lambda: Mlp(64, 32, 10), (6, 64), "out-channels"), (Mlp, (2, 6, 64), None)],
    ids=["outputs", "leading dims"],
)
def test_what_no_kernel_of_theirs_takes(network: Make, shape: tuple[int, ...], code: str | None) -> None:
    """Outputs that fill no word: refused with a reason, where ExecuTorch fails. Leading dims: lowered, as it does."""
    lowered = lower(exported(network, shape)[0])
    assert [refusal.code for refusal in lowered.unfused] == ([code] if code else [])

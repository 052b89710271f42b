"""Float operators outside a delegate: the bits of ExecuTorch's own kernels, on the file that it made of a network.

The wheel links its optimized kernels before the portable ones. Networks whose operators have one that rounds otherwise
are left out: matrix products (BLAS), functions such as exp (vector libraries), division by a tensor of one element.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from torch import Tensor, nn

import refsim

IMAGE = (1, 4, 8, 7)
NETWORKS: dict[str, tuple[Callable[[Tensor], Any], tuple[int, ...]]] = {
    "convolution": (nn.Conv2d(4, 8, 3, padding=1), IMAGE),
    "grouped, dilated": (nn.Conv2d(4, 8, 3, groups=2, dilation=2), IMAGE),
    "depthwise": (nn.Conv2d(4, 4, 5, padding=2, stride=2, groups=4), IMAGE),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, 2, 1, 1), IMAGE),
    "one dim": (nn.Conv1d(4, 8, 3, padding=1), (1, 4, 16)),
    "mean": (lambda x: x.mean((-1, -2)), IMAGE),
    "mean of channels": (lambda x: x.mean(1, keepdim=True), IMAGE),
    "sum": (lambda x: x.sum((1, 3)), IMAGE),
    "variance": (lambda x: x.var((2, 3)), IMAGE),
    "average pool": (lambda x: F.avg_pool2d(x, 3, 2, 1), IMAGE),
    "largest pool": (lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
    "adaptive pool": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), IMAGE),
    "layer norm": (nn.LayerNorm(7), IMAGE),
    "group norm": (nn.GroupNorm(2, 4), IMAGE),
    "batch norm": (nn.BatchNorm2d(4).eval(), IMAGE),
    "nearest": (lambda x: F.interpolate(x, size=(13, 11)), IMAGE),
    "bilinear": (lambda x: F.interpolate(x, size=(13, 11), mode="bilinear"), IMAGE),
    "leaky relu": (lambda x: F.leaky_relu(x, 0.1), IMAGE),
    "parts": (lambda x: torch.cat(x.split([1, 3], 1)[::-1], 1), IMAGE),
}


class Network(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", NETWORKS)
def test_bits(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    function, shape = NETWORKS[name]
    x = torch.randn(shape)
    program = to_edge_transform_and_lower(torch.export.export(Network(function).eval(), (x,))).to_executorch()
    path = tmp_path / "model.pte"
    path.write_bytes(program.buffer)
    need = _load_for_executorch_from_buffer(program.buffer).forward((x,))[0].contiguous().numpy()
    (out,) = refsim.load(path).run([x.numpy()])
    assert out.shape == need.shape
    assert np.ascontiguousarray(out).tobytes() == need.tobytes()

"""Float operators outside a delegate: the bits of ExecuTorch's own kernels, on the file that it made of a network.

The wheel links its optimized kernels before the portable ones. Networks whose operators have one that rounds otherwise
are left out: matrix products (BLAS), functions such as exp (vector libraries), division by a tensor of one element.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
from torch import Tensor, nn

import refsim
from refsim.aten.table import row_of

IMAGE = (1, 4, 8, 7)


def sampled(x: Tensor, mode: str) -> tuple[Tensor, ...]:
    """At places inside and outside the image."""
    grid = torch.linspace(-1.4, 1.4, 60).reshape(1, 5, 6, 2)
    pairs = ((pad, align) for pad in ("zeros", "border", "reflection") for align in (False, True))
    return tuple(
        F.grid_sample(x, grid, mode=mode, padding_mode=pad, align_corners=align) for pad, align in pairs
    )


def chosen(x: Tensor) -> tuple[Tensor, ...]:
    places = torch.tensor([[0, 2, 1], [3, 3, 0]])
    return (
        x[:, places],
        x[0][places[0], :, places[1]],
        x.index_select(2, places[0]),
        torch.gather(x[0, 0], 1, places),
        torch.topk(x, 3, -1).values,
        F.embedding(places, x[0, 0]),
        x[:, :, ::3, 1:-1],
    )


def written(x: Tensor) -> tuple[Tensor, ...]:
    rows, places = x[0, 0], torch.tensor([[0, 2, 0], [3, 3, 1]])
    return (
        rows.index_put((places[0],), rows[:3], accumulate=True),
        rows.index_put((places[1], places[0]), rows[0, :3]),
        rows.scatter(1, places, rows[:2, :3]),
        rows.scatter(1, places, 2.5),
        rows.scatter_add(1, places, rows[:2, :3]),
        torch.slice_scatter(rows, rows[:2], 0, 1, 5, 2),
        torch.select_scatter(rows, rows[0], 0, 4),
        rows.masked_scatter(rows > 0, rows * 2),
    )


def divided(x: Tensor) -> tuple[Tensor, ...]:
    """With and without a remainder, which the quotient loses."""
    tenths = (10 * x).round() * 0.1
    return (
        torch.div(tenths, 0.1, rounding_mode="floor"),
        torch.div(tenths, -0.3, rounding_mode="trunc"),
        torch.remainder(tenths, -0.7),
        torch.fmod(tenths, 0.7),
        x.reciprocal(),
        x.abs().sqrt(),
        torch.rsub(x, 3.3, alpha=2),
    )


def whole_numbers(x: Tensor) -> tuple[Tensor, ...]:
    """The portable kernel's remainder is C's, not ATen's."""
    n = (20 * x).to(torch.int32)
    return (
        n // 3,
        n % 3,
        n & 5,
        n ^ 5,
        n.sum(1),
        n.cumsum(1),
        n == 2,
        (n + torch.arange(7)).clamp(min=-3),
    )


NETWORKS: dict[str, Callable[[Tensor], Any]] = {
    "convolution": nn.Conv2d(4, 8, 3, padding=1),
    "grouped, dilated": nn.Conv2d(4, 8, 3, groups=2, dilation=2),
    "depthwise": nn.Conv2d(4, 4, 5, padding=2, stride=2, groups=4),
    "transposed": nn.ConvTranspose2d(4, 6, 3, 2, 1, 1),
    "one dim": nn.Conv1d(4, 8, 3, padding=1),
    "mean": lambda x: x.mean((-1, -2)),
    "mean of channels": lambda x: x.mean(1, keepdim=True),
    "sum": lambda x: x.sum((1, 3)),
    "variance": lambda x: x.var((2, 3)),
    "average pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "largest pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "adaptive pool": lambda x: F.adaptive_avg_pool2d(x, (2, 3)),
    "layer norm": nn.LayerNorm(7),
    "group norm": nn.GroupNorm(2, 4),
    "batch norm": nn.BatchNorm2d(4).eval(),
    "nearest": lambda x: F.interpolate(x, size=(13, 11)),
    "bilinear": lambda x: F.interpolate(x, size=(13, 11), mode="bilinear"),
    "leaky relu": lambda x: F.leaky_relu(x, 0.1),
    "parts": lambda x: torch.cat(x.split([1, 3], 1)[::-1], 1),
    "group norm without weights": nn.GroupNorm(2, 4, affine=False),
    "instance norm": nn.InstanceNorm2d(4, affine=True),
    "variance and mean": lambda x: torch.var_mean(x, (1, 2)),
    "sampled, bilinear": lambda x: sampled(x, "bilinear"),
    "sampled, nearest": lambda x: sampled(x, "nearest"),
    "sampled, bicubic": lambda x: sampled(x, "bicubic"),
    "shrunk without aliases": lambda x: F.interpolate(x, size=(4, 5), mode="bilinear", antialias=True),
    "bicubic": lambda x: F.interpolate(x, size=(13, 11), mode="bicubic"),
    "distances": lambda x: torch.cdist(x[0, 0], x[0, 1]),
    "products": lambda x: (x.prod(1), x.prod(-1, keepdim=True), x.cumsum(2)),
    "places": lambda x: (x.argmax(1), x.argmin(), x.amax((1, 2)), (x > 0).any(1)),
    "chosen": chosen,
    "written": written,
    "strides": lambda x: (torch.as_strided(x, (3, 4), (7, 2), 3), x.diagonal(1, 2, 3) + 1, x.unfold(2, 3, 2)),
    "moved": lambda x: (
        x.roll((1, -2), (2, 3)),
        x.flip((1, 3)),
        x.repeat(2, 1, 1, 3),
        F.pad(x, (1, 2, 3, 1)),
    ),
    "padded": lambda x: tuple(F.pad(x, (1, 2, 1, 3), mode) for mode in ("reflect", "replicate", "circular")),
    "divided": divided,
    "compared": lambda x: ((x > 0) & (x < 1) | ~(x >= -1), torch.where(x == x.round(), 0.0, x), x.isnan()),
    "whole numbers": whole_numbers,
    "shrinking": lambda x: (F.hardshrink(x, 0.3), F.softshrink(x, 0.3), x.clamp(-0.4, 0.9), F.relu6(9 * x)),
    "masked": lambda x: (x.masked_fill(x > 0, -1e9), x.masked_select(x > 0), x.tril(1), x.triu(-1)),
    "transposed, grouped": nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2),
    "transposed, one dim": nn.ConvTranspose1d(4, 6, 3, 2, 1),
    "norms": lambda x: (x.norm(p=1, dim=(2, 3)), x.norm(p=float("inf"), dim=1), x.std(-1)),
}
#: Of inputs that are no `IMAGE`.
SHAPES = {"one dim": (1, 4, 16), "instance norm": (2, 4, 8, 7), "transposed, one dim": (1, 4, 9)}


class Network(nn.Module):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", NETWORKS)
def test_bits(name: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    x = torch.randn(SHAPES.get(name, IMAGE))
    exported = torch.export.export(Network(NETWORKS[name]).eval(), (x,))
    config = EdgeCompileConfig(
        _check_ir_validity=False
    )  # operators that are not in the core set have kernels too
    program = to_edge_transform_and_lower(exported, compile_config=config).to_executorch()
    path = tmp_path / "model.pte"
    path.write_bytes(program.buffer)
    theirs = _load_for_executorch_from_buffer(program.buffer).forward((x,))
    ours = refsim.load(path).run([x.numpy()])
    for number, (out, tensor) in enumerate(zip(ours, theirs, strict=True)):
        need = tensor.contiguous().numpy()
        assert (number, out.dtype, out.shape) == (number, need.dtype, need.shape)
        assert np.array(out, order="C").tobytes() == need.tobytes(), f"output {number}"


#: Portable kernels without a row, and why.
LEFT_OUT = {
    "convolution_backward": "training",
    "max_pool2d_with_indices_backward": "training",
    "native_dropout": "random numbers",
    "rand": "random numbers",
    "randn": "random numbers",
    "_conj_physical": "complex numbers",
    "view_as_real_copy": "complex numbers",
    "_native_batch_norm_legit": "changes its running means, which nothing else can then read",
    "_h2d_copy": "copies between devices, never in a file for one",
    "_d2h_copy": "copies between devices, never in a file for one",
}


def test_every_portable_kernel_has_a_row() -> None:
    """What ExecuTorch can run outside delegates runs here without torch, but for those that are listed."""
    listing = resources.files("executorch.kernels.portable").joinpath("functions.yaml").read_text()
    names = re.findall(r"^- (?:op|func): (?:\w+::)?(\w+)(?:\.(\w+))?", listing, re.M)
    assert len(names) > 200
    without = {base for base, overload in names if row_of(base, overload or None) is None}
    assert without == set(LEFT_OUT)


def test_every_aten_operator_of_the_partitioner_has_a_row() -> None:
    """Inside a delegate too. Operators of other namespaces are on packed weights, or for training."""
    from executorch.backends.vulkan.op_registry import vulkan_supported_ops

    named = (re.search(r"\baten\.(\w+)\.(\w+)", str(target)) for target in vulkan_supported_ops)
    names = [match.groups() for match in named if match]
    assert len(names) > 80
    without = {base for base, overload in names if row_of(base, overload) is None}
    assert without == {"_assert_scalar", "sym_constrain_range_for_size"}  # conditions, which compute nothing

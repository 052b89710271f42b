"""Programs with dynamic dims: float ones, static int8, and 4-bit weights with and without quantized activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn, relu
from torch.export import Dim, ExportedProgram, export

from .network import Network, Part, conv, linear, network, same
from .quantize import quantize

S = Dim("s", min=2, max=16)
FROM_1 = Dim("s", min=1, max=16)
ROWS = Dim("rows", min=1, max=24)
H, W = Dim("h", min=4, max=32), Dim("w", min=4, max=32)


class Grouped(nn.Module):
    """A linear with 4-bit weights in groups; ``rows`` also quantizes each row of its input."""

    def __init__(
        self, out: int, k: int, rows: bool, group: int = 32, bias: bool = False, zero_point: int = 0
    ) -> None:
        super().__init__()
        self.rows, self.group = rows, group
        self.register_buffer("w", torch.randint(-8, 8, (out, k), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(out, k // group) + 0.1)
        self.register_buffer("zeros", torch.full((out, k // group), zero_point, dtype=torch.int8))
        self.bias = nn.Parameter(torch.randn(out)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        ops = torch.ops.torchao
        if self.rows:
            block = [1] * (x.dim() - 1) + [x.shape[-1]]
            kinds = ("ASYMMETRIC", block, torch.int8, -128, 127, None, torch.float32, torch.int8)
            scale, zp = ops.choose_qparams_affine(x, *kinds)
            q = ops.quantize_affine(x, block, scale, zp, torch.int8, -128, 127)
            x = ops.dequantize_affine(q, block, scale, zp, torch.int8, -128, 127)
        return nn.functional.linear(x, self.weight(), self.bias)

    def weight(self) -> Tensor:
        held = (self.w, [1, self.group], self.scales, self.zeros, torch.int8, -8, 7)
        return torch.ops.torchao.dequantize_affine(*held)


grouped = partial(partial, Grouped)


def residual(m: Any, x: Tensor) -> Tensor:
    y = relu(m.a(x))
    return m.c(y + m.b(y))


def images(m: Any, x: Tensor) -> Tensor:
    y = relu(m.a(x))
    return m.d(y + m.c(relu(m.b(y))))


def clones(m: Any, x: Tensor) -> Tensor:
    y = relu(m.p(x))
    return m.c(m.a(y) + m.b(y))


def halves(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y = relu(m.a(x))
    half = y.shape[1] // 2
    first, second = y[:, :half], y[:, half:]
    return m.b(first + second), torch.cat([second, first], 1)


def upsampled(m: Any, x: Tensor) -> Tensor:
    y = relu(m.a(x))
    z = nn.functional.interpolate(relu(m.b(y)), scale_factor=2.0, mode="nearest")
    return m.c(torch.cat([y, z], 1))


def pooled(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    y = nn.functional.max_pool2d(relu(m.a(x)), 2, 2)
    y = y * torch.sigmoid(m.b(y))
    return y, torch.softmax(m.c(y.mean((2, 3))), 1)


def glu(m: Any, x: Tensor) -> Tensor:
    a, b = m.a(x).chunk(2, 2)
    return m.b(a * torch.sigmoid(b))


def number(m: Any, x: Tensor) -> tuple[Tensor, int]:
    t = x.shape[1]
    y = torch.sigmoid(x)
    return torch.cat([y, y], 1)[:, : t + 1], 2 * t


def positions(m: Any, x: Tensor) -> tuple[Tensor, ...]:
    y = torch.sigmoid(x)
    z = torch.sigmoid(x).permute(0, 2, 1).reshape(1, -1)
    return y + m.table(torch.arange(x.shape[1])), z, x[:, -1] * 2.0


def between(m: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    """Two delegates around a plain kernel; sizes in expand and view."""
    t = x.shape[1]
    y = torch.tanh(torch.cumsum(torch.sigmoid(x), 1))
    return y + m.bias.expand(1, t, 8), y.view(1, 2 * t, 4)


def split(m: Any, x: Tensor) -> Tensor:
    half = x.shape[1] // 2
    a, b = torch.split(torch.sigmoid(x), [half, half], 1)
    return torch.tanh(a) * b


def negative(m: Any, x: Tensor) -> tuple[Tensor, ...]:
    y = torch.sigmoid(x)
    return y.permute(0, -1, -2), y.unsqueeze(-1), y[:, :, -1]


def bilinear(m: Any, x: Tensor) -> Tensor:
    return torch.tanh(nn.functional.interpolate(torch.sigmoid(x), scale_factor=2.0, mode="bilinear"))


def heads(m: Any, x: Tensor) -> Tensor:
    """Attention over 4-bit weights: layer norm, queries, keys and values at once, 4 heads."""
    t = x.shape[1]
    q, k, v = (h.view(1, t, 4, 16).transpose(1, 2) for h in m.qkv(m.norm(x)).split(64, 2))
    a = torch.softmax(torch.matmul(q, k.transpose(2, 3)) * 0.25, -1)
    return m.out(torch.matmul(a, v).transpose(1, 2).reshape(1, t, 64))


def _sides(symbols: str, most: int, factor: int = 1, least: int = 2) -> dict[int, Any]:
    """Height and width, up to ``most`` times ``factor``."""
    return {2 + k: factor * Dim(name, min=least, max=most) for k, name in enumerate(symbols)}


def _gated(rows: bool) -> Network:
    return network(
        lambda m, x: m.b(nn.functional.silu(m.a(x))), (1, 16, 64),
        a=grouped(64, 64, rows), b=grouped(32, 64, rows),
    )  # fmt: skip


def _images() -> Network:
    """General convolution with a stride, depthwise, pointwise, addition."""
    return network(
        images, (1, 3, 32, 32), a=conv(3, 16, 3, 2, 1), b=conv(16, 16, 3, 1, 1, groups=16), c=conv(16, 16, 1),
        d=conv(16, 6, 1),
    )  # fmt: skip


def _one(part: Part, shape: tuple[int, ...]) -> Network:
    return network(lambda m, x: m.a(x), shape, a=part)


#: Name -> the network and the dims of its input that change.
INT8: dict[str, tuple[Network, dict[int, Any]]] = {
    "lin_rows": (network(residual, (24, 16), a=linear(16, 24), b=linear(24, 24), c=linear(24, 10)), {0: ROWS}),
    "fcn_add": (_images(), {2: H, 3: W}),
    "square": (_images(), {2: H, 3: H}),
    "clone_branch": (
        network(clones, (1, 8, 16, 16), p=conv(8, 8, 1), a=conv(8, 12, 1), b=same(8, 12), c=same(12, 8)),
        _sides("hw", 16, least=4),
    ),
    "batch_conv": (_one(same(8, 8), (4, 8, 8, 8)), {0: Dim("n", min=2, max=4)}),
    # three convolutions that im2col computes, dilated and strided
    "im2col": (
        network(
            lambda m, x: m.c(relu(m.b(relu(m.a(x))))), (1, 8, 24, 24), a=same(8, 16),
            b=conv(16, 16, 3, 1, 2, dilation=2), c=conv(16, 8, 3, 2, 1),
        ),
        _sides("hw", 24, least=5),
    ),
    "general_bound": (_one(same(4, 8), (1, 4, 72, 72)), _sides("hw", 72)),
    # down, up again by nearest rows, and joined
    "upcat": (
        network(upsampled, (1, 4, 24, 24), a=same(4, 8), b=conv(8, 8, 3, 2, 1), c=conv(16, 4, 1)), _sides("hw", 6, 4),
    ),
    "mixed_float": (
        network(pooled, (1, 3, 32, 32), a=same(3, 8), b=conv(8, 8, 1), c=linear(8, 12)), _sides("hw", 16, 2),
    ),
    "split_glu": (network(glu, (1, 16, 16), a=linear(16, 32), b=linear(16, 8)), {1: S}),
    "gemv_lead": (_one(linear(16, 12), (4, 1, 16)), {0: Dim("b", min=2, max=4)}),
    "seq_slice": (
        network(halves, (1, 20, 16), a=linear(16, 16), b=linear(16, 8)), {1: 2 * Dim("s", min=2, max=10)},
    ),
}  # fmt: skip
FLOAT: dict[str, tuple[Network, dict[int, Any]]] = {
    "perm_neg": (network(negative, (1, 6, 16)), {2: S}),
    "idxsel": (
        network(
            lambda m, x: torch.tanh(torch.index_select(torch.sigmoid(x), 1, m.index)), (1, 8, 16),
            index=lambda: nn.Buffer(torch.tensor([5, 0, 3])),
        ),
        {2: S},
    ),
    "bilinear": (network(bilinear, (1, 4, 12, 12)), _sides("hw", 12)),
    "attn_da4w": (
        network(
            heads, (1, 16, 64), norm=partial(nn.LayerNorm, 64), qkv=grouped(192, 64, True), out=grouped(64, 64, True)
        ),
        {1: S},
    ),
    "symout": (network(number, (1, 16, 8)), {1: S}),
    "arange_pos": (network(positions, (1, 16, 8), table=partial(nn.Embedding, 16, 8)), {1: S}),
    "sym_in": (network(between, (1, 16, 8), bias=lambda: nn.Parameter(torch.randn(1, 1, 8))), {1: S}),
    "split_dyn": (network(split, (1, 16, 8)), {1: 2 * Dim("s", min=2, max=8)}),
    "da4w_rows": (_gated(True), {1: FROM_1}),
    "w4_rows": (_gated(False), {1: FROM_1}),
    # rows of a table with 4-bit weights, and a linear of such weights
    "tok_emb": (
        network(
            lambda m, x: m.out(nn.functional.embedding(x, m.table.weight())), torch.arange(16)[None],
            table=grouped(32, 64, False), out=grouped(32, 64, False),
        ),
        {1: FROM_1},
    ),
    "w4_4d": (_one(grouped(32, 64, False), (1, 1, 16, 64)), {2: S}),
}  # fmt: skip


def _exported(name: str) -> ExportedProgram:
    row, dims = (INT8 | FLOAT)[name]
    module, inputs = row.made(name, 0)
    if name in INT8:
        return quantize(module, inputs, dynamic_shapes=(dims,))
    return export(module.eval(), inputs, dynamic_shapes=(dims,))


#: The exported programs, by name.
PROGRAMS: dict[str, Callable[[], ExportedProgram]] = {
    name: partial(_exported, name) for name in (*INT8, *FLOAT)
}

"""Programs with dynamic dims: float ones, static int8, and 4-bit weights with and without quantized activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram, export

from .quantize import quantize

S = Dim("s", min=2, max=16)
ROWS = Dim("rows", min=1, max=24)
H, W = Dim("h", min=4, max=32), Dim("w", min=4, max=32)


class Rows(nn.Module):
    """Three linears, a relu, an addition."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 24), nn.Linear(24, 24), nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.a(x))
        return self.c(y + self.b(y))


class Images(nn.Module):
    """General convolution with a stride, depthwise, pointwise, addition."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 16, 3, 1, 1, groups=16)
        self.c, self.d = nn.Conv2d(16, 16, 1), nn.Conv2d(16, 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.a(x))
        return self.d(y + self.c(torch.relu(self.b(y))))


class Clones(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.p, self.a, self.b, self.c = (
            nn.Conv2d(8, 8, 1), nn.Conv2d(8, 12, 1), nn.Conv2d(8, 12, 3, 1, 1), nn.Conv2d(12, 8, 3, 1, 1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.p(x))
        return self.c(self.a(y) + self.b(y))


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.relu(self.a(x))
        half = y.shape[1] // 2
        first, second = y[:, :half], y[:, half:]
        return self.b(first + second), torch.cat([second, first], 1)


class Number(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        t = x.shape[1]
        y = torch.sigmoid(x)
        return torch.cat([y, y], 1)[:, : t + 1], 2 * t


class Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(16, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.sigmoid(x)
        z = torch.sigmoid(x).permute(0, 2, 1).reshape(1, -1)
        return y + self.table(torch.arange(x.shape[1])), z, x[:, -1] * 2.0


class Between(nn.Module):
    """Two delegates around a plain kernel; sizes in expand and view."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(1, 1, 8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        t = x.shape[1]
        y = torch.tanh(torch.cumsum(torch.sigmoid(x), 1))
        return y + self.bias.expand(1, t, 8), y.view(1, 2 * t, 4)


class Split(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[1] // 2
        a, b = torch.split(torch.sigmoid(x), [half, half], 1)
        return torch.tanh(a) * b


class Grouped(nn.Module):
    """A linear with 4-bit weights in groups; ``rows`` also quantizes each row of its input."""

    def __init__(self, out: int, k: int, rows: bool) -> None:
        super().__init__()
        self.rows = rows
        self.register_buffer("w", torch.randint(-8, 8, (out, k), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(out, k // 32) + 0.1)
        self.register_buffer("zeros", torch.zeros(out, k // 32, dtype=torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        ops = torch.ops.torchao
        if self.rows:
            block = [1] * (x.dim() - 1) + [x.shape[-1]]
            kinds = ("ASYMMETRIC", block, torch.int8, -128, 127, None, torch.float32, torch.int8)
            scale, zp = ops.choose_qparams_affine(x, *kinds)
            q = ops.quantize_affine(x, block, scale, zp, torch.int8, -128, 127)
            x = ops.dequantize_affine(q, block, scale, zp, torch.int8, -128, 127)
        return nn.functional.linear(x, self.weight())

    def weight(self) -> torch.Tensor:
        held = (self.w, [1, 32], self.scales, self.zeros, torch.int8, -8, 7)
        return torch.ops.torchao.dequantize_affine(*held)


class Tokens(nn.Module):
    """Rows of a table with 4-bit weights, and a linear of such weights."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = Grouped(32, 64, False), Grouped(32, 64, False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.out(nn.functional.embedding(tokens, self.table.weight()))


class Gated(nn.Module):
    def __init__(self, rows: bool) -> None:
        super().__init__()
        self.a, self.b = Grouped(64, 64, rows), Grouped(32, 64, rows)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(nn.functional.silu(self.a(x)))


class Columns(nn.Module):
    """Three convolutions that im2col computes, dilated and strided."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 16, 3, 1, 1), nn.Conv2d(16, 16, 3, 1, 2, dilation=2)
        self.c = nn.Conv2d(16, 8, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


class Upsampled(nn.Module):
    """Down, up again by nearest rows, and joined."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 8, 3, 1, 1), nn.Conv2d(8, 8, 3, 2, 1)
        self.c = nn.Conv2d(16, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.a(x))
        z = nn.functional.interpolate(torch.relu(self.b(y)), scale_factor=2.0, mode="nearest")
        return self.c(torch.cat([y, z], 1))


class Pooled(nn.Module):
    """Convolutions, pool, sigmoid gate, mean, linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, 1, 1), nn.Conv2d(8, 8, 1), nn.Linear(8, 12)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = nn.functional.max_pool2d(torch.relu(self.a(x)), 2, 2)
        y = y * torch.sigmoid(self.b(y))
        return y, torch.softmax(self.c(y.mean((2, 3))), 1)


class Glu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 32), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.a(x).chunk(2, 2)
        return self.b(a * torch.sigmoid(b))


class Negative(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.sigmoid(x)
        return y.permute(0, -1, -2), y.unsqueeze(-1), y[:, :, -1]


class Selected(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("index", torch.tensor([5, 0, 3]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(torch.index_select(torch.sigmoid(x), 1, self.index))


class Bilinear(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(x)
        return torch.tanh(nn.functional.interpolate(y, scale_factor=2.0, mode="bilinear"))


class Heads(nn.Module):
    """Attention over 4-bit weights: layer norm, queries, keys and values at once, 4 heads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(64), Grouped(192, 64, True), Grouped(64, 64, True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        t = x.shape[1]
        q, k, v = (h.view(1, t, 4, 16).transpose(1, 2) for h in self.qkv(self.norm(x)).split(64, 2))
        a = torch.softmax(torch.matmul(q, k.transpose(2, 3)) * 0.25, -1)
        return self.out(torch.matmul(a, v).transpose(1, 2).reshape(1, t, 64))


def _sides(symbols: str, most: int, factor: int = 1, least: int = 2) -> dict[int, Any]:
    """Height and width, up to ``most`` times ``factor``."""
    return {2 + k: factor * Dim(name, min=least, max=most) for k, name in enumerate(symbols)}


def _float(module: nn.Module, x: torch.Tensor, dims: dict[int, Any]) -> ExportedProgram:
    return export(module.eval(), (x,), dynamic_shapes=({**dims},))


def _int8(module: nn.Module, x: torch.Tensor, dims: dict[int, Any]) -> ExportedProgram:
    return quantize(module, [x], dynamic_shapes=({**dims},))


def _twice(symbol: str, most: int) -> Any:
    return 2 * Dim(symbol, min=2, max=most)


#: The exported programs, by name.
PROGRAMS: dict[str, Callable[[], ExportedProgram]] = {
    "lin_rows": lambda: _int8(Rows(), torch.randn(24, 16), {0: ROWS}),
    "fcn_add": lambda: _int8(Images(), torch.randn(1, 3, 32, 32), {2: H, 3: W}),
    "square": lambda: _int8(Images(), torch.randn(1, 3, 32, 32), {2: H, 3: H}),
    "clone_branch": lambda: _int8(
        Clones(), torch.randn(1, 8, 16, 16), {2: Dim("h", min=4, max=16), 3: Dim("w", min=4, max=16)}
    ),
    "batch_conv": lambda: _int8(nn.Conv2d(8, 8, 3, 1, 1), torch.randn(4, 8, 8, 8), {0: Dim("n", min=2, max=4)}),
    "im2col": lambda: _int8(Columns(), torch.randn(1, 8, 24, 24), _sides("hw", 24, least=5)),
    "general_bound": lambda: _int8(nn.Conv2d(4, 8, 3, 1, 1), torch.randn(1, 4, 72, 72), _sides("hw", 72)),
    "upcat": lambda: _int8(Upsampled(), torch.randn(1, 4, 24, 24), _sides("hw", 6, 4)),
    "mixed_float": lambda: _int8(Pooled(), torch.randn(1, 3, 32, 32), _sides("hw", 16, 2)),
    "split_glu": lambda: _int8(Glu(), torch.randn(1, 16, 16), {1: S}),
    "gemv_lead": lambda: _int8(nn.Linear(16, 12), torch.randn(4, 1, 16), {0: Dim("b", min=2, max=4)}),
    "perm_neg": lambda: _float(Negative(), torch.randn(1, 6, 16), {2: S}),
    "idxsel": lambda: _float(Selected(), torch.randn(1, 8, 16), {2: S}),
    "bilinear": lambda: _float(Bilinear(), torch.randn(1, 4, 12, 12), _sides("hw", 12)),
    "attn_da4w": lambda: _float(Heads(), torch.randn(1, 16, 64), {1: S}),
    "seq_slice": lambda: _int8(Halves(), torch.randn(1, 20, 16), {1: _twice("s", 10)}),
    "symout": lambda: _float(Number(), torch.randn(1, 16, 8), {1: S}),
    "arange_pos": lambda: _float(Positions(), torch.randn(1, 16, 8), {1: S}),
    "sym_in": lambda: _float(Between(), torch.randn(1, 16, 8), {1: S}),
    "split_dyn": lambda: _float(Split(), torch.randn(1, 16, 8), {1: _twice("s", 8)}),
    "da4w_rows": lambda: _float(Gated(True), torch.randn(1, 16, 64), {1: Dim("s", min=1, max=16)}),
    "w4_rows": lambda: _float(Gated(False), torch.randn(1, 16, 64), {1: Dim("s", min=1, max=16)}),
    "tok_emb": lambda: _float(Tokens(), torch.randint(0, 32, (1, 16)), {1: Dim("s", min=1, max=16)}),
    "w4_4d": lambda: _float(Grouped(32, 64, False), torch.randn(1, 1, 16, 64), {2: S}),
}  # fmt: skip

"""Small language models; quantized by torchao in 4 bits, or as the others."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Attention(nn.Module):
    """Causal, several heads."""

    def __init__(self, size: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(size, size, bias) for _ in range(4))

    def forward(self, x: Tensor, mask: Tensor, rotate: tuple[Tensor, Tensor] | None) -> Tensor:
        batch, length, size = x.shape

        def split(y: Tensor) -> Tensor:
            return y.view(batch, length, self.heads, size // self.heads).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        if rotate is not None:
            q, k = turn(q, *rotate), turn(k, *rotate)
        weights = torch.softmax(q @ k.transpose(-1, -2) * (size // self.heads) ** -0.5 + mask, -1)
        found: Tensor = self.o((weights @ v).transpose(1, 2).reshape(batch, length, size))
        return found


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on halves."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Block(nn.Module):
    """Norm, attention, norm, feed-forward; ``gated`` as in Llama, else as in GPT."""

    def __init__(self, size: int, heads: int, gated: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(RMSNorm(size) if gated else nn.LayerNorm(size) for _ in range(2))
        self.attention = Attention(size, heads, not gated)
        self.up, self.down = nn.Linear(size, 2 * size, not gated), nn.Linear(2 * size, size, not gated)
        self.gate = nn.Linear(size, 2 * size, False) if gated else None

    def forward(self, x: Tensor, mask: Tensor, rotate: tuple[Tensor, Tensor] | None) -> Tensor:
        x = x + self.attention(self.norms[0](x), mask, rotate)
        y = self.norms[1](x)
        wide = F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        return x + self.down(wide)  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Logits for every token of a sequence."""

    def __init__(
        self, gated: bool, words: int = 64, size: int = 64, heads: int = 2, layers: int = 2, length: int = 8
    ) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, size), None if gated else nn.Embedding(length, size)
        self.blocks = nn.ModuleList(Block(size, heads, gated) for _ in range(layers))
        self.norm, self.head = RMSNorm(size) if gated else nn.LayerNorm(size), nn.Linear(size, words, False)
        self.register_buffer("mask", torch.full((length, length), -1e4).triu(1))
        self.register_buffer("ids", torch.arange(length))
        half = size // heads // 2
        angles = torch.outer(torch.arange(length), 1e4 ** -(torch.arange(half) / half))
        angles = torch.cat([angles, angles], -1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x: Tensor) -> Tensor:
        y = self.words(x)
        if self.positions is not None:
            y = y + self.positions(self.ids)
        for block in self.blocks:
            y = block(y, self.mask, None if self.positions is not None else (self.cos, self.sin))
        return self.head(self.norm(y))  # type: ignore[no-any-return]


class Encoder(nn.Module):
    """torch's own transformer layers, without a mask, and a mean over the tokens."""

    def __init__(self, words: int = 64, size: int = 64, heads: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(words, size)
        self.blocks = nn.ModuleList(Block(size, heads, False) for _ in range(2))
        self.head = nn.Linear(size, 8)
        self.register_buffer("mask", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.words(x)
        for block in self.blocks:
            y = block(y, self.mask, None)
        return self.head(y.mean(1))  # type: ignore[no-any-return]


class Feed(nn.Module):
    """Two linears on floats: the least that 4-bit weights need."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.b(torch.relu(self.a(x)))  # type: ignore[no-any-return]


class Mamba(nn.Module):
    """A gated linear recurrence over a few tokens, unrolled."""

    def __init__(self, words: int = 64, size: int = 32) -> None:
        super().__init__()
        self.words, self.wide = nn.Embedding(words, size), nn.Linear(size, 2 * size)
        self.decay, self.head = nn.Linear(size, size), nn.Linear(size, words)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.wide(self.words(x)).chunk(2, -1)
        keep = torch.sigmoid(self.decay(value))
        state, held = torch.zeros_like(value[:, 0]), []
        for at in range(x.shape[1]):
            state = keep[:, at] * state + (1 - keep[:, at]) * value[:, at]
            held.append(state)
        return self.head(torch.stack(held, 1) * F.silu(gate))  # type: ignore[no-any-return]

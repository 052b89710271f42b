"""What real models are made of, as small networks: gates, norms, attention, heads of detectors, masks, positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Name -> the module and its inputs.
IDIOMS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {}
IMAGE = (1, 3, 16, 16)
TOKENS = torch.arange(10)[None]


def idiom(*inputs: tuple[int, ...] | Tensor) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Register a module class by its name, with its inputs or their shapes."""

    def register(cls: type[nn.Module]) -> type[nn.Module]:
        def make() -> tuple[nn.Module, tuple[Tensor, ...]]:
            torch.manual_seed(len(cls.__name__))
            module = cls().eval()
            return module, tuple(x if isinstance(x, Tensor) else torch.randn(x) for x in inputs)

        IDIOMS[cls.__name__] = make
        return cls

    return register


def conv(channels: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, out, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(out)
    )


# --- activations, gates, norms ---


@idiom(IMAGE)
class Prelu(nn.Module):
    """A slope per channel, viewed as a constant of four dims; a norm of vectors at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.p, self.b, self.q = conv(3, 8), nn.PReLU(8), conv(8, 8, groups=8), nn.PReLU(8)
        self.head = nn.Linear(8, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.q(self.b(self.p(self.a(x))))
        return F.normalize(self.head(x.mean((2, 3))))


@idiom(IMAGE)
class HardGate(nn.Module):
    """Hardswish, and a gate of hardsigmoid, whose integers are converted on the device."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = conv(3, 8), conv(8, 8)
        self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.hardswish(self.a(x))
        gate = F.hardsigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))
        return self.b(x * gate).mean((2, 3))


@idiom(IMAGE)
class SiluGate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = conv(3, 8), conv(8, 8)
        self.down, self.up = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.a(x))
        return self.b(x * torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))) + x


@idiom(IMAGE)
class GroupNorms(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.n, self.m = nn.GroupNorm(2, 8), nn.GroupNorm(1, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.m(self.b(F.silu(self.n(self.a(x)))))


@idiom(IMAGE)
class StyleTransfer(nn.Module):
    """Reflection padding by index, norms of each image, resampling."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.pad = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 3, 3), nn.ReflectionPad2d(1)
        self.n = nn.InstanceNorm2d(8, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.n(self.a(self.pad(x))))
        return self.b(self.pad(F.interpolate(y, scale_factor=2, mode="nearest")))


@idiom(IMAGE)
class LayerNorms(nn.Module):
    """Channels last: norms, linears and GELU on permuted tensors, and a scale of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.dw, self.n = (
            nn.Conv2d(3, 8, 4, 4),
            nn.Conv2d(8, 8, 7, padding=3, groups=8),
            nn.LayerNorm(8),
        )
        self.up, self.down, self.gamma = nn.Linear(8, 16), nn.Linear(16, 8), nn.Parameter(torch.rand(8))

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x)
        y = self.down(F.gelu(self.up(self.n(self.dw(x).permute(0, 2, 3, 1))))) * self.gamma
        return (x + y.permute(0, 3, 1, 2)).mean([-2, -1])


# --- images to images ---


@idiom((1, 3, 12, 12))
class SuperResolution(nn.Module):
    """A mean that is taken off, residuals times a tenth, a pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.a, self.b = (nn.Conv2d(c, 8, 3, padding=1) for c in (3, 8, 8))
        self.up, self.tail = nn.Conv2d(8, 32, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
        self.register_buffer("mean", torch.rand(1, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        first = self.head((x - self.mean) * 255.0)
        y = first + self.b(F.relu(self.a(first))) * 0.1 + first
        return self.tail(F.pixel_shuffle(self.up(y), 2)) / 255.0 + self.mean


@idiom((1, 3, 32, 32))
class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = conv(3, 8), conv(8, 16), conv(16, 16), conv(16, 8)
        self.up, self.out = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = F.relu(self.a(x))
        y = self.up(F.relu(self.c(F.relu(self.b(F.max_pool2d(a, 2))))))
        y = self.out(F.relu(self.d(torch.cat([a, y], 1))))
        return F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)


@idiom(IMAGE)
class ChannelShuffle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.dw = conv(3, 16), conv(8, 8, 1), conv(8, 8, groups=8)

    def forward(self, x: Tensor) -> Tensor:
        kept, changed = F.relu(self.a(x)).chunk(2, 1)
        x = torch.cat([kept, F.relu(self.dw(self.b(changed)))], 1)
        return x.view(1, 2, 8, 16, 16).transpose(1, 2).contiguous().view(1, 16, 16, 16).mean([2, 3])


# --- detectors ---


class Pyramid(nn.Module):
    """Three scales with SiLU, joined downwards and upwards; a head on each."""

    outputs = 21

    def __init__(self) -> None:
        super().__init__()
        sizes = {"s1": (3, 8), "s2": (8, 16), "s3": (16, 24), "s4": (24, 32), "d1": (16, 16), "d2": (24, 24)}
        joins = {
            "u1": (32, 24),
            "c1": (48, 24),
            "u2": (24, 16),
            "c2": (32, 16),
            "e1": (40, 24),
            "e2": (56, 32),
        }
        self.down = nn.ModuleDict({name: conv(*size, 3, 2) for name, size in sizes.items()})
        self.join = nn.ModuleDict({name: conv(*size, 1) for name, size in joins.items()})
        self.heads = nn.ModuleList([nn.Conv2d(channels, self.outputs, 1) for channels in (16, 24, 32)])

    def step(self, name: str, *parts: Tensor) -> Tensor:
        layer = self.down[name] if name in self.down else self.join[name]
        return F.silu(layer(torch.cat(parts, 1) if len(parts) > 1 else parts[0]))

    def forward(self, x: Tensor) -> Any:
        a = self.step("s2", self.step("s1", x))
        b = self.step("s3", a)
        c = self.step("s4", b)
        b = self.step("c1", F.interpolate(self.step("u1", c), scale_factor=2.0, mode="nearest"), b)
        a = self.step("c2", F.interpolate(self.step("u2", b), scale_factor=2.0, mode="nearest"), a)
        b = self.step("e1", self.step("d1", a), b)
        c = self.step("e2", self.step("d2", b), c)
        return [head(y) for head, y in zip(self.heads, (a, b, c), strict=True)]


idiom((1, 3, 64, 64))(Pyramid)


@idiom((1, 3, 64, 64))
class DecodedPyramid(Pyramid):
    """Boxes from the heads, in five dims; both are returned."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outs, boxes = super().forward(x), []
        for y in outs:
            size = y.shape[2:]
            y = y.view(1, 3, 7, *size).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
            xy, wh = y[..., 0:2] * 2 - 0.5, (y[..., 2:4] * 2) ** 2
            boxes.append(torch.cat((xy, wh, y[..., 4:]), -1).view(1, -1, 7))
        return torch.cat(boxes, 1), *outs


@idiom((1, 3, 64, 64))
class Anchors(Pyramid):
    """Grids made by arange and meshgrid, and distances as a softmax over four bins."""

    def forward(self, x: Tensor) -> Tensor:
        outs, anchors = super().forward(x), []
        box, classes = torch.cat([y.view(1, 21, -1) for y in outs], 2).split((16, 5), 1)
        spread = box.view(1, 4, 4, -1).transpose(2, 1).softmax(1)
        distance = (spread * torch.arange(4).view(1, 4, 1, 1)).sum(1)
        for y in outs:
            rows, columns = (torch.arange(size) + 0.5 for size in y.shape[2:])
            grid = torch.meshgrid(rows, columns, indexing="ij")
            anchors.append(torch.stack((grid[1], grid[0]), -1).view(-1, 2))
        centers = torch.cat(anchors).transpose(0, 1).unsqueeze(0)
        low, high = distance.chunk(2, 1)
        first, last = centers - low, centers + high
        return torch.cat(((first + last) / 2, last - first, classes.sigmoid()), 1)


# --- attention ---


class Embedded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(32, 16), nn.Embedding(16, 16), nn.Embedding(2, 16)
        self.q, self.k, self.v, self.o, self.down = (nn.Linear(16, 16) for _ in range(5))
        self.n, self.m, self.up = nn.LayerNorm(16), nn.LayerNorm(16), nn.Linear(16, 16)
        self.register_buffer("positions", torch.arange(16)[None])


@idiom(TOKENS)
class Bert(Embedded):
    """Three embeddings, a mask that is added to the scores of two heads, a pooled token."""

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(tokens) + self.places(self.positions[:, :10]) + self.kinds(torch.zeros_like(tokens))
        x = self.n(x)
        mask = (1.0 - (tokens != 0)[:, None, None, :].to(torch.float32)) * -10000.0
        q, k, v = (each(x).view(1, 10, 2, 8).transpose(1, 2) for each in (self.q, self.k, self.v))
        weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + mask, -1)
        x = self.m(x + self.o((weights @ v).transpose(1, 2).reshape(1, 10, 16)))
        return x + self.down(F.gelu(self.up(x))), torch.tanh(self.o(x[:, 0]))


@idiom(TOKENS)
class Masked(Embedded):
    """Positions by arange; a mask of logical operators that fills scores with -inf."""

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.n(self.words(tokens) + self.places(torch.arange(10)))
        keep = (tokens == 3).logical_not()[:, None, :] & torch.ones(10, 10, dtype=torch.bool).tril()
        scores = self.q(x) @ self.k(x).transpose(-1, -2) * 0.25
        return self.o(scores.masked_fill(keep.logical_not(), -1e4).softmax(-1) @ self.v(x))


@idiom((1, 10, 16))
class MultiheadAttention(nn.Module):
    """Rows stand in front of a dim of size 1: ExecuTorch takes its gemv for them."""

    def __init__(self) -> None:
        super().__init__()
        self.m, self.n = nn.MultiheadAttention(16, 2, batch_first=True), nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Tensor:
        y = self.n(x)
        return x + self.m(y, y, y, need_weights=False)[0]


@idiom((1, 10, 16))
class CausalAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (each(x).view(1, 10, 2, 8).transpose(1, 2) for each in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(1, 10, 16))


@idiom((1, 3, 32, 32))
class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.qkv, self.o = nn.Conv2d(3, 16, 8, 8), nn.Linear(16, 48), nn.Linear(16, 16)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, 16)), nn.Parameter(torch.randn(1, 17, 16))
        self.n, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(1, -1, -1), x], 1) + self.places
        q, k, v = self.qkv(self.n(x)).reshape(1, 17, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 17, 16))
        return (x + self.down(F.gelu(self.up(x))))[:, 0]


# --- several delegates, several outputs ---


@idiom(IMAGE)
class Islands(nn.Module):
    """erf has no kernel in a delegate: what is around it shares weights, and its results are returned."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = conv(3, 8), conv(8, 8), conv(8, 8)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        a = self.a(x)
        b = torch.erf(self.b(a))
        c = self.c(a)
        return self.b(b) + c + a, torch.erf(c), a


@idiom((5, 1, 8))
class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cells, self.head = nn.LSTM(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.cells(x)[0][-1])


@idiom((1, 3, 16, 16), (1, 3, 16, 16))
class Twins(nn.Module):
    """Two inputs go through the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = conv(3, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a, b = (self.head(F.relu(self.a(each)).mean((2, 3))) for each in (x, y))
        return F.cosine_similarity(a, b), (a - b).abs()

"""What real models are made of, as small networks: gates, norms, attention, heads of detectors, masks, positions."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn, relu

from .network import Network, Part, conv, linear, network, same

IMAGE, LARGE, ROWS = (1, 3, 16, 16), (1, 3, 64, 64), (1, 10, 16)
TOKENS = torch.arange(10)[None]


def normed(channels: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Part:
    """A convolution of odd size and a batch norm."""

    def made() -> nn.Module:
        window = (kernel, stride, kernel // 2)
        return nn.Sequential(
            nn.Conv2d(channels, out, *window, groups=groups, bias=False), nn.BatchNorm2d(out)
        )

    return made


norm, embedding = partial(partial, nn.LayerNorm), partial(partial, nn.Embedding)


def drawn(*shape: int) -> Part:
    return lambda: nn.Parameter(torch.rand(shape))


# --- activations, gates, norms ---


def prelu(m: Any, x: Tensor) -> Tensor:
    x = m.q(m.b(m.p(m.a(x))))
    return F.normalize(m.head(x.mean((2, 3))))


def hard_gate(m: Any, x: Tensor) -> Tensor:
    x = F.hardswish(m.a(x))
    gate = F.hardsigmoid(m.up(relu(m.down(F.adaptive_avg_pool2d(x, 1)))))
    return m.b(x * gate).mean((2, 3))


def silu_gate(m: Any, x: Tensor) -> Tensor:
    x = F.silu(m.a(x))
    return m.b(x * torch.sigmoid(m.up(F.silu(m.down(x.mean((2, 3), keepdim=True)))))) + x


def style_transfer(m: Any, x: Tensor) -> Tensor:
    y = relu(m.n(m.a(m.pad(x))))
    return m.b(m.pad(F.interpolate(y, scale_factor=2, mode="nearest")))


def layer_norms(m: Any, x: Tensor) -> Tensor:
    x = m.a(x)
    y = m.down(F.gelu(m.up(m.n(m.dw(x).permute(0, 2, 3, 1))))) * m.gamma
    return (x + y.permute(0, 3, 1, 2)).mean([-2, -1])


GATE: dict[str, Part] = {
    "a": normed(3, 8), "b": normed(8, 8), "down": conv(8, 4, 1), "up": conv(4, 8, 1)
}  # fmt: skip
GATES: dict[str, Network] = {
    # a slope per channel, viewed as a constant of four dims; a norm of vectors at the end
    "Prelu": network(
        prelu, IMAGE, a=normed(3, 8), p=partial(nn.PReLU, 8), b=normed(8, 8, groups=8), q=partial(nn.PReLU, 8),
        head=linear(8, 16),
    ),
    # the integers of hardsigmoid are converted on the device
    "HardGate": network(hard_gate, IMAGE, **GATE),
    "SiluGate": network(silu_gate, IMAGE, **GATE),
    "GroupNorms": network(
        lambda m, x: m.m(m.b(F.silu(m.n(m.a(x))))), IMAGE, a=same(3, 8), b=same(8, 8),
        n=partial(nn.GroupNorm, 2, 8), m=partial(nn.GroupNorm, 1, 8),
    ),
    # reflection padding by index, norms of each image, resampling
    "StyleTransfer": network(
        style_transfer, IMAGE, a=conv(3, 8, 3), b=conv(8, 3, 3), pad=partial(nn.ReflectionPad2d, 1),
        n=partial(nn.InstanceNorm2d, 8, affine=True),
    ),
    # channels last: norms, linears and GELU on permuted tensors, and a scale of each channel
    "LayerNorms": network(
        layer_norms, IMAGE, a=conv(3, 8, 4, 4), dw=conv(8, 8, 7, padding=3, groups=8), n=norm(8), up=linear(8, 16),
        down=linear(16, 8), gamma=drawn(8),
    ),
}  # fmt: skip

# --- images to images ---


def super_resolution(m: Any, x: Tensor) -> Tensor:
    first = m.head((x - m.mean) * 255.0)
    y = first + m.b(relu(m.a(first))) * 0.1 + first
    return m.tail(F.pixel_shuffle(m.up(y), 2)) / 255.0 + m.mean


def u_net(m: Any, x: Tensor) -> Tensor:
    a = relu(m.a(x))
    y = m.up(relu(m.c(relu(m.b(F.max_pool2d(a, 2))))))
    y = m.out(relu(m.d(torch.cat([a, y], 1))))
    return F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)


def channel_shuffle(m: Any, x: Tensor) -> Tensor:
    kept, changed = relu(m.a(x)).chunk(2, 1)
    x = torch.cat([kept, relu(m.dw(m.b(changed)))], 1)
    return x.view(1, 2, 8, 16, 16).transpose(1, 2).contiguous().view(1, 16, 16, 16).mean([2, 3])


def circular(m: Any, x: Tensor) -> Tensor:
    y = F.pad(m.a(x), (1, 1, 1, 1), mode="circular")
    return y[:, :, torch.tensor([2, 0, 1])].relu() + y.mean(2, keepdim=True)[..., :1]


IMAGES: dict[str, Network] = {
    # a mean that is taken off, residuals times a tenth, a pixel shuffle
    "SuperResolution": network(
        super_resolution, (1, 3, 12, 12), head=same(3, 8), a=same(8, 8), b=same(8, 8), up=same(8, 32),
        tail=same(8, 3), mean=lambda: nn.Buffer(torch.rand(1, 3, 1, 1)),
    ),
    "UNet": network(
        u_net, (1, 3, 32, 32), a=normed(3, 8), b=normed(8, 16), c=normed(16, 16), d=normed(16, 8),
        up=partial(nn.ConvTranspose2d, 16, 8, 2, 2), out=conv(8, 2, 1),
    ),
    "ChannelShuffle": network(
        channel_shuffle, IMAGE, a=normed(3, 16), b=normed(8, 8, 1), dw=normed(8, 8, groups=8)
    ),
    # padding and rows by index
    "Circular": network(circular, IMAGE, a=same(3, 4)),
    # topk has no kernel in a delegate
    "LargestChannels": network(lambda m, x: m.a(x).topk(2, 1)[0] * 2, IMAGE, a=same(3, 8)),
}  # fmt: skip

# --- detectors ---


def pyramid(m: Any, x: Tensor) -> list[Tensor]:
    """Three scales with SiLU, joined downwards and upwards; a head on each."""

    def step(name: str, *parts: Tensor) -> Tensor:
        return F.silu(getattr(m, name)(torch.cat(parts, 1) if len(parts) > 1 else parts[0]))

    def larger(y: Tensor) -> Tensor:
        return F.interpolate(y, scale_factor=2.0, mode="nearest")

    a = step("s2", step("s1", x))
    b = step("s3", a)
    c = step("s4", b)
    b = step("c1", larger(step("u1", c)), b)
    a = step("c2", larger(step("u2", b)), a)
    b = step("e1", step("d1", a), b)
    c = step("e2", step("d2", b), c)
    return [head(y) for head, y in zip(m.heads, (a, b, c), strict=True)]


def decoded(m: Any, x: Tensor) -> tuple[Tensor, ...]:
    """Boxes from the heads, in five dims; both are returned."""
    outs, boxes = pyramid(m, x), []
    for y in outs:
        y = y.view(1, 3, 7, *y.shape[2:]).permute(0, 1, 3, 4, 2).contiguous().sigmoid()
        xy, wh = y[..., 0:2] * 2 - 0.5, (y[..., 2:4] * 2) ** 2
        boxes.append(torch.cat((xy, wh, y[..., 4:]), -1).view(1, -1, 7))
    return torch.cat(boxes, 1), *outs


def anchors(m: Any, x: Tensor) -> Tensor:
    """Grids made by arange and meshgrid, and distances as a softmax over four bins."""
    outs, places = pyramid(m, x), []
    box, classes = torch.cat([y.view(1, 21, -1) for y in outs], 2).split((16, 5), 1)
    spread = box.view(1, 4, 4, -1).transpose(2, 1).softmax(1)
    distance = (spread * torch.arange(4).view(1, 4, 1, 1)).sum(1)
    for y in outs:
        rows, columns = (torch.arange(size) + 0.5 for size in y.shape[2:])
        grid = torch.meshgrid(rows, columns, indexing="ij")
        places.append(torch.stack((grid[1], grid[0]), -1).view(-1, 2))
    centers = torch.cat(places).transpose(0, 1).unsqueeze(0)
    low, high = distance.chunk(2, 1)
    first, last = centers - low, centers + high
    return torch.cat(((first + last) / 2, last - first, classes.sigmoid()), 1)


DOWN = {"s1": (3, 8), "s2": (8, 16), "s3": (16, 24), "s4": (24, 32), "d1": (16, 16), "d2": (24, 24)}
JOIN = {"u1": (32, 24), "c1": (48, 24), "u2": (24, 16), "c2": (32, 16), "e1": (40, 24), "e2": (56, 32)}
SCALES: dict[str, Part] = {
    **{name: normed(*channels, 3, 2) for name, channels in DOWN.items()},
    **{name: normed(*channels, 1) for name, channels in JOIN.items()},
    "heads": lambda: nn.ModuleList([nn.Conv2d(channels, 21, 1) for channels in (16, 24, 32)]),
}
DETECTORS: dict[str, Network] = {
    "Pyramid": network(pyramid, LARGE, **SCALES),
    "DecodedPyramid": network(decoded, LARGE, **SCALES),
    "Anchors": network(anchors, LARGE, **SCALES),
}

# --- attention ---


def heads(x: Tensor, *parts: Any) -> list[Tensor]:
    return [each(x).view(1, 10, 2, 8).transpose(1, 2) for each in parts]


def bert(m: Any, tokens: Tensor) -> tuple[Tensor, Tensor]:
    x = m.words(tokens) + m.places(m.positions[:, :10]) + m.kinds(torch.zeros_like(tokens))
    x = m.n(x)
    mask = (1.0 - (tokens != 0)[:, None, None, :].to(torch.float32)) * -10000.0
    q, k, v = heads(x, m.q, m.k, m.v)
    weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + mask, -1)
    x = m.m(x + m.o((weights @ v).transpose(1, 2).reshape(1, 10, 16)))
    return x + m.down(F.gelu(m.up(x))), torch.tanh(m.o(x[:, 0]))


def masked(m: Any, tokens: Tensor) -> Tensor:
    x = m.n(m.words(tokens) + m.places(torch.arange(10)))
    keep = (tokens == 3).logical_not()[:, None, :] & torch.ones(10, 10, dtype=torch.bool).tril()
    scores = m.q(x) @ m.k(x).transpose(-1, -2) * 0.25
    return m.o(scores.masked_fill(keep.logical_not(), -1e4).softmax(-1) @ m.v(x))


def multihead(m: Any, x: Tensor) -> Tensor:
    y = m.n(x)
    return x + m.m(y, y, y, need_weights=False)[0]


def causal(m: Any, x: Tensor) -> Tensor:
    y = F.scaled_dot_product_attention(*heads(x, m.q, m.k, m.v), is_causal=True)
    return m.o(y.transpose(1, 2).reshape(1, 10, 16))


def vision(m: Any, x: Tensor) -> Tensor:
    x = m.patches(x).flatten(2).transpose(1, 2)
    x = torch.cat([m.token.expand(1, -1, -1), x], 1) + m.places
    q, k, v = m.qkv(m.n(x)).reshape(1, 17, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
    x = x + m.o(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(1, 17, 16))
    return (x + m.down(F.gelu(m.up(x))))[:, 0]


EMBEDDED: dict[str, Part] = {
    **{name: linear(16, 16) for name in ("q", "k", "v", "o", "down", "up")}, "n": norm(16), "m": norm(16),
    "words": embedding(32, 16), "places": embedding(16, 16), "kinds": embedding(2, 16),
    "positions": lambda: nn.Buffer(torch.arange(16)[None]),
}  # fmt: skip
ATTENTION: dict[str, Network] = {
    # three embeddings, a mask that is added to the scores of two heads, a pooled token
    "Bert": network(bert, TOKENS, **EMBEDDED),
    # positions by arange; a mask of logical operators that fills scores with -inf
    "Masked": network(masked, TOKENS, **EMBEDDED),
    # rows stand in front of a dim of size 1: ExecuTorch takes its gemv for them
    "MultiheadAttention": network(
        multihead, ROWS, m=partial(nn.MultiheadAttention, 16, 2, batch_first=True), n=norm(16)
    ),
    "CausalAttention": network(causal, ROWS, **{name: linear(16, 16) for name in "qkvo"}),
    "VisionTransformer": network(
        vision, (1, 3, 32, 32), patches=conv(3, 16, 8, 8), qkv=linear(16, 48), o=linear(16, 16), token=drawn(1, 1, 16),
        places=drawn(1, 17, 16), n=norm(16), up=linear(16, 32), down=linear(32, 16),
    ),
}  # fmt: skip

# --- several delegates, several outputs ---


def islands(m: Any, x: Tensor) -> tuple[Tensor, ...]:
    a = m.a(x)
    b = torch.erf(m.b(a))
    c = m.c(a)
    return m.b(b) + c + a, torch.erf(c), a


def twins(m: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    a, b = (m.head(relu(m.a(each)).mean((2, 3))) for each in (x, y))
    return F.cosine_similarity(a, b), (a - b).abs()


PARTED: dict[str, Network] = {
    # erf has no kernel in a delegate: what is around it shares weights, and its results are returned
    "Islands": network(islands, IMAGE, a=normed(3, 8), b=normed(8, 8), c=normed(8, 8)),
    "Recurrent": network(
        lambda m, x: m.head(m.cells(x)[0][-1]), (5, 1, 8), cells=partial(nn.LSTM, 8, 8), head=linear(8, 4)
    ),
    # two inputs go through the same weights
    "Twins": network(twins, IMAGE, IMAGE, a=normed(3, 8), head=linear(8, 8)),
}

IDIOMS: dict[str, Network] = {**GATES, **IMAGES, **DETECTORS, **ATTENTION, **PARTED}

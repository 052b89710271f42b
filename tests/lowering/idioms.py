"""What real models are made of: small ones of the zoo, and networks for what none of these has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn, relu

from bench.zoo.build import build
from bench.zoo.catalogue import MODELS

from .network import Network, Part, conv, linear, network, same

IMAGE = (1, 3, 16, 16)
TOKENS = torch.arange(10)[None]
norm, embedding = partial(partial, nn.LayerNorm), partial(partial, nn.Embedding)


def normed(channels: int, out: int, kernel: int = 3, groups: int = 1) -> Part:
    """A convolution of odd size and a batch norm."""

    def made() -> nn.Module:
        convolution = nn.Conv2d(channels, out, kernel, 1, kernel // 2, groups=groups, bias=False)
        return nn.Sequential(convolution, nn.BatchNorm2d(out))

    return made


def hard_gate(m: Any, x: Tensor) -> Tensor:
    x = F.hardswish(m.a(x))
    gate = F.hardsigmoid(m.up(relu(m.down(F.adaptive_avg_pool2d(x, 1)))))
    return m.b(x * gate).mean((2, 3))


def layer_norms(m: Any, x: Tensor) -> Tensor:
    x = m.a(x)
    y = m.down(F.gelu(m.up(m.n(m.dw(x).permute(0, 2, 3, 1))))) * m.gamma
    return (x + y.permute(0, 3, 1, 2)).mean([-2, -1])


def channel_shuffle(m: Any, x: Tensor) -> Tensor:
    kept, changed = relu(m.a(x)).chunk(2, 1)
    x = torch.cat([kept, relu(m.dw(m.b(changed)))], 1)
    return x.view(1, 2, 8, 16, 16).transpose(1, 2).contiguous().view(1, 16, 16, 16).mean([2, 3])


def circular(m: Any, x: Tensor) -> Tensor:
    y = F.pad(m.a(x), (1, 1, 1, 1), mode="circular")
    return y[:, :, torch.tensor([2, 0, 1])].relu() + y.mean(2, keepdim=True)[..., :1]


def bert(m: Any, tokens: Tensor) -> tuple[Tensor, Tensor]:
    x = m.words(tokens) + m.places(m.positions[:, :10]) + m.kinds(torch.zeros_like(tokens))
    x = m.n(x)
    mask = (1.0 - (tokens != 0)[:, None, None, :].to(torch.float32)) * -10000.0
    q, k, v = (each(x).view(1, 10, 2, 8).transpose(1, 2) for each in (m.q, m.k, m.v))
    weights = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5 + mask, -1)
    x = m.m(x + m.o((weights @ v).transpose(1, 2).reshape(1, 10, 16)))
    return x + m.down(F.gelu(m.up(x))), torch.tanh(m.o(x[:, 0]))


def masked(m: Any, tokens: Tensor) -> Tensor:
    x = m.n(m.words(tokens) + m.places(torch.arange(10)))
    keep = (tokens == 3).logical_not()[:, None, :] & torch.ones(10, 10, dtype=torch.bool).tril()
    scores = m.q(x) @ m.k(x).transpose(-1, -2) * 0.25
    return m.o(scores.masked_fill(keep.logical_not(), -1e4).softmax(-1) @ m.v(x))


def islands(m: Any, x: Tensor) -> tuple[Tensor, ...]:
    a = m.a(x)
    b = torch.erf(m.b(a))
    c = m.c(a)
    return m.b(b) + c + a, torch.erf(c), a


EMBEDDED: dict[str, Part] = {
    **{name: linear(16, 16) for name in ("q", "k", "v", "o", "down", "up")}, "n": norm(16), "m": norm(16),
    "words": embedding(32, 16), "places": embedding(16, 16), "kinds": embedding(2, 16),
    "positions": lambda: nn.Buffer(torch.arange(16)[None]),
}  # fmt: skip
OWN: dict[str, Network] = {
    # the integers of hardsigmoid are converted on the device
    "HardGate": network(
        hard_gate, IMAGE, a=normed(3, 8), b=normed(8, 8), down=conv(8, 4, 1), up=conv(4, 8, 1)
    ),
    # channels last: norms, linears and GELU on permuted tensors, and a scale of each channel
    "LayerNorms": network(
        layer_norms, IMAGE, a=conv(3, 8, 4, 4), dw=conv(8, 8, 7, padding=3, groups=8), n=norm(8), up=linear(8, 16),
        down=linear(16, 8), gamma=lambda: nn.Parameter(torch.rand(8)),
    ),
    "ChannelShuffle": network(
        channel_shuffle, IMAGE, a=normed(3, 16), b=normed(8, 8, 1), dw=normed(8, 8, groups=8)
    ),
    # padding and rows by index
    "Circular": network(circular, IMAGE, a=same(3, 4)),
    # topk has no kernel in a delegate
    "LargestChannels": network(lambda m, x: m.a(x).topk(2, 1)[0] * 2, IMAGE, a=same(3, 8)),
    # three embeddings, a mask that is added to the scores of two heads, a pooled token
    "Bert": network(bert, TOKENS, **EMBEDDED),
    # positions by arange; a mask of logical operators that fills scores with -inf
    "Masked": network(masked, TOKENS, **EMBEDDED),
    # erf has no kernel in a delegate: what is around it shares weights, and its results are returned
    "Islands": network(islands, IMAGE, a=normed(3, 8), b=normed(8, 8), c=normed(8, 8)),
    "Recurrent": network(
        lambda m, x: m.head(m.cells(x)[0][-1]), (5, 1, 8), cells=partial(nn.LSTM, 8, 8), head=linear(8, 4)
    ),
}  # fmt: skip
#: A slope per channel, gates, norms, borders by index, skips, anchors, attention, two inputs.
ZOO = (
    "mobilefacenet", "senet", "fcos", "styletransfer", "edsr", "imdn", "unet", "unetbilinear", "yolov5", "yolov8",
    "encoder_int8", "gpt_int8", "fttransformer", "siamese",
)  # fmt: skip


def _of_zoo(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    module, (inputs, *_) = build(MODELS[name])
    return module, inputs


def _own(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    module, inputs = OWN[name].made(name)
    return module.eval(), inputs


#: Name -> the module and its inputs.
IDIOMS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    **{name: partial(_own, name) for name in OWN},
    **{name: partial(_of_zoo, name) for name in ZOO},
}

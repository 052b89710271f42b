"""Networks in which quantized operators meet: additions, relus, pixel shuffles, float operators between."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .network import Networks, network
from .quantize import ATEN, OPERATORS
from .resnet import ResNet

JOINED: Networks = {}


@network(JOINED, (1, 8, 10, 10))
class Residuals(nn.Module):
    """Additions whose operands come from a pointwise, a general and a depthwise convolution, and from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.pw, self.full = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.dw = nn.Conv2d(8, 8, 3, padding=1, groups=8)

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.pw(x)
        z = torch.relu(self.full(y)) + y
        return self.pw(self.dw(z) + self.pw(z))


@network(JOINED, (1, 8, 6, 6), zero_points={ATEN.add.Tensor: 3})
class AddRelu(nn.Module):
    """The output's zero point is not -128: clamping does not do the relu."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(torch.relu(x + self.a(x)))


@network(JOINED, (1, 8, 6, 6))
class AddReluAtMinimum(AddRelu):
    """The relu's range begins at 0, so the zero point is -128."""


@network(JOINED, (1, 8, 3, 2), zero_points={ATEN.conv2d.default: 3, ATEN.linear.default: -7})
class ReluElsewhere(nn.Module):
    """Relus behind a convolution and a linear, with zero points at which clamping does not do them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 8, 1), nn.Linear(48, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.a(x)) + x
        return torch.relu(self.b(torch.flatten(y, 1)))


@network(JOINED, (1, 8, 6, 6))
class AddAlpha(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.a(x), x, alpha=2)


@network(JOINED, (1, 8, 6, 6), (1, 8, 1, 1))
class BroadcastAdd(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


@network(JOINED, (1, 8, 6, 6))
class AddToItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        return self.a(y + y)


@network(JOINED, (1, 8, 3, 5))
class FourPixelShuffles(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.Conv2d(8, 32, 1) for _ in range(4))
        self.out = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        for up in self.up:
            x = nn.functional.pixel_shuffle(up(x).clone(), 2).clone()
        return self.out(x)


@network(JOINED, (1, 16, 5, 7), only=[op for op in OPERATORS if op is not ATEN.relu.default])
class TwoDelegates(nn.Module):
    """erf has no kernel in the delegate: what is before and after it cannot be one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(16, 8, 3), nn.Conv2d(8, 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.erf(self.a(x)))


@network(JOINED, (1, 3, 16, 16))
class Classifier(nn.Module):
    """Pooling and a view between convolutions and a linear."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 16, 3), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.max_pool2d(torch.relu(self.a(x)), 2)
        y = torch.relu(self.b(y)).mean((2, 3), keepdim=True)
        return torch.softmax(self.c(torch.flatten(y, 1)), -1)


@network(JOINED, (1, 3, 12, 12))
class FloatIslands(nn.Module):
    """Float operators inside the delegate: hardswish, sigmoid gates, resampling, concatenation, layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1)
        self.c = nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.hardswish(self.a(x))
        gate = torch.sigmoid(self.b(y.mean((2, 3), keepdim=True)))
        y = y * gate
        small = nn.functional.avg_pool2d(y, 2)
        back = nn.functional.interpolate(small, scale_factor=2, mode="nearest")
        return self.c(torch.cat([y, back], 1))


@network(JOINED, (1, 6, 8), only=[ATEN.linear.default])
class Attention(nn.Module):
    """Products of activations stay float; permutes, softmax and layer norm between linears."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(8, 8) for _ in range(3))
        self.norm = nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(torch.sigmoid(torch.exp(-x)))
        q, k, v = self.q(x), self.k(x), self.v(x)
        weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * 0.35, -1)
        return torch.bmm(weights, v)


@network(JOINED, (1, 8, 6, 6), only=[ATEN.add.Tensor])
class FloatConvolution(nn.Module):
    """A convolution that stays float, with a relu to clamp at."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.a(x))
        return torch.add(y, x) + 1.5


@network(JOINED, (1, 4, 6, 6))
class SharedWeights(nn.Module):
    """One convolution, called twice: its constants are stored once."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.a(x)
        return self.a(torch.relu(y)), y


@network(JOINED, (1, 8, 3, 4, 5), (1, 8, 3, 4, 5))
class FiveDims(nn.Module):
    """Operators that work element by element take any number of dims."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        both = x + y
        return torch.relu(both) + both


@network(JOINED, (1, 3, 33, 33))
class SmallResNet(ResNet):
    """Three stages of bottlenecks: projections, additions of pointwise results, strided convolutions."""

    def __init__(self) -> None:
        super().__init__(blocks=(1, 2, 1), width=8, classes=10)

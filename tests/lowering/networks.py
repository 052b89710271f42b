"""Small networks, each with something that a partitioner can get wrong; quantized with torch alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from .quantize import ATEN, OPERATORS, quantize
from .resnet import ResNet

NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]]] = {}


def network(*shapes: tuple[int, ...], **options: Any) -> Callable[[type[nn.Module]], type[nn.Module]]:
    """Register a module class by its name, with the shapes of its inputs and options of `quantize`."""

    def register(cls: type[nn.Module]) -> type[nn.Module]:
        def make() -> tuple[nn.Module, tuple[Tensor, ...], dict[str, Any]]:
            torch.manual_seed(sum(map(ord, cls.__name__)))
            return cls(), tuple(torch.randn(shape) for shape in shapes), options

        NETWORKS[cls.__name__] = make
        return cls

    return register


def program(name: str) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    """The quantized program of a network, and example inputs."""
    module, inputs, options = NETWORKS[name]()
    return quantize(module, inputs, **options), inputs


class Constant(nn.Module):
    """A module with a weight of its own for matrix products."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(shape) * 0.2)
        self.b = nn.Parameter(torch.randn(shape[-1]) * 0.2)


# --- linears ---


@network((6, 16))
class ChainedLinears(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 24), nn.Linear(24, 8, bias=False), nn.Linear(8, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(self.a(x))))


@network((1, 16))
class ChainedGemvs(ChainedLinears):
    pass


@network((5, 16), axes={ATEN.addmm.default: 0})
class Addmm(nn.Module):
    """The bias comes first; the weight is stored by output channel, as a linear's."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(12, 16) * 0.2), nn.Parameter(torch.randn(12))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.b, x, self.w.t())


@network((5, 16))
class AddmmByInput(Constant):
    """The weight is stored by input channel."""

    def __init__(self) -> None:
        super().__init__(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.b, x, self.w)


@network((5, 12))
class SquareMm(Constant):
    """A square weight hides an exchange of its dims."""

    def __init__(self) -> None:
        super().__init__(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.mm(x, self.w))


@network((1, 5, 16))
class Bmm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(1, 16, 12) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.w)


@network((1, 7, 16))
class Linear3D(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 20), nn.Linear(20, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@network((1, 2, 3, 16))
class Linear4D(Linear3D):
    pass


@network((3, 1, 16))
class LeadingRows(nn.Module):
    """Three rows, though the dim before the last is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


@network((6, 18))
class OddChannelsLinear(nn.Module):
    """18 input channels do not fill words; 13 output channels need not."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(18, 16), nn.Linear(16, 13)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


@network((6, 16), float_outputs=True)
class FloatHead(nn.Module):
    """The last linear has a float output."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 24), nn.Linear(24, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@network((2, 3, 16), float_outputs=True)
class FloatHead3D(FloatHead):
    """A view on both sides of the product, which belong to it."""


@network((1, 16), float_outputs=True)
class FloatMm(Constant):
    """A square weight, no bias."""

    def __init__(self) -> None:
        super().__init__(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.w)


@network((6, 16), float_outputs=True)
class TwoHeads(nn.Module):
    """Two float results of one tensor; one goes on through float operators."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 8), nn.Linear(16, 4, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.a(x), self.b(x)


@network((6, 16), float_outputs=True)
class OddFloatHead(nn.Module):
    """Ten outputs and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


# --- convolutions ---


@network((1, 16, 9, 7))
class GroupedConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(16, 24, 3, padding=1, groups=2)
        self.b = nn.Conv2d(24, 16, (3, 1), stride=(2, 1), padding=(1, 0), groups=2)
        self.c = nn.Conv2d(16, 16, 1, groups=4)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(self.a(x))))


@network((1, 24, 9, 7))
class OddGroupInputs(nn.Module):
    """Six input channels per group: a group begins in the middle of a word."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(24, 16, 3, padding=1, groups=4)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


@network((1, 6, 8, 8))
class OddGroups(nn.Module):
    """Three output channels per group: a group would share a word with the next."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(6, 8, 3, padding=1), nn.Conv2d(8, 6, 3, padding=1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@network((1, 3, 12, 10))
class DilatedConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, dilation=2, padding=2)
        self.b = nn.Conv2d(8, 8, 3, dilation=(1, 3), padding=(1, 3), bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@network((1, 3, 13, 11))
class DepthwiseConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.b = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.c = nn.Conv2d(16, 16, 5, stride=2, padding=2, groups=16, bias=False)
        self.d = nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.d(torch.relu(self.c(torch.relu(self.b(torch.relu(self.a(x)))))))


@network((1, 8, 5, 6))
class TransposedConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.ConvTranspose2d(8, 12, 3, stride=2, padding=1, output_padding=1)
        self.b = nn.ConvTranspose2d(12, 8, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@network((1, 8, 5, 6), axes={ATEN.conv_transpose2d.input: 0})
class TransposedWrongAxis(TransposedConvolution):
    """Weights quantized along the input channels: no kernel takes that."""


@network((1, 5, 9, 7))
class OddChannelsConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(5, 13, 3), nn.Conv2d(13, 7, 1), nn.Conv2d(7, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(self.a(x))))


@network((1, 6, 9, 7))
class OddDepthwise(nn.Module):
    """Six depthwise channels do not fill words."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(6, 6, 3, padding=1, groups=6)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


@network((2, 8, 6, 6))
class Batch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.a(x))
        return self.b(y) + y


# --- additions ---


@network((1, 8, 10, 10))
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


@network((1, 8, 6, 6), zero_points={ATEN.add.Tensor: 3})
class AddRelu(nn.Module):
    """The output's zero point is not -128: clamping does not do the relu."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(torch.relu(x + self.a(x)))


@network((1, 8, 6, 6))
class AddReluAtMinimum(AddRelu):
    """The relu's range begins at 0, so the zero point is -128."""


@network((1, 8, 3, 2), zero_points={ATEN.conv2d.default: 3, ATEN.linear.default: -7})
class ReluElsewhere(nn.Module):
    """Relus behind a convolution and a linear, with zero points at which clamping does not do them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 8, 1), nn.Linear(48, 8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.a(x)) + x
        return torch.relu(self.b(torch.flatten(y, 1)))


@network((1, 8, 6, 6))
class AddAlpha(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(self.a(x), x, alpha=2)


@network((1, 8, 6, 6), (1, 8, 1, 1))
class BroadcastAdd(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


@network((1, 8, 6, 6))
class AddToItself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.a(x)
        return self.a(y + y)


# --- pixel shuffle, clones, float operators between ---


@network((1, 8, 3, 5))
class FourPixelShuffles(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.Conv2d(8, 32, 1) for _ in range(4))
        self.out = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        for up in self.up:
            x = nn.functional.pixel_shuffle(up(x).clone(), 2).clone()
        return self.out(x)


@network((1, 16, 5, 7), only=[op for op in OPERATORS if op is not ATEN.relu.default])
class TwoDelegates(nn.Module):
    """erf has no kernel in the delegate: what is before and after it cannot be one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(16, 8, 3), nn.Conv2d(8, 12, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.erf(self.a(x)))


@network((1, 3, 16, 16))
class Classifier(nn.Module):
    """Pooling and a view between convolutions and a linear."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, stride=2), nn.Conv2d(8, 16, 3), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.max_pool2d(torch.relu(self.a(x)), 2)
        y = torch.relu(self.b(y)).mean((2, 3), keepdim=True)
        return torch.softmax(self.c(torch.flatten(y, 1)), -1)


@network((1, 3, 12, 12))
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


@network((1, 6, 8), only=[ATEN.linear.default])
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


@network((1, 8, 6, 6), only=[ATEN.add.Tensor])
class FloatConvolution(nn.Module):
    """A convolution that stays float, with a relu to clamp at."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.a(x))
        return torch.add(y, x) + 1.5


@network((1, 4, 6, 6))
class SharedWeights(nn.Module):
    """One convolution, called twice: its constants are stored once."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.a(x)
        return self.a(torch.relu(y)), y


@network((1, 3, 33, 33))
class SmallResNet(ResNet):
    """Three stages of bottlenecks: projections, additions of pointwise results, strided convolutions."""

    def __init__(self) -> None:
        super().__init__(blocks=(1, 2, 1), width=8, classes=10)

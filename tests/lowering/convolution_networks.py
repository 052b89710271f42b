"""Networks of convolutions: grouped, dilated, depthwise, transposed, with odd numbers of channels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .network import Networks, network
from .quantize import ATEN

CONVOLUTIONS: Networks = {}


@network(CONVOLUTIONS, (1, 16, 9, 7))
class GroupedConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(16, 24, 3, padding=1, groups=2)
        self.b = nn.Conv2d(24, 16, (3, 1), stride=(2, 1), padding=(1, 0), groups=2)
        self.c = nn.Conv2d(16, 16, 1, groups=4)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(self.a(x))))


@network(CONVOLUTIONS, (1, 24, 9, 7))
class OddGroupInputs(nn.Module):
    """Six input channels per group: a group begins in the middle of a word."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(24, 16, 3, padding=1, groups=4)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


@network(CONVOLUTIONS, (1, 6, 8, 8))
class OddGroups(nn.Module):
    """Three output channels per group: a group would share a word with the next."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(6, 8, 3, padding=1), nn.Conv2d(8, 6, 3, padding=1, groups=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@network(CONVOLUTIONS, (1, 3, 12, 10))
class DilatedConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, dilation=2, padding=2)
        self.b = nn.Conv2d(8, 8, 3, dilation=(1, 3), padding=(1, 3), bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@network(CONVOLUTIONS, (1, 3, 13, 11))
class DepthwiseConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.b = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.c = nn.Conv2d(16, 16, 5, stride=2, padding=2, groups=16, bias=False)
        self.d = nn.Conv2d(16, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.d(torch.relu(self.c(torch.relu(self.b(torch.relu(self.a(x)))))))


@network(CONVOLUTIONS, (1, 8, 5, 6))
class TransposedConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.ConvTranspose2d(8, 12, 3, stride=2, padding=1, output_padding=1)
        self.b = nn.ConvTranspose2d(12, 8, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@network(CONVOLUTIONS, (1, 8, 5, 6), axes={ATEN.conv_transpose2d.input: 0})
class TransposedWrongAxis(TransposedConvolution):
    """Weights quantized along the input channels: no kernel takes that."""


@network(CONVOLUTIONS, (1, 5, 9, 7))
class OddChannelsConvolution(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(5, 13, 3), nn.Conv2d(13, 7, 1), nn.Conv2d(7, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(self.a(x))))


@network(CONVOLUTIONS, (1, 6, 9, 7))
class OddDepthwise(nn.Module):
    """Six depthwise channels do not fill words."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Conv2d(6, 6, 3, padding=1, groups=6)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


@network(CONVOLUTIONS, (2, 8, 6, 6))
class Batch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.a(x))
        return self.b(y) + y

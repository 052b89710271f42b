"""U-Nets and other networks whose output is an image."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Convolution, batch norm, relu."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), nn.BatchNorm2d(outputs), nn.ReLU())


def separable(inputs: int, outputs: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    depthwise = nn.Conv2d(inputs, inputs, 3, stride, dilation, dilation, groups=inputs)
    return nn.Sequential(depthwise, nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs), nn.ReLU())


class UNet(nn.Module):
    """Max pools down, transposed convolutions up, skips joined."""

    def __init__(self, channels: int = 8, classes: int = 4) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            block(3, channels),
            block(channels, 2 * channels),
            block(2 * channels, 4 * channels),
        )
        self.up_b, self.up_a = (nn.ConvTranspose2d(n * channels, n // 2 * channels, 2, 2) for n in (4, 2))
        self.join_b, self.join_a = block(4 * channels, 2 * channels), block(2 * channels, channels)
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        b = self.join_b(torch.cat([b, self.up_b(c)], 1))
        return self.head(self.join_a(torch.cat([a, self.up_a(b)], 1)))  # type: ignore[no-any-return]


class UNetBilinear(nn.Module):
    """Strided convolutions down, bilinear upsampling, skips added."""

    def __init__(self, channels: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            block(3, channels),
            block(channels, channels, 2),
            block(channels, channels, 2),
        )
        self.join_b, self.join_a = block(channels, channels), block(channels, channels)
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(a)
        b = self.join_b(b + F.interpolate(self.c(b), scale_factor=2.0, mode="bilinear"))
        return self.head(self.join_a(a + F.interpolate(b, scale_factor=2.0, mode="bilinear")))  # type: ignore[no-any-return]


class AttentionUNet(nn.Module):
    """One scale; the skip is weighted by a gate of one channel."""

    def __init__(self, channels: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.a, self.b = block(3, channels), block(channels, channels, 2)
        self.up = nn.ConvTranspose2d(channels, channels, 2, 2)
        self.from_up, self.from_skip, self.gate = (nn.Conv2d(channels, o, 1) for o in (8, 8, 8))
        self.psi = nn.Conv2d(8, 1, 1)
        self.head = nn.Conv2d(2 * channels, classes, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        up = self.up(self.b(a))
        gate = torch.sigmoid(self.psi(torch.relu(self.from_up(up) + self.from_skip(a))))
        return self.head(torch.cat([a * gate, up], 1))  # type: ignore[no-any-return]


class ENet(nn.Module):
    """Downsampling by a convolution beside a pool; asymmetric and dilated bottlenecks."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 13, 3, 2, 1)
        self.norm = nn.Sequential(nn.BatchNorm2d(16), nn.PReLU(16))
        self.asymmetric = nn.Sequential(
            nn.Conv2d(16, 16, (5, 1), padding=(2, 0)), nn.Conv2d(16, 16, (1, 5), padding=(0, 2))
        )
        self.dilated = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 2, 2), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, classes, 3, 2, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(torch.cat([self.first(x), F.max_pool2d(x, 2)], 1))
        x = x + self.asymmetric(x)
        return self.up(x + self.dilated(x))  # type: ignore[no-any-return]


class FastSCNN(nn.Module):
    """A detailed and a deep branch; pools of several sizes joined."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.detail = nn.Sequential(block(3, 16, 2), separable(16, 24, 2))
        self.deep = nn.Sequential(separable(24, 32, 2), separable(32, 32))
        self.pools = nn.ModuleList(nn.Conv2d(32, 8, 1) for _ in range(3))
        self.narrow, self.side = nn.Conv2d(56, 24, 1), nn.Conv2d(24, 24, 1)
        self.head = nn.Conv2d(24, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        detail = self.detail(x)
        deep = self.deep(detail)
        size = deep.shape[-2:]
        parts = [
            F.interpolate(
                torch.relu(conv(F.adaptive_avg_pool2d(deep, n))), size, mode="bilinear", align_corners=True
            )
            for conv, n in zip(self.pools, (1, 2, 4), strict=True)
        ]
        deep = self.narrow(torch.cat([deep, *parts], 1))
        joined = torch.relu(
            self.side(detail) + F.interpolate(deep, scale_factor=2.0, mode="bilinear", align_corners=True)
        )
        return self.head(joined)  # type: ignore[no-any-return]


class BiSeNet(nn.Module):
    """Attention by a global mean, on the context and on what both paths join to."""

    def __init__(self, channels: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.spatial = nn.Sequential(block(3, channels, 2), block(channels, channels, 2))
        self.context = nn.Sequential(block(3, channels, 4), block(channels, channels, 2))
        self.refine, self.join = nn.Conv2d(channels, channels, 1), block(2 * channels, channels)
        self.fusion = nn.Sequential(
            nn.Conv2d(channels, 8, 1), nn.ReLU(), nn.Conv2d(8, channels, 1), nn.Sigmoid()
        )
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        context = self.context(x)
        context = context * torch.sigmoid(self.refine(context.mean((2, 3), keepdim=True)))
        joined = self.join(torch.cat([self.spatial(x), F.interpolate(context, scale_factor=2.0)], 1))
        joined = joined + joined * self.fusion(F.adaptive_avg_pool2d(joined, 1))
        return F.interpolate(self.head(joined), scale_factor=4.0, mode="bilinear")


class DeepLab(nn.Module):
    """Separable convolutions of several dilations and a pooled branch."""

    def __init__(self, channels: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.body = nn.Sequential(block(3, channels, 2), separable(channels, channels, 2))
        self.branches = nn.ModuleList(
            [nn.Conv2d(channels, 8, 1), *(separable(channels, 8, 1, d) for d in (2, 4))]
        )
        self.pooled, self.narrow = nn.Conv2d(channels, 8, 1), block(32, 16)
        self.head = nn.Conv2d(16, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        pooled = self.pooled(F.adaptive_avg_pool2d(x, 1)).expand(-1, -1, *x.shape[-2:])
        x = self.head(self.narrow(torch.cat([*(branch(x) for branch in self.branches), pooled], 1)))
        return F.interpolate(x, scale_factor=4.0, mode="bilinear").argmax(1)


class Generator(nn.Module):
    """An image from noise: transposed convolutions, tanh."""

    def __init__(self, noise: int = 32, channels: int = 16) -> None:
        super().__init__()
        sizes = ((noise, 2 * channels, 1, 0), (2 * channels, channels, 2, 1))
        layers: list[nn.Module] = []
        for inputs, outputs, stride, padding in sizes:
            layers += [
                nn.ConvTranspose2d(inputs, outputs, 4, stride, padding),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]
        self.body = nn.Sequential(*layers, nn.ConvTranspose2d(channels, 4, 4, 2, 1), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)  # type: ignore[no-any-return]


class DepthNet(nn.Module):
    """Depth: an encoder with hardswish, nearest upsampling, one channel through a sigmoid."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, channels, 3, 2, 1), nn.Hardswish())
        self.b = nn.Sequential(separable(channels, 24, 2), nn.Conv2d(24, 24, 1), nn.Hardswish())
        self.up, self.head = separable(24 + channels, channels), nn.Conv2d(channels, 1, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        up = self.up(torch.cat([F.interpolate(self.b(a), scale_factor=2.0), a], 1))
        return torch.sigmoid(self.head(up)) * 10 + 0.1


class LinkNet(nn.Module):
    """The decoder's scales are added to the encoder's."""

    def __init__(self, channels: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            block(3, channels, 2),
            block(channels, 2 * channels, 2),
            block(2 * channels, 2 * channels, 2),
        )
        self.up_b = nn.ConvTranspose2d(2 * channels, 2 * channels, 2, 2)
        self.up_a = nn.ConvTranspose2d(2 * channels, channels, 2, 2)
        self.head = nn.ConvTranspose2d(channels, classes, 2, 2)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(a)
        return self.head(a + self.up_a(b + self.up_b(self.c(b))))  # type: ignore[no-any-return]


class ERFNet(nn.Module):
    """Convolutions of one dim after the other, dilated, with a residual."""

    def __init__(self, channels: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.stem = block(3, channels, 2)
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, (3, 1), padding=(1, 0)), nn.ReLU(),
            nn.Conv2d(channels, channels, (1, 3), padding=(0, 1)), nn.ReLU(),
            nn.Conv2d(channels, channels, (3, 1), padding=(2, 0), dilation=(2, 1)), nn.ReLU(),
            nn.Conv2d(channels, channels, (1, 3), padding=(0, 2), dilation=(1, 2)),
        )  # fmt: skip
        self.head = nn.ConvTranspose2d(channels, classes, 3, 2, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(torch.relu(x + self.body(x)))  # type: ignore[no-any-return]


class PSPNet(nn.Module):
    """Pools of several sizes, enlarged and joined with what they were made of."""

    def __init__(self, channels: int = 24, classes: int = 4) -> None:
        super().__init__()
        self.body = nn.Sequential(block(3, channels, 2), block(channels, channels, 2))
        self.sides = nn.ModuleList(nn.Conv2d(channels, 8, 1) for _ in range(2))
        self.head = nn.Conv2d(channels + 16, classes, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        parts = [
            F.interpolate(side(F.avg_pool2d(x, size)), scale_factor=float(size), mode="bilinear")
            for side, size in zip(self.sides, (2, 4), strict=True)
        ]
        return self.head(torch.cat([x, *parts], 1))  # type: ignore[no-any-return]


class UNetPlusPlus(nn.Module):
    """Nodes between the two sides of a U, each joined with all before it."""

    def __init__(self, channels: int = 8, classes: int = 4) -> None:
        super().__init__()
        self.a, self.b, self.c = block(3, channels), block(channels, channels), block(channels, channels)
        self.a1, self.b1, self.a2 = (
            block(2 * channels, channels),
            block(2 * channels, channels),
            block(3 * channels, channels),
        )
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        a1 = self.a1(torch.cat([a, F.interpolate(b, scale_factor=2.0)], 1))
        b1 = self.b1(torch.cat([b, F.interpolate(c, scale_factor=2.0)], 1))
        return self.head(self.a2(torch.cat([a, a1, F.interpolate(b1, scale_factor=2.0)], 1)))  # type: ignore[no-any-return]


class HRNet(nn.Module):
    """Two scales side by side, each added to the other."""

    def __init__(self, channels: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.stem, self.split = block(3, channels, 2), block(channels, 2 * channels, 2)
        self.high, self.low = block(channels, channels), block(2 * channels, 2 * channels)
        self.up, self.down = nn.Conv2d(2 * channels, channels, 1), nn.Conv2d(channels, 2 * channels, 3, 2, 1)
        self.head = nn.Conv2d(3 * channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        high = self.stem(x)
        low = self.low(self.split(high))
        high = self.high(high)
        joined = torch.relu(high + F.interpolate(self.up(low), scale_factor=2.0))
        low = torch.relu(low + self.down(high))
        return self.head(torch.cat([joined, F.interpolate(low, scale_factor=2.0)], 1))  # type: ignore[no-any-return]

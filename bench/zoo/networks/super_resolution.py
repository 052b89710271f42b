"""Networks that enlarge an image."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups)


class SRCNN(nn.Module):
    """Bicubic's place is taken by a nearest upsampling; then three convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = conv(3, 16, 9), conv(16, 8, 1), conv(8, 3, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.interpolate(x, scale_factor=2.0)
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))  # type: ignore[no-any-return]


class ESPCN(nn.Module):
    """Convolutions with tanh at low resolution, then a pixel shuffle."""

    def __init__(self, scale: int = 2) -> None:
        super().__init__()
        self.a, self.b, self.c = conv(3, 32, 5), conv(32, 16), conv(16, 4 * scale**2)
        self.shuffle = nn.PixelShuffle(scale)

    def forward(self, x: Tensor) -> Tensor:
        return self.shuffle(self.c(torch.tanh(self.b(torch.tanh(self.a(x))))))  # type: ignore[no-any-return]


class FSRCNN(nn.Module):
    """PReLU between narrow convolutions, a transposed convolution at the end."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(3, 24, 5), (24, 8, 1), (8, 8, 3), (8, 8, 3), (8, 24, 1)]
        self.body = nn.Sequential(*(layer for i, o, k in sizes for layer in (conv(i, o, k), nn.PReLU(o))))
        self.up = nn.ConvTranspose2d(24, 4, 4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.up(self.body(x))  # type: ignore[no-any-return]


class ResidualBlock(nn.Module):
    """Two convolutions; the result is scaled before it is added."""

    def __init__(self, channels: int, scale: float) -> None:
        super().__init__()
        self.a, self.b, self.scale = conv(channels, channels), conv(channels, channels), scale

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.scale * self.b(torch.relu(self.a(x)))
        return found


class EDSR(nn.Module):
    """Residual blocks without norms and a long skip."""

    def __init__(self, channels: int = 16, blocks: int = 3) -> None:
        super().__init__()
        self.head = conv(3, channels)
        self.body = nn.Sequential(
            *(ResidualBlock(channels, 0.1) for _ in range(blocks)), conv(channels, channels)
        )
        self.tail = nn.Sequential(conv(channels, 4 * channels), nn.PixelShuffle(2), conv(channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        return self.tail(x + self.body(x))  # type: ignore[no-any-return]


class CARN(nn.Module):
    """Residual blocks whose results are all concatenated and narrowed again."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.head = conv(3, channels)
        self.blocks = nn.ModuleList(ResidualBlock(channels, 1.0) for _ in range(3))
        self.narrow = nn.ModuleList(conv(channels * (i + 2), channels, 1) for i in range(3))
        self.tail = nn.Sequential(conv(channels, 4 * channels), nn.PixelShuffle(2), conv(channels, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        held = [x]
        for block, narrow in zip(self.blocks, self.narrow, strict=True):
            held.append(block(x))
            x = narrow(torch.cat(held, 1))
        return self.tail(x)  # type: ignore[no-any-return]


class IMDN(nn.Module):
    """Distillation: each step keeps a quarter of the channels and works on the rest; channel attention."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        keep = channels // 4
        self.head = conv(3, channels)
        self.steps = nn.ModuleList(
            [conv(channels, channels), conv(channels - keep, channels), conv(channels - keep, keep)]
        )
        self.keep = keep
        self.attention = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), conv(3 * keep, 8, 1), nn.ReLU(), conv(8, 3 * keep, 1), nn.Sigmoid()
        )
        self.tail = nn.Sequential(conv(3 * keep, 16), nn.PixelShuffle(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        kept = []
        for step in self.steps[:-1]:
            part, x = torch.split(F.leaky_relu(step(x), 0.05), (self.keep, 4 * self.keep - self.keep), 1)
            kept.append(part)
        joined = torch.cat([*kept, self.steps[-1](x)], 1)
        return self.tail(joined * self.attention(joined))  # type: ignore[no-any-return]


class ABPN(nn.Module):
    """Plain convolutions; the image itself, repeated, is added before the pixel shuffle and the result clipped."""

    def __init__(self, channels: int = 28) -> None:
        super().__init__()
        layers = [conv(3, channels), nn.ReLU()]
        for _ in range(3):
            layers += [conv(channels, channels), nn.ReLU()]
        self.body = nn.Sequential(*layers, conv(channels, 12))

    def forward(self, x: Tensor) -> Tensor:
        repeated = torch.cat([x] * 4, 1)
        return F.pixel_shuffle(self.body(x) + repeated, 2).clamp(0.0, 1.0)


class DnCNN(nn.Module):
    """Removes noise: convolutions with batch norm; the result is taken from the image."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv(3, channels), nn.ReLU()]
        for _ in range(3):
            layers += [conv(channels, channels), nn.BatchNorm2d(channels), nn.ReLU()]
        self.body = nn.Sequential(*layers, conv(channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        return x - self.body(x)  # type: ignore[no-any-return]


class StyleTransfer(nn.Module):
    """Reflected borders, instance norm, nearest upsampling."""

    def __init__(self) -> None:
        super().__init__()

        def block(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
            norm = nn.InstanceNorm2d(outputs, affine=True)
            return [
                nn.ReflectionPad2d(kernel // 2),
                nn.Conv2d(inputs, outputs, kernel, stride),
                norm,
                nn.ReLU(),
            ]

        self.down = nn.Sequential(*block(3, 8, 9), *block(8, 16, 3, 2))
        self.body = nn.Sequential(*block(16, 16, 3))
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2), *block(16, 8, 3), nn.ReflectionPad2d(4), nn.Conv2d(8, 3, 9)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(x)
        return self.up(x + self.body(x))  # type: ignore[no-any-return]


class VDSR(nn.Module):
    """Enlarged first; many convolutions find what is missing."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv(3, channels), nn.ReLU()]
        for _ in range(4):
            layers += [conv(channels, channels), nn.ReLU()]
        self.body = nn.Sequential(*layers, conv(channels, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = F.interpolate(x, scale_factor=2.0, mode="bilinear")
        return x + self.body(x)  # type: ignore[no-any-return]


class SRResNet(nn.Module):
    """Residual blocks with batch norm and PReLU, two pixel shuffles."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.head, self.act = conv(3, channels, 9), nn.PReLU()
        self.body = nn.Sequential(
            conv(channels, channels),
            nn.BatchNorm2d(channels),
            nn.PReLU(),
            conv(channels, channels),
            nn.BatchNorm2d(channels),
        )
        up = [layer for _ in range(2) for layer in (conv(channels, 4 * channels), nn.PixelShuffle(2))]
        self.tail = nn.Sequential(*up, conv(channels, 3, 9))

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.head(x))
        return self.tail(x + self.body(x))  # type: ignore[no-any-return]


class RCAN(nn.Module):
    """Residual blocks with attention over channels."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.head = conv(3, channels)
        self.body = nn.Sequential(conv(channels, channels), nn.ReLU(), conv(channels, channels))
        self.attention = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), conv(channels, 4, 1), nn.ReLU(), conv(4, channels, 1), nn.Sigmoid()
        )
        self.tail = nn.Sequential(conv(channels, 12), nn.PixelShuffle(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        y = self.body(x)
        return self.tail(x + y * self.attention(y))  # type: ignore[no-any-return]


class LapSRN(nn.Module):
    """A transposed convolution enlarges features and, apart from them, the image."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv(3, channels), nn.LeakyReLU(0.2), conv(channels, channels), nn.LeakyReLU(0.2)
        )
        self.up, self.image = (
            nn.ConvTranspose2d(channels, channels, 4, 2, 1),
            nn.ConvTranspose2d(3, 3, 4, 2, 1),
        )
        self.tail = conv(channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.image(x) + self.tail(self.up(self.body(x)))  # type: ignore[no-any-return]

"""Keyword spotting and other work on sound: spectrograms as images, or one dim in time."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn


def norm_relu(channels: int, dims: int = 2) -> list[nn.Module]:
    return [(nn.BatchNorm1d, nn.BatchNorm2d)[dims - 1](channels), nn.ReLU()]


class DSCNN(nn.Module):
    """Depthwise separable convolutions over a spectrogram."""

    def __init__(self, channels: int = 32, words: int = 12) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, channels, (10, 4), 2, (5, 1)), *norm_relu(channels)]
        for _ in range(3):
            layers += [nn.Conv2d(channels, channels, 3, 1, 1, groups=channels), *norm_relu(channels)]
            layers += [nn.Conv2d(channels, channels, 1), *norm_relu(channels)]
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(channels, words)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


class BroadcastedBlock(nn.Module):
    """A frequency branch, and a temporal one over the mean of all frequencies that is added to every row."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.frequency = nn.Sequential(
            nn.Conv2d(channels, channels, (3, 1), 1, (1, 0), groups=channels), nn.BatchNorm2d(channels)
        )
        self.time = nn.Sequential(
            nn.Conv2d(channels, channels, (1, 3), 1, (0, 1), groups=channels), nn.BatchNorm2d(channels), nn.SiLU(),
            nn.Conv2d(channels, channels, 1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        wide = self.frequency(x)
        return torch.relu(x + wide + self.time(wide.mean(2, keepdim=True)))


class BCResNet(nn.Module):
    """Broadcasted residual learning."""

    def __init__(self, channels: int = 16, words: int = 12) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Conv2d(1, channels, 5, (2, 1), 2), *norm_relu(channels))
        self.blocks = nn.Sequential(BroadcastedBlock(channels), BroadcastedBlock(channels))
        self.tail = nn.Conv2d(channels, words, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.tail(self.blocks(self.head(x)).mean((2, 3), keepdim=True)).flatten(1)  # type: ignore[no-any-return]


class TCBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(inputs, outputs, (1, 9), (1, 2), (0, 4)), *norm_relu(outputs))
        self.b = nn.Sequential(nn.Conv2d(outputs, outputs, (1, 9), 1, (0, 4)), nn.BatchNorm2d(outputs))
        self.skip = nn.Sequential(nn.Conv2d(inputs, outputs, 1, (1, 2)), *norm_relu(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.b(self.a(x)) + self.skip(x))


class TCResNet(nn.Module):
    """Temporal convolutions: frequencies are channels, time is the width."""

    def __init__(self, frequencies: int = 40, words: int = 12) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(frequencies, 16, (1, 3), 1, (0, 1)),
            TCBlock(16, 24),
            TCBlock(24, 32),
            nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Conv2d(32, words, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x)).flatten(1)  # type: ignore[no-any-return]


class MatchboxNet(nn.Module):
    """Separable convolutions in one dim, with residual connections."""

    def __init__(self, frequencies: int = 40, channels: int = 32, words: int = 12) -> None:
        super().__init__()
        self.head = nn.Sequential(*self.separable(frequencies, channels, 11, 2), nn.ReLU())
        self.a = nn.Sequential(
            *self.separable(channels, channels, 13), nn.ReLU(), *self.separable(channels, channels, 13)
        )
        self.skip = nn.Sequential(nn.Conv1d(channels, channels, 1), nn.BatchNorm1d(channels))
        self.tail = nn.Conv1d(channels, words, 1)

    @staticmethod
    def separable(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[nn.Module]:
        depthwise = nn.Conv1d(inputs, inputs, kernel, stride, kernel // 2, groups=inputs)
        return [depthwise, nn.Conv1d(inputs, outputs, 1), nn.BatchNorm1d(outputs)]

    def forward(self, x: Tensor) -> Tensor:
        x = self.head(x)
        return self.tail(torch.relu(self.a(x) + self.skip(x))).mean(-1)  # type: ignore[no-any-return]


class M5(nn.Module):
    """Convolutions over the raw wave."""

    def __init__(self, channels: int = 16, words: int = 12) -> None:
        super().__init__()
        sizes = ((1, channels, 40, 8), (channels, channels, 3, 1), (channels, 2 * channels, 3, 1))
        layers: list[nn.Module] = []
        for i, o, k, s in sizes:
            layers += [nn.Conv1d(i, o, k, s), *norm_relu(o, 1), nn.MaxPool1d(4)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(2 * channels, words)

    def forward(self, x: Tensor) -> Tensor:
        return torch.log_softmax(self.head(self.body(x).mean(-1)), -1)


class ConvTasNet(nn.Module):
    """Separates speakers: an encoder over the wave, masks by dilated convolutions, a decoder."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.encoder = nn.Conv1d(1, channels, 16, 8, bias=False)
        self.norm = nn.GroupNorm(1, channels)
        blocks: list[nn.Module] = []
        for dilation in (1, 2, 4):
            blocks += [
                nn.Conv1d(channels, channels, 1),
                nn.PReLU(),
                nn.GroupNorm(1, channels),
                nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation, groups=channels),
            ]
        self.masks = nn.Sequential(*blocks, nn.PReLU(), nn.Conv1d(channels, channels, 1), nn.Sigmoid())
        self.decoder = nn.ConvTranspose1d(channels, 1, 16, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(x)
        return self.decoder(x * self.masks(self.norm(x)))  # type: ignore[no-any-return]


class Autoencoder(nn.Module):
    """Anomalies in machine sounds: linears down to eight values and up again."""

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        sizes = (size, 32, 32, 8, 32, 32)
        layers: list[nn.Module] = []
        for i, o in pairwise(sizes):
            layers += [nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Linear(32, size))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)  # type: ignore[no-any-return]


class Conformer(nn.Module):
    """One block: half feed-forwards around attention and a gated convolution."""

    def __init__(self, size: int = 32, heads: int = 2) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(5))
        self.first, self.last = self.feed(size), self.feed(size)
        self.attention = nn.MultiheadAttention(size, heads, batch_first=True)
        self.wide = nn.Conv1d(size, 2 * size, 1)
        self.depthwise = nn.Conv1d(size, size, 7, padding=3, groups=size)
        self.batch, self.out = nn.BatchNorm1d(size), nn.Conv1d(size, size, 1)

    @staticmethod
    def feed(size: int) -> nn.Module:
        return nn.Sequential(nn.Linear(size, 2 * size), nn.SiLU(), nn.Linear(2 * size, size))

    def forward(self, x: Tensor) -> Tensor:
        x = x + 0.5 * self.first(self.norms[0](x))
        y = self.norms[1](x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        y = nn.functional.glu(self.wide(self.norms[2](x).transpose(1, 2)), 1)
        x = x + self.out(nn.functional.silu(self.batch(self.depthwise(y)))).transpose(1, 2)
        return self.norms[4](x + 0.5 * self.last(self.norms[3](x)))  # type: ignore[no-any-return]


class CNNTrad(nn.Module):
    """Two large convolutions over a spectrogram, a pool, linears."""

    def __init__(self, words: int = 12) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 16, (20, 8)), nn.Conv2d(16, 16, (10, 4))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(832, 32), nn.ReLU(), nn.Linear(32, words))

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.a(x)), (1, 2))
        return self.head(torch.relu(self.b(x)))  # type: ignore[no-any-return]


class TCN(nn.Module):
    """Causal dilated convolutions in one dim: zeros are put in front only."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(channels, channels, 3, dilation=d) for d in (1, 2, 4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + torch.relu(layer(nn.functional.pad(x, (2 * layer.dilation[0], 0))))
        return x


class GatedCNN(nn.Module):
    """WaveNet's gate over frames: tanh times sigmoid, skips added up."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 1)
        self.filters, self.gates, self.skips = (
            nn.ModuleList(
                nn.Conv2d(channels, channels, (1, 3), padding=(0, d), dilation=(1, d)) for d in (1, 2)
            )
            for _ in range(3)
        )
        self.head = nn.Conv2d(channels, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        total = torch.zeros_like(x)
        for one, two, skip in zip(self.filters, self.gates, self.skips, strict=True):
            y = torch.tanh(one(x)) * torch.sigmoid(two(x))
            total = total + skip(y)
            x = x + y
        return self.head(torch.relu(total))  # type: ignore[no-any-return]

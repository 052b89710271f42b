"""A network of ResNet-50's shape: bottlenecks of 1x1, 3x3 and 1x1 convolutions in four stages."""

from __future__ import annotations

import torch
from torch import Tensor, nn

EXPANSION = 4


class Bottleneck(nn.Module):
    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        out = width * EXPANSION
        self.reduce = nn.Conv2d(channels, width, 1)
        self.conv = nn.Conv2d(width, width, 3, stride, 1)
        self.expand = nn.Conv2d(width, out, 1)
        self.project = nn.Conv2d(channels, out, 1, stride) if stride > 1 or channels != out else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.expand(torch.relu(self.conv(torch.relu(self.reduce(x)))))
        return torch.relu(y + (x if self.project is None else self.project(x)))


class ResNet(nn.Module):
    """``blocks`` per stage and the ``width`` of the first; (3, 4, 6, 3) and 64 are ResNet-50."""

    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 7, 2, 3)
        self.pool = nn.MaxPool2d(3, 2, 1)
        layers, channels = [], width
        for stage, count in enumerate(blocks):
            for block in range(count):
                layers.append(Bottleneck(channels, width << stage, 2 if stage and not block else 1))
                channels = (width << stage) * EXPANSION
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(self.pool(torch.relu(self.stem(x))))
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))

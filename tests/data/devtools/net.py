"""The network of the files here: their stack traces name these lines."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(channels, channels, 1)
        self.wide = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.narrow(x))
        y = self.wide(y)
        return x + y


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.first = Block(8)
        self.second = Block(8)
        self.head = nn.Linear(8, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = self.second(self.first(x))
        x = nn.functional.hardtanh(x, -0.75, 0.75)
        x = torch.relu(x.mean((2, 3)))
        return self.head(x)

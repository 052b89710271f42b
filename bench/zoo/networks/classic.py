"""Small classics of many fields: images, points, tables, time series."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LeNet5(nn.Module):
    """Tanh and average pools."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.body = nn.Sequential(
            nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(torch.tanh(self.a(x)), 2)
        return self.body(F.avg_pool2d(torch.tanh(self.b(x)), 2).flatten(1))  # type: ignore[no-any-return]


class NetworkInNetwork(nn.Module):
    """Convolutions of one pixel behind each larger one; a global pool gives the classes."""

    def __init__(self, classes: int = 12) -> None:
        super().__init__()

        def block(inputs: int, outputs: int, kernel: int) -> list[nn.Module]:
            first = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
            return [first, nn.ReLU(), nn.Conv2d(outputs, outputs, 1), nn.ReLU()]

        layers = [
            *block(3, 32, 5),
            nn.MaxPool2d(3, 2, 1),
            *block(32, 32, 3),
            nn.AvgPool2d(3, 2, 1),
            *block(32, classes, 3),
        ]
        self.body = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(self.body(x), 1).flatten(1)


class SENet(nn.Module):
    """A residual block whose channels are weighted by what a global mean says of them."""

    def __init__(self, channels: int = 32, classes: int = 12) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, 2, 1), nn.BatchNorm2d(channels), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(channels, channels, 3, 1, 1), nn.BatchNorm2d(channels))
        self.squeeze, self.excite = nn.Linear(channels, 8), nn.Linear(8, channels)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.body(x)
        weights = torch.sigmoid(self.excite(torch.relu(self.squeeze(y.mean((2, 3))))))
        x = torch.relu(x + y * weights[:, :, None, None])
        return self.head(x.mean((2, 3)))  # type: ignore[no-any-return]


class Discriminator(nn.Module):
    """Strided convolutions with leaky relu down to one number."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, channels, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(channels, 2 * channels, 4, 2, 1),
            nn.BatchNorm2d(2 * channels),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * channels, 1, 8),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(self.body(x)).flatten(1)


class VAE(nn.Module):
    """An encoder to means and variances, and a decoder of the means."""

    def __init__(self, size: int = 64, hidden: int = 32, latent: int = 8) -> None:
        super().__init__()
        self.encode, self.mean, self.variance = (
            nn.Linear(size, hidden),
            nn.Linear(hidden, latent),
            nn.Linear(hidden, latent),
        )
        self.decode = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, size), nn.Sigmoid()
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.relu(self.encode(x))
        mean = self.mean(x)
        return self.decode(mean), 1 + self.variance(x) - mean.pow(2) - self.variance(x).exp()


class PointNet(nn.Module):
    """The same layers for every point, and the largest of each feature."""

    def __init__(self, classes: int = 8) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.head(self.body(x).amax(1)), -1)


class DLRM(nn.Module):
    """Recommendation: embeddings and a dense vector, and the products of all pairs."""

    def __init__(self, rows: int = 32, size: int = 16, features: int = 3) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, size) for _ in range(features))
        self.bottom = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, size), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(size + (features + 1) ** 2, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        y = self.bottom(dense)
        rows = torch.stack([y, *(table(ids[:, i]) for i, table in enumerate(self.tables))], 1)
        pairs = torch.bmm(rows, rows.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat([y, pairs], 1)))


class DeepFM(nn.Module):
    """Recommendation: squares of sums less sums of squares, beside a deep part."""

    def __init__(self, rows: int = 32, size: int = 8, features: int = 4) -> None:
        super().__init__()
        self.table, self.line = nn.Embedding(rows, size), nn.Embedding(rows, 1)
        self.deep = nn.Sequential(nn.Linear(size * features, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.table(ids)
        pairs = rows.sum(1).pow(2) - rows.pow(2).sum(1)
        return self.deep(rows.flatten(1)) + 0.5 * pairs.sum(1, keepdim=True) + self.line(ids).sum(1)  # type: ignore[no-any-return]


class FTTransformer(nn.Module):
    """Tables: a token for each number, attention, the first token's result."""

    def __init__(self, features: int = 7, size: int = 32) -> None:
        super().__init__()
        self.scale, self.offset = (
            nn.Parameter(torch.randn(features, size)),
            nn.Parameter(torch.randn(features, size)),
        )
        self.first = nn.Parameter(torch.randn(1, 1, size))
        self.layer = nn.TransformerEncoderLayer(
            size, 2, 2 * size, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.head = nn.Linear(size, 4)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x[:, :, None] * self.scale + self.offset
        tokens = torch.cat([self.first.expand(len(x), -1, -1), tokens], 1)
        return self.head(self.layer(tokens)[:, 0])  # type: ignore[no-any-return]


class InceptionTime(nn.Module):
    """Time series as images of one row: kernels of several lengths side by side."""

    def __init__(self, channels: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.narrow = nn.Conv2d(4, channels, 1)
        self.branches = nn.ModuleList(nn.Conv2d(channels, 8, (1, k), padding=(0, k // 2)) for k in (3, 9, 19))
        self.pooled, self.norm = nn.Conv2d(4, 8, 1), nn.BatchNorm2d(32)
        self.head = nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.narrow(x)
        parts = [branch(y) for branch in self.branches]
        joined = torch.cat([*parts, self.pooled(F.max_pool2d(x, (1, 3), 1, (0, 1)))], 1)
        return self.head(torch.relu(self.norm(joined)).mean((2, 3)))  # type: ignore[no-any-return]


class NBEATS(nn.Module):
    """Forecasts: each block takes what it explains out of the input."""

    def __init__(self, length: int = 32, horizon: int = 8) -> None:
        super().__init__()
        self.length = length
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(length, 32), nn.ReLU(), nn.Linear(32, length + horizon)) for _ in range(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor | None = None
        for block in self.blocks:
            y = block(x)
            x = x - y[:, : self.length]
            total = y[:, self.length :] if total is None else total + y[:, self.length :]
        assert total is not None
        return total


class Siamese(nn.Module):
    """Two images through the same layers, and the cosine of the results."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, channels, 3, 2, 1), nn.ReLU(), nn.Conv2d(channels, 32, 3, 2, 1), nn.ReLU()
        )
        self.head = nn.Linear(32, 16)

    def side(self, x: Tensor) -> Tensor:
        return F.normalize(self.head(self.body(x).mean((2, 3))), dim=-1)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return (self.side(a) * self.side(b)).sum(-1)


class DQN(nn.Module):
    """Values of actions: an advantage and a state's value."""

    def __init__(self, actions: int = 6) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten()
        )
        self.value, self.advantage = nn.Linear(512, 1), nn.Linear(512, actions)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        advantage = self.advantage(x)
        return self.value(x) + advantage - advantage.mean(1, keepdim=True)  # type: ignore[no-any-return]

"""Small backbones with the heads of detectors; boxes are decoded, never suppressed."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def conv(
    inputs: int, outputs: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: type = nn.ReLU
) -> nn.Sequential:
    """Convolution, batch norm, activation."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), act())


class Backbone(nn.Module):
    """Three scales: strides 4, 8 and 16 with 16, 24 and 32 channels."""

    def __init__(self, act: type = nn.ReLU) -> None:
        super().__init__()
        self.stem = conv(3, 16, 3, 2, act=act)
        self.a, self.b, self.c = (conv(i, o, 3, 2, act=act) for i, o in ((16, 16), (16, 24), (24, 32)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = self.a(self.stem(x))
        b = self.b(a)
        return a, b, self.c(b)


class YOLOv3(nn.Module):
    """Leaky relu; the coarse scale is enlarged and joined with the finer one; raw outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone(lambda: nn.LeakyReLU(0.1))  # type: ignore[arg-type]
        self.narrow = conv(32, 16, 1)
        self.heads = nn.ModuleList([nn.Conv2d(32, 24, 1), nn.Conv2d(40, 24, 1)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        _, b, c = self.backbone(x)
        return self.heads[0](c), self.heads[1](
            torch.cat([F.interpolate(self.narrow(c), scale_factor=2.0), b], 1)
        )


class YOLOv5(nn.Module):
    """SiLU, a pooling pyramid, boxes decoded with a sigmoid and anchors."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.backbone = Backbone(nn.SiLU)
        self.before, self.after = conv(32, 16, 1, act=nn.SiLU), conv(64, 32, 1, act=nn.SiLU)
        self.heads = nn.ModuleList(nn.Conv2d(i, 5 + classes, 1) for i in (24, 32))

    def pyramid(self, x: Tensor) -> Tensor:
        held = [self.before(x)]
        for _ in range(3):
            held.append(F.max_pool2d(held[-1], 5, 1, 2))
        found: Tensor = self.after(torch.cat(held, 1))
        return found

    def forward(self, x: Tensor) -> Tensor:
        _, b, c = self.backbone(x)
        found = []
        for feature, head, stride in ((b, self.heads[0], 8), (self.pyramid(c), self.heads[1], 16)):
            y = head(feature).flatten(2).transpose(1, 2).sigmoid()
            found.append(
                torch.cat([(y[..., :2] * 2 - 0.5) * stride, (y[..., 2:4] * 2) ** 2 * stride, y[..., 4:]], -1)
            )
        return torch.cat(found, 1)


class C2f(nn.Module):
    """Channels split; the second part goes through a bottleneck; all parts are joined."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.first, self.last = (
            conv(channels, channels, 1, act=nn.SiLU),
            conv(3 * half, channels, 1, act=nn.SiLU),
        )
        self.block = nn.Sequential(conv(half, half, act=nn.SiLU), conv(half, half, act=nn.SiLU))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.first(x).chunk(2, 1)
        found: Tensor = self.last(torch.cat([a, b, b + self.block(b)], 1))
        return found


class YOLOv8(nn.Module):
    """No anchors; a side of a box is the mean of a distribution."""

    def __init__(self, classes: int = 4, bins: int = 8) -> None:
        super().__init__()
        self.backbone, self.neck, self.bins = Backbone(nn.SiLU), C2f(32), bins
        self.box, self.cls = nn.Conv2d(32, 4 * bins, 1), nn.Conv2d(32, classes, 1)
        self.mean = nn.Conv2d(bins, 1, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        c = self.neck(self.backbone(x)[2])
        sides = self.box(c).flatten(2).view(len(x), 4, self.bins, -1).transpose(1, 2).softmax(1)
        return torch.cat([self.mean(sides).flatten(1, 2), self.cls(c).flatten(2).sigmoid()], 1)


class YOLOX(nn.Module):
    """Pixels moved to channels first; a decoupled head."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.stem, self.body = conv(12, 16, act=nn.SiLU), conv(16, 24, 3, 2, act=nn.SiLU)
        self.cls, self.box = conv(24, 16, act=nn.SiLU), conv(24, 16, act=nn.SiLU)
        self.heads = nn.ModuleList(nn.Conv2d(16, o, 1) for o in (classes, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[..., i::2, j::2] for j in (0, 1) for i in (0, 1)]
        x = self.body(self.stem(torch.cat(parts, 1)))
        a, b = self.cls(x), self.box(x)
        return torch.cat([self.heads[1](b), self.heads[2](b).sigmoid(), self.heads[0](a).sigmoid()], 1)


class SSDLite(nn.Module):
    """Depthwise separable heads on three scales; boxes and scores of all anchors in one row each."""

    def __init__(self, anchors: int = 2, classes: int = 3) -> None:
        super().__init__()
        self.backbone, self.classes = Backbone(nn.ReLU6), classes
        self.boxes = nn.ModuleList(self.head(i, 4 * anchors) for i in (24, 32))
        self.scores = nn.ModuleList(self.head(i, classes * anchors) for i in (24, 32))

    @staticmethod
    def head(inputs: int, outputs: int) -> nn.Module:
        return nn.Sequential(conv(inputs, inputs, groups=inputs, act=nn.ReLU6), nn.Conv2d(inputs, outputs, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.backbone(x)[1:]
        boxes = [
            h(f).permute(0, 2, 3, 1).reshape(len(x), -1, 4) for h, f in zip(self.boxes, features, strict=True)
        ]
        scores = [
            h(f).permute(0, 2, 3, 1).reshape(len(x), -1, self.classes)
            for h, f in zip(self.scores, features, strict=True)
        ]
        return torch.cat(boxes, 1), torch.cat(scores, 1).softmax(-1)


class CenterNet(nn.Module):
    """Transposed convolutions up to a heat map, whose maxima are kept."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.up = nn.Sequential(
            nn.ConvTranspose2d(32, 24, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(24, 16, 4, 2, 1), nn.ReLU()
        )
        self.heat, self.size = nn.Conv2d(16, classes, 1), nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.up(self.backbone(x)[2])
        heat = self.heat(x).sigmoid()
        return heat * (F.max_pool2d(heat, 3, 1, 1) == heat), self.size(x)


class FCOS(nn.Module):
    """A feature pyramid and one head for all scales, with group norm and an exponential."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.sides = nn.ModuleList(nn.Conv2d(i, 16, 1) for i in (24, 32))
        self.tower = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1), nn.GroupNorm(4, 16), nn.ReLU())
        self.cls, self.box = nn.Conv2d(16, classes, 3, 1, 1), nn.Conv2d(16, 4, 3, 1, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        b, c = (side(f) for side, f in zip(self.sides, self.backbone(x)[1:], strict=True))
        b = b + F.interpolate(c, scale_factor=2.0)
        towers = [self.tower(f) for f in (b, c)]
        return (*(self.cls(t) for t in towers), *(self.box(t).exp() for t in towers))


class BlazeFace(nn.Module):
    """Separable blocks whose skip is pooled and padded to more channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 5, 2, 2), nn.ReLU())
        self.a, self.b = self.block(16, 16, 1), self.block(16, 24, 2)
        self.head = nn.Conv2d(24, 8, 1)

    @staticmethod
    def block(inputs: int, outputs: int, stride: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inputs, inputs, 5, stride, 2, groups=inputs), nn.Conv2d(inputs, outputs, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.relu(self.a(x) + x)
        skip = F.pad(F.max_pool2d(x, 2), (0, 0, 0, 0, 0, 8))
        return self.head(torch.relu(self.b(x) + skip)).flatten(2)  # type: ignore[no-any-return]


class Hourglass(nn.Module):
    """Poses: down, up, and a skip at each scale."""

    def __init__(self, channels: int = 16, points: int = 8) -> None:
        super().__init__()
        self.stem = conv(3, channels, 7, 2)
        self.skips = nn.ModuleList(conv(channels, channels) for _ in range(2))
        self.down = nn.ModuleList(conv(channels, channels) for _ in range(2))
        self.head = nn.Conv2d(channels, points, 1)

    def level(self, x: Tensor, depth: int) -> Tensor:
        low = self.down[depth](F.max_pool2d(x, 2))
        if depth + 1 < len(self.down):
            low = self.level(low, depth + 1)
        found: Tensor = self.skips[depth](x) + F.interpolate(low, scale_factor=2.0)
        return found

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.level(self.stem(x), 0))  # type: ignore[no-any-return]


class MobileFaceNet(nn.Module):
    """PReLU bottlenecks, a depthwise convolution over the whole image, a vector of length one."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.PReLU(channels)
        )
        self.block = nn.Sequential(
            nn.Conv2d(channels, 2 * channels, 1), nn.PReLU(2 * channels),
            nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1, groups=2 * channels), nn.PReLU(2 * channels),
            nn.Conv2d(2 * channels, channels, 1),
        )  # fmt: skip
        self.whole = nn.Conv2d(channels, channels, 8, groups=channels)
        self.head = nn.Linear(channels, 32)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return F.normalize(self.head(self.whole(x + self.block(x)).flatten(1)))


class TinyYOLOv2(nn.Module):
    """One scale, pools between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for i, o in ((3, 16), (16, 24), (24, 32)):
            layers += [*conv(i, o, act=lambda: nn.LeakyReLU(0.1)), nn.MaxPool2d(2)]  # type: ignore[arg-type]
        self.body, self.head = nn.Sequential(*layers), nn.Conv2d(32, 24, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))  # type: ignore[no-any-return]


class EfficientDet(nn.Module):
    """Scales are joined with weights that are learned and sum up to one."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.backbone = Backbone(nn.SiLU)
        self.sides = nn.ModuleList(nn.Conv2d(i, channels, 1) for i in (24, 32))
        self.weights = nn.Parameter(torch.tensor([0.7, 1.3]))
        self.join, self.head = (
            conv(channels, channels, groups=channels, act=nn.SiLU),
            nn.Conv2d(channels, 8, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        b, c = (side(f) for side, f in zip(self.sides, self.backbone(x)[1:], strict=True))
        weights = torch.relu(self.weights)
        weights = weights / (weights.sum() + 1e-4)
        return self.head(self.join(weights[0] * b + weights[1] * F.interpolate(c, scale_factor=2.0)))  # type: ignore[no-any-return]


class DETR(nn.Module):
    """Features of an image as tokens; queries that look for objects in them."""

    def __init__(self, size: int = 32, queries: int = 4, classes: int = 4) -> None:
        super().__init__()
        self.backbone, self.queries = Backbone(), nn.Parameter(torch.randn(1, queries, size))
        self.attention = nn.MultiheadAttention(size, 2, batch_first=True)
        self.norm, self.feed = (
            nn.LayerNorm(size),
            nn.Sequential(nn.Linear(size, 64), nn.ReLU(), nn.Linear(64, size)),
        )
        self.cls, self.box = nn.Linear(size, classes), nn.Linear(size, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tokens = self.backbone(x)[2].flatten(2).transpose(1, 2)
        queries = self.queries.expand(len(x), -1, -1)
        y = self.norm(queries + self.attention(queries, tokens, tokens, need_weights=False)[0])
        y = y + self.feed(y)
        return self.cls(y), self.box(y).sigmoid()


class PFLD(nn.Module):
    """Points of a face from three scales, each pooled."""

    def __init__(self, points: int = 16) -> None:
        super().__init__()
        self.backbone, self.head = Backbone(nn.ReLU6), nn.Linear(72, points)

    def forward(self, x: Tensor) -> Tensor:
        pooled = [F.adaptive_avg_pool2d(f, 1).flatten(1) for f in self.backbone(x)]
        return self.head(torch.cat(pooled, 1))  # type: ignore[no-any-return]

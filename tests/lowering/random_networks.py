"""Networks drawn at random: every operator that is fused, and float ones between, in graphs with branches."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from .quantize import OPERATORS, quantize

Shape = tuple[int, int, int]  # C, H, W
#: A step: what it is made of, given the shape that it reads; None where it cannot read that.
Maker = Callable[[random.Random, Shape], nn.Module | None]
CHANNELS = (4, 5, 8, 12, 16)


def _conv(draw: random.Random, shape: Shape) -> nn.Module:
    size, dilation = draw.choice([(1, 1), (3, 1), (3, 2)])
    pad = (size - 1) * dilation // 2
    bias = draw.random() < 0.7
    return nn.Conv2d(shape[0], draw.choice(CHANNELS), size, draw.choice([1, 2]), pad, dilation, bias=bias)


class _Clone(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.clone()


class _Erf(nn.Module):
    """No kernel of the delegate: what reads it is another delegate."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.erf(x)


MAKERS: tuple[Maker, ...] = (
    _conv,
    lambda draw, shape: nn.Sequential(_conv(draw, shape), nn.ReLU()),
    lambda draw, shape: nn.Conv2d(shape[0], draw.choice(CHANNELS), 1),
    lambda draw, shape: (
        nn.Conv2d(shape[0], shape[0], 3, padding=1, groups=shape[0]) if shape[0] % 4 == 0 else None
    ),
    lambda draw, shape: nn.Conv2d(shape[0], 8, 3, groups=2, padding=1) if shape[0] % 8 == 0 else None,
    lambda draw, shape: nn.ConvTranspose2d(shape[0], 8, 2, 2) if shape[1] < 16 else None,
    lambda draw, shape: nn.PixelShuffle(2) if shape[0] % 4 == 0 else None,
    lambda draw, shape: nn.MaxPool2d(2) if min(shape[1:]) > 3 else None,
    lambda draw, shape: nn.AvgPool2d(2) if min(shape[1:]) > 3 else None,
    lambda draw, shape: draw.choice([nn.ReLU(), nn.Sigmoid(), nn.Hardswish(), nn.Softmax(1), nn.Tanh()]),
    lambda draw, shape: draw.choice([_Clone(), _Erf()]),
)


class RandomNetwork(nn.Module):
    """Steps that read one of the last three values, or add two of equal shape; perhaps a linear at the end."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        draw = random.Random(seed)
        torch.manual_seed(seed)
        self.example = torch.randn(1, draw.choice([3, 4, 8]), draw.choice([6, 7, 12]), draw.choice([6, 9]))
        self.steps = nn.ModuleList()
        self.reads: list[tuple[int, ...]] = []
        values = [self.example]
        while len(self.reads) < draw.randrange(5, 14):
            at = draw.randrange(max(0, len(values) - 3), len(values))
            twins = [
                other for other, value in enumerate(values) if value.shape == values[at].shape and other != at
            ]
            if twins and draw.random() < 0.25:
                step, reads = nn.Identity(), (at, draw.choice(twins))
            else:
                made = draw.choice(MAKERS)(draw, tuple(values[at].shape[1:]))
                if made is None:
                    continue
                step, reads = made, (at,)
            self.steps.append(step)
            self.reads.append(reads)
            values.append(self.step(len(self.reads) - 1, values))
        wide = values[-1].shape[1]
        self.head = nn.Linear(wide, 8) if wide % 4 == 0 and draw.random() < 0.5 else None

    def step(self, number: int, values: list[Tensor]) -> Tensor:
        first, *rest = (values[at] for at in self.reads[number])
        result: Tensor = self.steps[number](first)
        return result + rest[0] if rest else result

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for number in range(len(self.reads)):
            values.append(self.step(number, values))
        if self.head is None:
            return values[-1]
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(values[-1], 1), 1))


def random_program(seed: int) -> ExportedProgram:
    """The quantized program of a network; of some, a few kinds of operators stay float."""
    network = RandomNetwork(seed)
    left_out = random.Random(seed).sample(list(OPERATORS), 3) if seed % 4 == 3 else []
    return quantize(network, (network.example,), only=[op for op in OPERATORS if op not in left_out])

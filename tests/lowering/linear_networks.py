"""Networks of linears and matrix products."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .network import Networks, network
from .quantize import ATEN

LINEARS: Networks = {}


class Constant(nn.Module):
    """A module with a weight of its own for matrix products."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(shape) * 0.2)
        self.b = nn.Parameter(torch.randn(shape[-1]) * 0.2)


@network(LINEARS, (6, 16))
class ChainedLinears(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(16, 24), nn.Linear(24, 8, bias=False), nn.Linear(8, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.c(torch.relu(self.b(self.a(x))))


@network(LINEARS, (1, 16))
class ChainedGemvs(ChainedLinears):
    pass


@network(LINEARS, (5, 16), axes={ATEN.addmm.default: 0})
class Addmm(nn.Module):
    """The bias comes first; the weight is stored by output channel, as a linear's."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.randn(12, 16) * 0.2), nn.Parameter(torch.randn(12))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.b, x, self.w.t())


@network(LINEARS, (5, 16))
class AddmmByInput(Constant):
    """The weight is stored by input channel."""

    def __init__(self) -> None:
        super().__init__(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.b, x, self.w)


@network(LINEARS, (5, 12))
class SquareMm(Constant):
    """A square weight hides an exchange of its dims."""

    def __init__(self) -> None:
        super().__init__(12, 12)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.mm(x, self.w))


@network(LINEARS, (1, 5, 16))
class Bmm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(1, 16, 12) * 0.2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(x, self.w)


@network(LINEARS, (1, 7, 16))
class Linear3D(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 20), nn.Linear(20, 7)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@network(LINEARS, (1, 2, 3, 16))
class Linear4D(Linear3D):
    pass


@network(LINEARS, (3, 1, 16))
class LeadingRows(nn.Module):
    """Three rows, though the dim before the last is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


@network(LINEARS, (6, 18))
class OddChannelsLinear(nn.Module):
    """18 input channels do not fill words; 13 output channels need not."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(18, 16), nn.Linear(16, 13)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x))


@network(LINEARS, (6, 16), float_outputs=True)
class FloatHead(nn.Module):
    """The last linear has a float output."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 24), nn.Linear(24, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@network(LINEARS, (2, 3, 16), float_outputs=True)
class FloatHead3D(FloatHead):
    """A view on both sides of the product, which belong to it."""


@network(LINEARS, (1, 16), float_outputs=True)
class FloatMm(Constant):
    """A square weight, no bias."""

    def __init__(self) -> None:
        super().__init__(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mm(x, self.w)


@network(LINEARS, (6, 16), float_outputs=True)
class TwoHeads(nn.Module):
    """Two float results of one tensor; one goes on through float operators."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 8), nn.Linear(16, 4, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.a(x), self.b(x)


@network(LINEARS, (6, 16), float_outputs=True)
class OddFloatHead(nn.Module):
    """Ten outputs and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


@network(LINEARS, (1, 2, 1, 3, 16))
class LinearFiveDims(nn.Module):
    """More dims than the kernels take."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


@network(LINEARS, (6, 16), dynamic=True)
class DynamicLinears(nn.Module):
    """Scales of activations are made at run time, as XNNPACKQuantizer does with is_dynamic."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 24), nn.Linear(24, 12, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


@network(LINEARS, (2, 3, 16), dynamic=True)
class DynamicLinears3D(DynamicLinears):
    """A view on both sides of each product."""

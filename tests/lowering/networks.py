"""Small networks, each with something that a partitioner can get wrong; quantized with torch alone."""

from __future__ import annotations

from torch import Tensor
from torch.export import ExportedProgram

from .convolution_networks import CONVOLUTIONS
from .joined_networks import JOINED
from .linear_networks import LINEARS
from .network import Networks
from .quantize import quantize

NETWORKS: Networks = {**LINEARS, **CONVOLUTIONS, **JOINED}


def program(name: str) -> tuple[ExportedProgram, tuple[Tensor, ...]]:
    """The quantized program of a network, and example inputs."""
    module, inputs, options = NETWORKS[name]()
    return quantize(module, inputs, **options), inputs

"""Weights of 4 bits with a scale for each group of neighbours along K: found, and packed as a file stores them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from refsim.ops.base.int4 import QMAX, QMIN, packed
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import DEQUANTIZE_AFFINE, argument, calls, shape_of

_TRANSPOSES = ("aten.permute_copy.default", "aten.t_copy.default", "aten.transpose_copy.int")
PADDED_TO = 8  # elements of a row of a linear layer


@dataclass(frozen=True)
class Int4Weight:
    """int8 values [N, K] in [-8, 7] and float32 scales [N, groups]; ``name`` is the placeholder of the values."""

    name: str
    values: torch.Tensor
    scales: torch.Tensor
    nodes: tuple[fx.Node, ...]

    @property
    def group_size(self) -> int:
        return int(self.values.shape[1] // self.scales.shape[1])


def read_grouped(program: FxProgram, node: Any) -> tuple[Int4Weight, bool] | None:
    """The weight that ``node`` stands for, and whether it is transposed on the way; None for any other node."""
    passed: list[fx.Node] = []
    turned = False
    while calls(node, *_TRANSPOSES) and len(shape_of(node)) == 2:
        turned ^= tuple(shape_of(node)) != tuple(shape_of(node.args[0])) or _turns(node)
        passed.append(node)
        node = node.args[0]
    if not calls(node, DEQUANTIZE_AFFINE):
        return None
    block, dtype, low, high = (argument(node, at) for at in (1, 4, 5, 6))
    values, scales = (program.constant(argument(node, at)) for at in (0, 2))
    zero_points = argument(node, 3)
    if isinstance(zero_points, fx.Node):
        found = program.constant(zero_points)
        if found is None or found.any():
            return None
    elif zero_points is not None:
        return None
    if values is None or scales is None or (dtype, low, high) != (torch.int8, QMIN, QMAX):
        return None
    if values.dtype != torch.int8 or values.ndim != 2 or scales.ndim != 2 or len(block) != 2 or block[0] != 1:
        return None
    rows, k = values.shape
    if (
        scales.shape[0] != rows
        or k != scales.shape[1] * block[1]
        or int(values.min()) < QMIN
        or int(values.max()) > QMAX
    ):
        return None
    return Int4Weight(str(node.args[0]), values, scales.to(torch.float32), (*passed, node)), turned


def _turns(node: fx.Node) -> bool:
    """Whether a transposition of a square matrix exchanges its dims."""
    return not calls(node, "aten.permute_copy.default") or list(node.args[1]) == [1, 0]


def pack_values(program: FxProgram, weight: Int4Weight, pad: bool) -> fx.Node:
    """The bytes of the values, two to a byte; with ``pad`` K is rounded up to a multiple of 8 with zeros."""
    missing = -weight.values.shape[1] % PADDED_TO if pad else 0
    values = torch.nn.functional.pad(weight.values, (0, missing)).contiguous()
    return program.add_constant(f"{weight.name}_int4", torch.from_numpy(packed(values.cpu().numpy())))

"""Weights and biases of quantized operators: found behind nodes that only move elements, then packed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import DEQUANTIZE, DEQUANTIZE_PER_CHANNEL, calls, dtype_of, target_name
from refsim.partition.refusal import Refused

ALIGNMENT = 4
#: Operators that move elements: they act on values, scales and zero points alike.
MOVES = frozenset(
    f"aten.{name}"
    for name in (
        "permute_copy.default", "t_copy.default", "transpose_copy.int", "view_copy.default", "expand_copy.default",
        "squeeze_copy.dims", "squeeze_copy.dim", "unsqueeze_copy.default", "clone.default", "alias_copy.default",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Weight:
    """A quantized constant: int8 values, and a float32 scale for each of them, in an array of the same shape.

    ``name`` is the placeholder of the values.
    """

    name: str
    values: torch.Tensor
    scales: torch.Tensor
    nodes: tuple[fx.Node, ...]

    def moved(self, move: Callable[[torch.Tensor], torch.Tensor]) -> Weight:
        """The same after ``move``, a function that moves elements."""
        return Weight(self.name, move(self.values), move(self.scales), self.nodes)


def read_weight(program: FxProgram, node: fx.Node, anchor: fx.Node) -> Weight:
    """The weight that ``node`` stands for. Raises Refused, of ``anchor``, if it is none that a kernel takes."""
    if not program.is_constant(node):
        raise Refused("weight-not-constant", anchor, f"got {node}")
    moves: list[fx.Node] = []
    current = node
    while target_name(current) in MOVES:
        moves.append(current)
        current = current.args[0]
    if not calls(current, DEQUANTIZE, DEQUANTIZE_PER_CHANNEL):
        raise Refused("weight-float", anchor, f"got {current}")
    source = current.args[0]
    values = program.constant(source)
    if values is None or values.dtype != torch.int8:
        raise Refused("weight-float", anchor, f"{current} reads {dtype_of(source)}, not int8")
    scales, zero_points = (_per_element(program, current, position, values) for position in (1, 2))
    if zero_points.any():
        raise Refused("weight-zero-point", anchor, f"got {int(zero_points.abs().max())}")
    weight = Weight(str(source), values, scales.to(torch.float32), (*moves, current))
    for move in reversed(moves):
        weight = weight.moved(partial(moved_by, move))
    return weight


def moved_by(node: fx.Node, tensor: torch.Tensor) -> torch.Tensor:
    """What a node that moves elements makes of another tensor of its input's shape."""
    result: torch.Tensor = node.target(tensor, *node.args[1:], **node.kwargs)
    return result


def _per_element(program: FxProgram, node: fx.Node, position: int, values: torch.Tensor) -> torch.Tensor:
    """Scale (position 1) or zero point (2) of a dequantize, broadcast over the values."""
    given = node.args[position]
    if not isinstance(given, fx.Node):
        return torch.as_tensor(given).expand(values.shape)
    tensor = program.constant(given)
    assert tensor is not None
    shape = [1] * values.ndim
    if target_name(node) == DEQUANTIZE_PER_CHANNEL:
        axis: int = node.args[3]
        shape[axis] = tensor.numel()
    return tensor.reshape(shape).expand(values.shape)


def pack_rows(program: FxProgram, rows: Weight, kind: str, anchor: fx.Node) -> tuple[fx.Node, ...]:
    """Constants of a weight with one output channel per row: values, sums, scales.

    Rows are padded to a multiple of 4 elements, sums and scales to a multiple of 4 channels, with zeros.
    """
    return pack(program, rows.moved(lambda tensor: tensor), rows.values, kind, anchor)


def pack(
    program: FxProgram, rows: Weight, values: torch.Tensor, kind: str, anchor: fx.Node
) -> tuple[fx.Node, ...]:
    """Likewise, with ``values`` arranged for the kernel; ``rows``, with an output channel per row, gives the rest."""
    check_rows(rows, anchor)
    sums = rows.values.sum(dim=1, dtype=torch.int32)
    parts = {kind: values, "sums": sums, "scales": rows.scales[:, 0]}
    return tuple(
        program.add_constant(f"{rows.name}_{suffix}", padded(tensor)) for suffix, tensor in parts.items()
    )


def check_rows(rows: Weight, anchor: fx.Node) -> None:
    """Raises Refused unless there is one scale per output channel, which is what the kernels take."""
    if (rows.scales != rows.scales[:, :1]).any():
        raise Refused("weight-axis", anchor, f"{rows.name} is quantized along its input channels")


def read_bias(program: FxProgram, node: fx.Node | None, anchor: fx.Node) -> torch.Tensor | None:
    """The bias, one float32 per output channel."""
    if node is None:
        return None
    value = program.constant(node)
    if value is None or value.dtype != torch.float32:
        raise Refused("bias-not-constant", anchor, f"got {node} ({dtype_of(node)})")
    return value.reshape(-1)


def pack_bias(program: FxProgram, node: fx.Node | None, channels: int) -> fx.Node | None:
    """The bias as a constant, padded to a multiple of 4 channels with zeros."""
    if node is None:
        return None
    value = program.constant(node)
    assert value is not None
    return program.add_constant(f"{node.name}_bias", padded(value.reshape(-1).expand(channels)))


def padded(tensor: torch.Tensor, to: int = ALIGNMENT) -> torch.Tensor:
    """The last dim rounded up to a multiple of ``to`` with zeros; contiguous, without gradients."""
    missing = -tensor.shape[-1] % to
    return torch.nn.functional.pad(tensor.detach(), (0, missing)).contiguous()

"""choose_qparams, quantize, dequantize [-> view] -> linear, its weight of 4 bits in groups [-> view]: torchao's 8da4w.

The scales and zero points of the rows stay as they are; linear_dq8ca_q4gsw reads them, and the float activation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx

from refsim.ops.base import int4
from refsim.ops.base.registry import OPS
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import (
    DEQUANTIZE_AFFINE,
    GETITEM,
    QUANTIZE_AFFINE,
    VIEW_COPY,
    calls,
    only_user,
    shape_of,
    target_name,
)
from refsim.partition.patterns import linear
from refsim.partition.patterns._match import INT8_RANGE, Match, Output, Quantized, operator
from refsim.partition.patterns._weights import ALIGNMENT, MOVES, moved_by, pack_bias, padded, read_bias
from refsim.partition.refusal import Refused

ANCHORS = linear.ANCHORS
OPERATOR = "linear_dq8ca_q4gsw"
CHOOSE_QPARAMS_AFFINE = OPS["choose_qparams_affine"].serialized
_K_ALIGNMENT = 8


@dataclass(frozen=True)
class Rows:
    """An activation that is quantized row by row: ``source`` is the float tensor, ``scale`` and ``zp`` its rows'."""

    source: fx.Node
    scale: fx.Node
    zp: fx.Node
    nodes: tuple[fx.Node, ...]


@dataclass(frozen=True)
class Groups:
    """A weight of 4 bits: int8 ``values`` [N, K], float32 ``scales`` [N, groups]; ``names`` of both placeholders."""

    values: torch.Tensor
    scales: torch.Tensor
    names: tuple[str, str]
    nodes: tuple[fx.Node, ...]

    @property
    def group(self) -> int:
        return self.values.shape[1] // self.scales.shape[1]


def find(program: FxProgram, node: fx.Node) -> Match | None:
    product = linear.Product.of(node)
    rows = _rows(node, product.x)
    if rows is None:
        return None
    weight = _groups(program, node)
    bias = read_bias(program, product.bias, node)
    out, inner = weight.values.shape
    if bias is not None and bias.numel() not in (1, out):
        raise Refused("bias-not-constant", node, f"it has {bias.numel()} elements, need {out}")
    if inner % _K_ALIGNMENT or shape_of(rows.source)[-1] != inner:
        raise Refused("in-channels", node, f"got {inner}, need a multiple of {_K_ALIGNMENT}")
    if weight.group % 4:
        raise Refused("weight-axis", node, f"groups of {weight.group}, need a multiple of 4")
    if out % ALIGNMENT:
        raise Refused("out-channels", node, f"got {out}")
    shaped = _shaped(node, (*shape_of(rows.source)[:-1], out))
    if shaped is None:
        raise Refused("rows", node, f"{list(shape_of(rows.source))} becomes {list(shape_of(node))}")
    end = _end(node, shaped)
    nodes = (*rows.nodes, node, *weight.nodes, *((end,) if end is not node else ()))
    return Match(OPERATOR, node, nodes, Output(end), (Quantized(rows.nodes[0], rows.source, 1.0, 0),))


def fuse(program: FxProgram, match: Match) -> fx.Node:
    node = match.anchor
    product = linear.Product.of(node)
    rows, weight = _rows(node, product.x), _groups(program, node)
    assert rows is not None
    values, scales = weight.values, weight.scales
    sums = values.reshape(len(values), -1, weight.group).sum(2, dtype=torch.int32).t()
    args = (
        rows.source,
        rows.scale,
        rows.zp,
        program.add_constant(f"{weight.names[0]}_nibbles", torch.from_numpy(int4.packed(values.numpy()))),
        # in rows of 8 outputs: upstream's kernel reads rows of 4, see docs/numerics.md
        program.add_constant(f"{weight.names[0]}_sums", padded(sums, 8)),
        program.add_constant(f"{weight.names[1]}_groups", padded(scales.t())),
        weight.group,
        pack_bias(program, product.bias, len(values)),
    )
    shaped = _shaped(node, (*shape_of(rows.source)[:-1], len(values)))
    assert shaped is not None
    made = program.call(node, operator(match.operator), args, shaped.meta["val"])
    match.output.node.replace_all_uses_with(made)
    return made


def _rows(node: fx.Node, x: Any) -> Rows | None:
    """The quantized activation behind ``x``; None if it is not quantized by torchao's operators."""
    view = x if calls(x, VIEW_COPY) else None
    dequantize = x if view is None else view.args[0]
    if not calls(dequantize, DEQUANTIZE_AFFINE):
        return None
    quantize, block, scale, zp, *kind = dequantize.args[:7]
    if not calls(quantize, QUANTIZE_AFFINE):
        raise Refused("row-scales", node, f"{dequantize} reads {quantize}")
    source = quantize.args[0]
    row = [*(1 for _ in shape_of(source)[:-1]), shape_of(source)[-1]]
    same = list(quantize.args[1:7]) == [block, scale, zp, *kind]
    chosen = calls(scale, GETITEM) and calls(zp, GETITEM) and (scale.args[1], zp.args[1]) == (0, 1)
    choose = scale.args[0] if chosen else None
    if not same or choose is None or zp.args[0] is not choose or not calls(choose, CHOOSE_QPARAMS_AFFINE):
        raise Refused("row-scales", node, f"got {scale}, {zp}")
    if choose.args[0] is not source or list(block) != row or list(choose.args[2]) != row:
        raise Refused("row-scales", node, f"got blocks of {list(block)}, need {row}")
    if str(kind[0]) != "torch.int8" or tuple(kind[1:3]) != INT8_RANGE:
        raise Refused("quant-range", node, f"{quantize}: got {kind[1:3]} as {kind[0]}")
    views = () if view is None else (view,)
    return Rows(source, scale, zp, (dequantize, quantize, *views))


def _groups(program: FxProgram, node: fx.Node) -> Groups:
    """The weight, a row of values and of scales for each output."""
    _x, current, _bias, by_rows = linear.Product.of(node)
    if not program.is_constant(current):
        raise Refused("weight-not-constant", node, f"got {current}")
    moves: list[fx.Node] = []
    while target_name(current) in MOVES:
        moves.append(current)
        current = current.args[0]
    if not calls(current, DEQUANTIZE_AFFINE):
        raise Refused("weight-float", node, f"got {current}")
    source, block, scale, zp, _dtype, *bounds = current.args[:7]
    values, scales, zeros = (program.constant(item) for item in (source, scale, zp))
    if values is None or values.dtype != torch.int8 or values.ndim != 2:
        raise Refused("weight-float", node, f"{current} reads {source}, no int8 matrix")
    if zeros is not None and zeros.any():
        raise Refused("weight-zero-point", node, f"got {int(zeros.abs().max())}")
    if tuple(bounds) != (int4.QMIN, int4.QMAX) or values.min() < int4.QMIN or values.max() > int4.QMAX:
        raise Refused("quant-range", node, f"{current}: got {list(bounds)}")
    groups = (len(values), -(-values.shape[1] // int(block[1])))
    if int(block[0]) != 1 or scales is None or scales.numel() != groups[0] * groups[1]:
        raise Refused("weight-axis", node, f"blocks of {list(block)}")
    # what a view or a transposition does to the values must leave a matrix of outputs by inputs, or its transpose
    moved = values
    for move in reversed(moves):
        moved = partial(moved_by, move)(moved)
    want = values if by_rows else values.t()
    if moved.shape != want.shape or not torch.equal(moved, want):
        raise Refused("weight-axis", node, f"{current} is moved before {node}")
    scales = scales.to(torch.float32).reshape(groups).contiguous()
    return Groups(values.contiguous(), scales, (str(source), str(scale)), (*moves, current))


def _shaped(node: fx.Node, shape: tuple[int, ...]) -> fx.Node | None:
    """The node whose result has this shape: the product, or a view that alone reads it. None if neither has."""
    view = only_user(node)
    if shape_of(node) == shape:
        return node
    return view if calls(view, VIEW_COPY) and shape_of(view) == shape else None


def _end(node: fx.Node, shaped: fx.Node) -> fx.Node:
    """What the new node replaces. As in ExecuTorch, a view stays if several nodes read it."""
    return shaped if len(shaped.users) == 1 else node

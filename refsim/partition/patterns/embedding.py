"""A lookup in a table of 4 bits with a scale for each group: embedding_q4gsw.

Two programs mean it: embedding_4bit, whose bytes have the even element in the high nibble, and an embedding of a table
that torchao dequantizes. Both are stored with the even element in the low nibble.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import fx

from refsim.ops.base.int4 import QMAX, QMIN, unpacked
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import argument, shape_of, target_name
from refsim.partition.patterns._int4 import Int4Weight, pack_values, read_grouped
from refsim.partition.patterns._match import Match, Output, replace

NAME = "embedding_q4gsw"
PACKED, PLAIN = "quantized_decomposed.embedding_4bit.dtype", "aten.embedding.default"
ANCHORS = (PACKED, PLAIN)
_STEP = 32  # ExecuTorch takes tables whose width is a multiple of it


def find(program: FxProgram, node: fx.Node) -> Match | None:
    weight = _read(program, node)
    if weight is None or weight.values.shape[1] % _STEP or len(shape_of(node)) > 4:
        return None
    indices = _indices(node)
    rows = prod(shape_of(indices)[:-1])
    notes = ("in textures upstream's kernel reads the first row of indices only",) if rows > 1 else ()
    return Match(NAME, node, (node, *weight.nodes), Output(node), (), notes=notes, sources=(indices,))


def fuse(program: FxProgram, match: Match) -> fx.Node:
    weight = _read(program, match.anchor)
    assert weight is not None
    scales = program.add_constant(f"{weight.name}_groups", weight.scales.contiguous())
    args = (pack_values(program, weight, pad=False), scales, weight.group_size, _indices(match.anchor), True)
    return replace(program, match, args)


def _indices(node: fx.Node) -> Any:
    return node.args[1 if target_name(node) == PLAIN else 5]


def _read(program: FxProgram, node: fx.Node) -> Int4Weight | None:
    if target_name(node) == PLAIN:
        found = read_grouped(program, node.args[0])
        return found[0] if found is not None and not found[1] else None
    stored, scales = (program.constant(argument(node, at)) for at in (0, 1))
    zero_points = argument(node, 2)
    if zero_points is not None:
        found_zero_points = program.constant(zero_points)
        if found_zero_points is None or found_zero_points.any():
            return None
    if stored is None or scales is None or (argument(node, 3), argument(node, 4)) != (QMIN, QMAX):
        return None
    if node.kwargs.get("dtype") not in (None, torch.float32) or scales.dtype != torch.float32:
        return None
    raw = stored.cpu().numpy()
    groups = scales if scales.ndim == 2 else scales.reshape(-1, 1)
    values = torch.from_numpy(unpacked(raw >> 4 | raw << 4))
    return Int4Weight(str(node.args[0]), values, groups, ())

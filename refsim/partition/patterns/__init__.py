"""Patterns: a dequantize, an operator and a quantize that one q8ta operator replaces. One module for each.

A module has

- ``ANCHORS``, the ATen operators that it looks at;
- ``find(program, node)``: a `Match`; None for a float node. It raises `Refused` if the node is quantized, but not in a
  way that a kernel can run;
- ``fuse(program, match)``, which makes the new node. Whatever read the quantize reads that node from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Protocol

from torch import fx

from refsim.ops.base.defect import FIRST_OF_FOUR_DIMS
from refsim.ops.base.registry import OPS
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import NOT_FUSED, shape_of, target_name
from refsim.partition.patterns import (
    add,
    convolution,
    embedding,
    group_linear,
    linear,
    pixel_shuffle,
    relu,
    weight_only,
)
from refsim.partition.patterns._match import Match
from refsim.partition.refusal import Refused, RefusedNode


class Pattern(Protocol):
    __name__: str

    @property
    def ANCHORS(self) -> tuple[str, ...]: ...

    def find(self, program: FxProgram, node: fx.Node) -> Match | None: ...

    def fuse(self, program: FxProgram, match: Match) -> fx.Node: ...


MODULES = (add, convolution, group_linear, linear, pixel_shuffle, relu, weight_only, embedding)
#: Anchor -> the patterns that look at it, in the order in which they are tried.
PATTERNS: dict[str, list[Pattern]] = {}
for _module in MODULES:
    for _anchor in _module.ANCHORS:
        PATTERNS.setdefault(_anchor, []).append(_module)


def find(program: FxProgram, node: fx.Node) -> tuple[Pattern, Match | RefusedNode] | None:
    """The pattern that a node is the anchor of, and what it says; None for a node of no pattern."""
    for pattern in PATTERNS.get(target_name(node), ()):
        try:
            found = pattern.find(program, node)
            if found is not None:
                return pattern, _ranked(found)
        except Refused as refused:
            return pattern, refused.refusal
    return None


def _ranked(match: Match) -> Match:
    """The match, with a note where upstream's kernel takes fewer dims. Raises Refused if it may not be."""
    if NOT_FUSED in match.anchor.meta:
        raise Refused("runtime", match.anchor, match.anchor.meta[NOT_FUSED])
    most = OPS[match.operator].max_rank
    rank = max(len(shape_of(item.node)) for item in (match.output, *match.inputs))
    if rank > most:
        raise Refused("high-dim", match.anchor, f"got {rank}, need at most {most}")
    if prod(shape_of(match.output.node)[:-4]) > 1:
        return replace(match, notes=(*match.notes, FIRST_OF_FOUR_DIMS.note))
    return match


def find_all(program: FxProgram) -> Iterator[tuple[Pattern, Match | RefusedNode]]:
    """Every match and every near miss, in the order of the graph."""
    for node in program.calls():
        found = find(program, node)
        if found is not None:
            yield found


__all__ = ["PATTERNS", "Match", "Pattern", "find", "find_all"]

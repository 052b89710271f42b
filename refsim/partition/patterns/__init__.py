"""Patterns: a dequantize, an operator and a quantize that one q8ta operator replaces. One module for each.

A module has

- ``ANCHORS``, the ATen operators that it looks at;
- ``find(program, node)``: a `Match`; a `Refusal` if the node is quantized, but not in a way that a kernel can run; None
  for a float node;
- ``fuse(program, match)``, which makes the new node. Whatever read the quantize reads that node from then on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import target_name
from refsim.partition.patterns import add, convolution, linear, pixel_shuffle, relu
from refsim.partition.patterns._match import Match
from refsim.partition.refusal import Refusal


class Pattern(Protocol):
    __name__: str
    ANCHORS: tuple[str, ...]

    def find(self, program: FxProgram, node: fx.Node) -> Match | Refusal | None: ...

    def fuse(self, program: FxProgram, match: Match) -> fx.Node: ...


MODULES = (add, convolution, linear, pixel_shuffle, relu)
PATTERNS: dict[str, Pattern] = {anchor: module for module in MODULES for anchor in module.ANCHORS}


def find_all(program: FxProgram) -> Iterator[tuple[Pattern, Match | Refusal]]:
    """Every match and every near miss, in the order of the graph."""
    for node in program.calls():
        pattern = PATTERNS.get(target_name(node))
        found = pattern.find(program, node) if pattern else None
        if pattern is not None and found is not None:
            yield pattern, found


__all__ = ["PATTERNS", "Match", "Pattern", "find_all"]

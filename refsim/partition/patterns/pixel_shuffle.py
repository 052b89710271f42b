"""dequantize -> pixel_shuffle -> quantize, with clones anywhere between: q8ta_pixel_shuffle.

The operator takes the inverse of the output's scale.
"""

from __future__ import annotations

from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import DEQUANTIZE, QUANTIZE, calls, only_user, shape_of
from refsim.partition.patterns._match import Match, quantized, replace, skip_identities
from refsim.partition.refusal import Refused

ANCHORS = ("aten.pixel_shuffle.default",)
_RANK = 4


def find(program: FxProgram, node: fx.Node) -> Match | None:
    before = _source(node)
    if not calls(before[-1], DEQUANTIZE):
        return None
    shared = next((item for item in before if len(item.users) != 1), None)
    if shared is not None:
        raise Refused("input-float", node, f"{shared} has {len(shared.users)} users")
    source = quantized(before[-1], DEQUANTIZE, node, "input-float")
    behind: list[fx.Node] = []
    last = skip_identities(only_user(node), behind)
    output = quantized(last, QUANTIZE, node, "output-float")
    if len(shape_of(node)) != _RANK:
        raise Refused("arguments", node, f"got {len(shape_of(node))} dims, need {_RANK}")
    return Match("q8ta_pixel_shuffle", node, (node, *before, *behind), output, (source,))


def fuse(program: FxProgram, match: Match) -> fx.Node:
    (source,) = match.inputs
    scale, zp = match.output.parameters
    return replace(program, match, (source.source, *source.parameters, 1.0 / scale, zp, match.anchor.args[1]))


def _source(node: fx.Node) -> list[fx.Node]:
    """The nodes from the one that feeds ``node`` back to the first that is no clone."""
    found: list[fx.Node] = []
    current = node.args[0]
    while True:
        assert isinstance(current, fx.Node)
        found.append(current)
        if not calls(current, "aten.clone.default", "dim_order_ops._clone_dim_order.default"):
            return found
        current = current.args[0]

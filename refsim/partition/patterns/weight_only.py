"""A linear layer on floats whose weight has 4 bits and a scale for each group: linear_q4gsw.

ExecuTorch skips a view in front of the product. Here that is done where only a view reads the product, which gives the
same file; anything else would see the product with other dims.
"""

from __future__ import annotations

from math import prod
from typing import Any

from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import VIEW_COPY, argument, calls, dtype_of, only_user, shape_of, target_name
from refsim.partition.patterns._int4 import Int4Weight, pack_values, read_grouped
from refsim.partition.patterns._match import Match, Output, replace
from refsim.partition.patterns._weights import ALIGNMENT, pack_bias, padded, read_bias
from refsim.partition.refusal import Refusal, refuse

NAME = "linear_q4gsw"
#: anchor -> positions of the input, the weight and the bias, and whether the weight is (out, in).
_ARGUMENTS = {
    "aten.linear.default": (0, 1, 2, True),
    "aten.mm.default": (0, 1, None, False),
    "aten.addmm.default": (1, 2, 0, False),
}
ANCHORS = tuple(_ARGUMENTS)


def find(program: FxProgram, node: fx.Node) -> Match | Refusal | None:
    weight = _read(program, node)
    if weight is None or node.kwargs or dtype_of(node) != "float32":
        return None
    rows, k = weight.values.shape
    if k % ALIGNMENT or weight.group_size % ALIGNMENT:
        return refuse("in-channels", node, f"got {k} in groups of {weight.group_size}")
    if rows % ALIGNMENT:
        return refuse("out-channels", node, f"got {rows}")
    bias = read_bias(program, _bias(node), node)
    if isinstance(bias, Refusal):
        return bias
    x, view = _input(node)
    lead = shape_of(x)[:-2]
    notes = ("upstream's kernel computes only the first plane",) if prod(lead) > 1 else ()
    absorbed = (node, *([view] if view is not None else []), *weight.nodes)
    return Match(NAME, node, absorbed, Output(node), (), notes=notes, sources=(x,))


def fuse(program: FxProgram, match: Match) -> fx.Node:
    node, weight = match.anchor, _read(program, match.anchor)
    assert weight is not None
    x, _view = _input(node)
    scales = program.add_constant(f"{weight.name}_groups", padded(weight.scales.t()))
    bias = pack_bias(program, _bias(node), weight.values.shape[0])
    new = replace(
        program, match, (x, pack_values(program, weight, pad=True), scales, weight.group_size, bias)
    )
    new.meta["val"] = node.meta["val"].new_empty((*shape_of(x)[:-1], weight.values.shape[0]))
    return new


def _bias(node: fx.Node) -> Any:
    at = _ARGUMENTS[target_name(node)][2]
    return None if at is None else argument(node, at)


def _read(program: FxProgram, node: fx.Node) -> Int4Weight | None:
    _x_at, weight_at, _bias_at, by_rows = _ARGUMENTS[target_name(node)]
    found = read_grouped(program, node.args[weight_at])
    return found[0] if found is not None and found[1] is not by_rows else None


def _input(node: fx.Node) -> tuple[fx.Node, fx.Node | None]:
    """What the product reads, and the view in front of it if that can be skipped."""
    x: Any = node.args[_ARGUMENTS[target_name(node)][0]]
    if (
        calls(x, VIEW_COPY)
        and calls(only_user(node), VIEW_COPY)
        and shape_of(x.args[0])[-1:] == shape_of(x)[-1:]
    ):
        return x.args[0], x
    return x, None

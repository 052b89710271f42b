"""A linear layer on floats whose weight has 4 bits and a scale for each group: linear_q4gsw.

ExecuTorch skips a view in front of the product. Here that is done where only a view reads the product, which gives the
same file; anything else would see the product with other dims.
"""

from __future__ import annotations

from math import prod

from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import VIEW_COPY, calls, dtype_of, only_user, shape_of
from refsim.partition.patterns._int4 import Int4Weight, pack_values, read_grouped
from refsim.partition.patterns._match import Match, Output, replace
from refsim.partition.patterns._weights import ALIGNMENT, pack_bias, padded, read_bias
from refsim.partition.patterns.linear import Product
from refsim.partition.refusal import Refused

NAME = "linear_q4gsw"
ANCHORS = ("aten.linear.default", "aten.mm.default", "aten.addmm.default")


def find(program: FxProgram, node: fx.Node) -> Match | None:
    weight = _read(program, node)
    if weight is None or node.kwargs or dtype_of(node) != "float32":
        return None
    rows, k = weight.values.shape
    if k % ALIGNMENT or weight.group_size % ALIGNMENT:
        raise Refused("in-channels", node, f"got {k} in groups of {weight.group_size}")
    if rows % ALIGNMENT:
        raise Refused("out-channels", node, f"got {rows}")
    read_bias(program, Product.of(node).bias, node)
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
    bias = pack_bias(program, Product.of(node).bias, weight.values.shape[0])
    new = replace(
        program, match, (x, pack_values(program, weight, pad=True), scales, weight.group_size, bias)
    )
    new.meta["val"] = node.meta["val"].new_empty((*shape_of(x)[:-1], weight.values.shape[0]))
    return new


def _read(program: FxProgram, node: fx.Node) -> Int4Weight | None:
    product = Product.of(node)
    found = read_grouped(program, product.weight)
    return found[0] if found is not None and found[1] is not product.by_rows else None


def _input(node: fx.Node) -> tuple[fx.Node, fx.Node | None]:
    """What the product reads, and the view in front of it if that can be skipped."""
    x = Product.of(node).x
    if (
        calls(x, VIEW_COPY)
        and calls(only_user(node), VIEW_COPY)
        and shape_of(x.args[0])[-1:] == shape_of(x)[-1:]
    ):
        return x.args[0], x
    return x, None

"""dequantize [-> view] -> linear, mm, addmm or bmm [-> view] [-> relu] -> quantize: q8ta_linear or q8ta_linear_gemv.

It is gemv if the last dim but one has size 1.

Without a quantize at the end it is linear_q8ta_q8csw, whose output is float. A relu is not part of it then, and a view
only if it gives the rows back the dims that the first view took from them.

Scale and zero point come from the dequantize node, never from the node that feeds it. In a chain that node is a
q8ta_linear by then, and its second and third arguments describe its own input.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from torch import fx

from refsim.ops.base.registry import OPS
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import (
    DEQUANTIZE,
    DEQUANTIZE_BY_TENSOR,
    RELU,
    VIEW_COPY,
    argument,
    calls,
    only_user,
    shape_of,
    target_name,
)
from refsim.partition.patterns._match import Match, Output, Quantized, quantized, quantized_output, replace
from refsim.partition.patterns._weights import (
    ALIGNMENT,
    Weight,
    check_rows,
    pack_bias,
    pack_rows,
    read_bias,
    read_weight,
)
from refsim.partition.refusal import Refused

#: The operator whose output is float.
HEAD = "linear_q8ta_q8csw"


class Product(NamedTuple):
    """The operands of a matrix product. ``by_rows``: the weight is (out, in)."""

    x: Any
    weight: Any
    bias: Any
    by_rows: bool

    @classmethod
    def of(cls, node: fx.Node) -> Product:
        x, weight, bias, by_rows = ARGUMENTS[target_name(node)]
        return cls(node.args[x], node.args[weight], None if bias is None else argument(node, bias), by_rows)


#: anchor -> positions of the input, the weight and the bias, and whether the weight is (out, in).
ARGUMENTS = {
    "aten.linear.default": (0, 1, 2, True),
    "aten.mm.default": (0, 1, None, False),
    "aten.addmm.default": (1, 2, 0, False),
    "aten.bmm.default": (0, 1, None, False),
}
ANCHORS = tuple(ARGUMENTS)


def find(program: FxProgram, node: fx.Node) -> Match | None:
    x, _weight, bias_node, _by_rows = Product.of(node)
    view = x if calls(x, VIEW_COPY) else None
    source_node = view.args[0] if view is not None else x
    if not calls(source_node, DEQUANTIZE, DEQUANTIZE_BY_TENSOR):
        return None
    source = quantized(source_node, DEQUANTIZE, node, "input-float")
    output: Output
    try:
        output, relu, passed = quantized_output(node, (VIEW_COPY, RELU))
    except Refused as refused:
        if refused.refusal.code != "output-float":
            raise
        output, relu, passed = _float_output(node, source)
    weight = _read(program, node)
    bias = read_bias(program, bias_node, node)
    if node.kwargs:
        raise Refused("arguments", node, ", ".join(f"{k}={v}" for k, v in node.kwargs.items()))
    _check(weight, source, output, node, None if bias is None else bias.numel())
    absorbed = (node, source.node, *([view] if view is not None else []), *passed, *weight.nodes)
    if not isinstance(output, Quantized):
        return Match(HEAD, node, absorbed, output, (source,), notes=(OPS[HEAD].upstream.if_quantized or "",))
    rows = shape_of(source.source)[:-1]
    if rows and rows[-1] != 1:
        return Match("q8ta_linear", node, absorbed, output, (source,), relu)
    notes = (f"upstream's kernel computes only the first of {prod(rows)} rows",) if prod(rows) > 1 else ()
    return Match("q8ta_linear_gemv", node, absorbed, output, (source,), relu, notes)


def fuse(program: FxProgram, match: Match) -> fx.Node:
    (source,) = match.inputs
    weight = _read(program, match.anchor)
    args = (
        source.source,
        *source.parameters,
        *pack_rows(program, weight, "linear", match.anchor),
        *match.output.parameters,
        pack_bias(program, Product.of(match.anchor).bias, weight.values.shape[0]),
        *(() if match.operator == HEAD else ("relu" if match.relu is not None else "none",)),
    )
    return replace(program, match, args)


def _float_output(node: fx.Node, source: Quantized) -> tuple[Output, fx.Node | None, list[fx.Node]]:
    """The product itself, or the view behind it that has the rows of the source."""
    after = only_user(node)
    if calls(after, VIEW_COPY) and shape_of(after) == (*shape_of(source.source)[:-1], shape_of(node)[-1]):
        assert after is not None
        return Output(after), None, [after]
    return Output(node), None, []


def _read(program: FxProgram, node: fx.Node) -> Weight:
    """The weight as (out, in)."""
    product = Product.of(node)
    weight = read_weight(program, product.weight, node)
    if weight.values.ndim == 3:
        if weight.values.shape[0] != 1:
            raise Refused("batch", node, f"got {weight.values.shape[0]}")
        weight = weight.moved(lambda tensor: tensor[0])
    return weight if product.by_rows else weight.moved(lambda tensor: tensor.t())


def _check(weight: Weight, source: Quantized, output: Output, node: fx.Node, bias: int | None) -> None:
    """Raises Refused if no kernel computes the product."""
    channels_out, channels_in = weight.values.shape
    if channels_in % ALIGNMENT:
        raise Refused("in-channels", node, f"got {channels_in}")
    if bias not in (None, 1, channels_out):
        raise Refused("bias-not-constant", node, f"it has {bias} elements, need {channels_out}")
    taken, given = shape_of(source.source), shape_of(output.node)
    if taken[-1] != channels_in or given != (*taken[:-1], channels_out):
        raise Refused("rows", node, f"{list(taken)} becomes {list(given)}")
    check_rows(weight, node)

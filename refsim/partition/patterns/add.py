"""dequantize, dequantize -> add [-> relu] -> quantize: q8ta_add.

If the output's zero point is -128, its clamp does the relu. Otherwise an int8 relu follows, with the output's scale and
zero point on both sides. That gives the same bytes, since rounding is monotone and 0 is quantized to the zero point.
(Upstream drops the relu whatever the zero point is.)
"""

from __future__ import annotations

from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import RELU, argument, is_node, shape_of
from refsim.partition.patterns._match import (
    INT8_RANGE,
    Match,
    Quantized,
    operator,
    quantized_inputs,
    quantized_output,
    replace,
)
from refsim.partition.patterns.relu import NAME as INT8_RELU
from refsim.partition.refusal import Refused

ANCHORS = ("aten.add.Tensor",)


def find(program: FxProgram, node: fx.Node) -> Match | None:
    inputs = quantized_inputs(node, 2)
    if inputs is None:
        return None
    output, relu, _passed = quantized_output(node, (RELU,))
    alpha = _alpha(node)
    if is_node(alpha):
        raise Refused("arguments", node, f"alpha is {alpha}, not a number")
    notes = []
    if relu is not None and not _clamps(output.zp):
        notes.append(f"the relu follows as {INT8_RELU}")
    shapes = sorted({shape_of(item.source) for item in inputs})
    if len(shapes) > 1:
        text = " and ".join(str(list(shape)) for shape in shapes)
        notes.append(f"upstream's kernel broadcasts wrongly: {text}")
    absorbed = (node, *(item.node for item in inputs), *([relu] if relu is not None else []))
    return Match("q8ta_add", node, absorbed, output, inputs, relu, tuple(notes))


def fuse(program: FxProgram, match: Match) -> fx.Node:
    a, b = match.inputs
    parameters = (*a.parameters, *b.parameters, *match.output.parameters)
    node = replace(program, match, (a.source, b.source, *parameters, float(_alpha(match.anchor))))
    assert isinstance(match.output, Quantized)
    if match.relu is None or _clamps(match.output.zp):
        return node
    out = match.output.parameters
    relu = program.call(match.anchor, operator(INT8_RELU), (node, *out, *out), node.meta["val"])
    node.replace_all_uses_with(relu, lambda user: user is not relu)
    return relu


def _clamps(zp: int) -> bool:
    """Whether clamping to int8 cuts at the zero point."""
    return zp == INT8_RANGE[0]


def _alpha(node: fx.Node) -> float:
    alpha: float = node.kwargs.get("alpha", argument(node, 2, 1))
    return alpha

"""dequantize -> relu -> quantize: q8ta_relu."""

from __future__ import annotations

from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import RELU
from refsim.partition.patterns._match import Match, quantized_inputs, quantized_output, replace

ANCHORS = (RELU,)
NAME = "q8ta_relu"


def find(program: FxProgram, node: fx.Node) -> Match | None:
    inputs = quantized_inputs(node, 1)
    if inputs is None:
        return None
    output, _relu, _passed = quantized_output(node)
    return Match(NAME, node, (node, inputs[0].node), output, inputs)


def fuse(program: FxProgram, match: Match) -> fx.Node:
    (source,) = match.inputs
    return replace(program, match, (source.source, *source.parameters, *match.output.parameters))

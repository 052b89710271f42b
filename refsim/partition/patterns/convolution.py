"""dequantize -> convolution [-> relu] -> quantize: q8ta_conv2d, _dw, _pw or _transposed.

Which one follows from the arguments and from the weight, which is (OC, IC per group, KH, KW), or
(IC, OC per group, KH, KW) if transposed. Packed weights have one row per output channel, with taps before input
channels; depthwise ones are (KH, KW, OC).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import RELU, argument, shape_of
from refsim.partition.patterns._match import Match, quantized_inputs, quantized_output, replace
from refsim.partition.patterns._weights import (
    ALIGNMENT,
    Weight,
    check_rows,
    pack,
    pack_bias,
    read_bias,
    read_weight,
)
from refsim.partition.refusal import Refused

ANCHORS = ("aten.convolution.default",)
_RANK = 4


@dataclass(frozen=True)
class ConvArguments:
    """The arguments of a convolution after x, weight and bias."""

    stride: list[int]
    padding: list[int]
    dilation: list[int]
    transposed: bool
    output_padding: list[int]
    groups: int

    @classmethod
    def of(cls, node: fx.Node) -> ConvArguments:
        given: Sequence[Any] = node.args[3:9]
        values: list[Any] = [list(v) if isinstance(v, list | tuple) else v for v in given]
        return cls(*values)


def find(program: FxProgram, node: fx.Node) -> Match | None:
    inputs = quantized_inputs(node, 1)
    if inputs is None:
        return None
    output, relu, _passed = quantized_output(node, (RELU,))
    weight = read_weight(program, node.args[1], node)
    read_bias(program, argument(node, 2), node)
    _check(node, weight, ConvArguments.of(node))
    absorbed = (node, inputs[0].node, *weight.nodes, *([relu] if relu is not None else []))
    return Match(f"q8ta_{_kind(weight, ConvArguments.of(node))}", node, absorbed, output, inputs, relu)


def fuse(program: FxProgram, match: Match) -> fx.Node:
    (source,) = match.inputs
    node, given = match.anchor, ConvArguments.of(match.anchor)
    weight = read_weight(program, node.args[1], node)
    rows = _rows(weight, given)
    height, width = weight.values.shape[2:]
    kind = match.operator.removeprefix("q8ta_")
    values = rows.values
    if kind == "conv2d_dw":
        values = weight.values.permute(2, 3, 1, 0).reshape(height, width, -1)
    constants = pack(program, rows, values, kind, node)
    channels = shape_of(node)[-3]
    args = [
        source.source,
        *source.parameters,
        *constants,
        *match.output.parameters,
        pack_bias(program, argument(node, 2), channels),
        [height, width],
        given.stride,
        given.padding,
        *([given.output_padding] if given.transposed else []),
        given.dilation,
        given.groups,
        "relu" if match.relu is not None else "none",
    ]
    return replace(program, match, args)


def _check(node: fx.Node, weight: Weight, given: ConvArguments) -> None:
    """Raises Refused if no kernel computes the convolution."""
    if len(shape_of(node)) != _RANK or weight.values.ndim != _RANK:
        raise Refused("rank", node, f"got a weight of shape {list(weight.values.shape)}")
    if given.transposed and given.dilation != [1, 1]:
        raise Refused("dilation", node, f"got {given.dilation}")
    channels_in, channels_out = shape_of(node.args[0])[-3], shape_of(node)[-3]
    if _kind(weight, given) == "conv2d_dw":
        if channels_out % ALIGNMENT:
            raise Refused("out-channels", node, f"got {channels_out} channels, depthwise")
    elif given.groups > 1:
        for code, count in (("in-channels", channels_in), ("out-channels", channels_out)):
            if count // given.groups % ALIGNMENT:
                raise Refused(code, node, f"got {count} channels in {given.groups} groups")
    check_rows(_rows(weight, given), node)


def _kind(weight: Weight, given: ConvArguments) -> str:
    first, per_group, height, width = weight.values.shape
    if given.transposed:
        return "conv2d_transposed"
    if per_group == 1 and given.groups == first:
        return "conv2d_dw"
    point = (height, width) == (1, 1) and given.padding == [0, 0]
    return "conv2d_pw" if point and given.stride == given.dilation == [1, 1] else "conv2d"


def _rows(weight: Weight, given: ConvArguments) -> Weight:
    """One row per output channel: taps, then the input channels of its group."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        if not given.transposed:
            return tensor.permute(0, 2, 3, 1).flatten(1)
        channels_in, out_per_group, height, width = tensor.shape
        split = tensor.reshape(given.groups, channels_in // given.groups, out_per_group, height, width)
        return split.permute(0, 2, 3, 4, 1).flatten(2).flatten(0, 1)

    return weight.moved(move)

"""A float convolution followed by relu or hardtanh becomes et_vk.conv_with_clamp."""

from __future__ import annotations

import sys

from torch import fx

from refsim.partition.fx_program import FxProgram, Operator
from refsim.partition.nodes import NOT_JOINED, RELU, argument, calls, target_name

_CONVOLUTION = "aten.convolution.default"
_HARDTANH = "aten.hardtanh.default"
TARGET = Operator(
    "et_vk.conv_with_clamp.default",
    (
        "input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups",
        "output_min", "output_max",
    ),
)  # fmt: skip


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        source = argument(node, 0)
        joined = target_name(node) in (RELU, _HARDTANH) and calls(source, _CONVOLUTION)
        if joined and len(source.users) == 1 and NOT_JOINED not in source.meta:
            new = program.call(source, TARGET, (*source.args, *_bounds(node)), node.meta["val"])
            node.replace_all_uses_with(new)
    return program.clean()


def _bounds(node: fx.Node) -> tuple[float, float]:
    if target_name(node) == RELU:
        return (0.0, sys.float_info.max)
    return (argument(node, 1, -1.0), argument(node, 2, 1.0))

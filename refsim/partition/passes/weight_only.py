"""A float linear whose weight is dequantized from int8 per output channel becomes aten._weight_int8pack_mm.

The bias is added by an operator of its own. Weights in the range of four bits stay as they are: ExecuTorch packs those
for et_vk.linear_qcs4w, whose results are far from torch's.
"""

from __future__ import annotations

import torch
from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import (
    DEQUANTIZE,
    DEQUANTIZE_BY_TENSOR,
    DEQUANTIZE_PER_CHANNEL,
    argument,
    calls,
    target_name,
)

_LINEAR = "aten.linear.default"
_FOUR_BITS = (-8, 7)


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        if (
            target_name(node) != _LINEAR
            or calls(node.args[0], DEQUANTIZE, DEQUANTIZE_BY_TENSOR)
            or not _packs(program, node.args[1])
        ):
            continue
        weight, val = node.args[1], node.meta["val"]
        assert isinstance(weight, fx.Node)
        target = torch.ops.aten._weight_int8pack_mm.default
        new = program.call(node, target, (node.args[0], weight.args[0], weight.args[1]), val)
        bias = argument(node, 2)
        if bias is not None:
            new = program.call(node, torch.ops.aten.add.Tensor, (new, bias), val)
        node.replace_all_uses_with(new)
    return program.clean()


def _packs(program: FxProgram, weight: object) -> bool:
    """Whether it is a constant of 8 bits with a scale for each row and no zero points."""
    if not calls(weight, DEQUANTIZE_PER_CHANNEL):
        return False
    assert isinstance(weight, fx.Node)
    values, scales, zeros = (program.constants.get(str(arg)) for arg in weight.args[:3])
    if values is None or scales is None or zeros is None or values.dtype != torch.int8 or weight.args[3] != 0:
        return False
    low, high = int(values.min()), int(values.max())
    return not zeros.any() and (low < _FOUR_BITS[0] or high > _FOUR_BITS[1])

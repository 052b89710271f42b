"""In a delegate, operators on two tensors of unequal dtypes compute in float32: each other operand is converted."""

from __future__ import annotations

import torch
from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import is_single_tensor, target_name
from refsim.partition.passes.mixed_types import convert

_BINARY = frozenset(
    f"aten.{name}"
    for name in (
        "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "div.Tensor_mode", "pow.Tensor_Tensor",
        "minimum.default", "eq.Tensor", "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor",
    )
)  # fmt: skip


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        if target_name(node) not in _BINARY or not all(is_single_tensor(arg) for arg in node.args[:2]):
            continue
        operands = [arg for arg in node.args[:2] if isinstance(arg, fx.Node)]
        if len({operand.meta["val"].dtype for operand in operands}) == 1:
            continue
        for operand in operands:
            if operand.meta["val"].dtype != torch.float32:
                node.replace_input_with(operand, convert(program, node, operand, torch.float32))
    return program.clean()

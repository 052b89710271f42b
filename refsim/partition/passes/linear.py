"""mm and addmm with a transposed constant become linear: the weight is stored by output channel."""

from __future__ import annotations

from typing import Any

import torch

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import calls, target_name

_TRANSPOSES = ("aten.permute_copy.default", "aten.t_copy.default")
#: operator -> positions of the input, the weight and the bias.
_ARGUMENTS = {"aten.mm.default": (0, 1, None), "aten.addmm.default": (1, 2, 0)}


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        if target_name(node) not in _ARGUMENTS:
            continue
        found: list[Any] = [None if at is None else node.args[at] for at in _ARGUMENTS[target_name(node)]]
        x, weight, bias = found
        if calls(weight, *_TRANSPOSES) and program.is_constant(weight):
            # changed in place: reports go on calling it by its name
            node.target = torch.ops.aten.linear.default
            node.args = (x, weight.args[0]) if bias is None else (x, weight.args[0], bias)
    return program.clean()

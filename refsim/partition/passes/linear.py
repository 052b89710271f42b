"""mm and addmm with a transposed constant become linear: the weight is stored by output channel.

The views around a linear go where its input is quantized at run time: it then takes all rows as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import DEQUANTIZE_BY_TENSOR, VIEW_COPY, calls, only_user, shape_of, target_name

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
            _skip_views(node)
    return program.clean()


def _skip_views(node: fx.Node) -> None:
    view, after = node.args[0], only_user(node)
    if not calls(view, VIEW_COPY) or not calls(after, VIEW_COPY):
        return
    assert isinstance(view, fx.Node)
    source = view.args[0]
    if (
        calls(source, DEQUANTIZE_BY_TENSOR)
        and only_user(source) is view
        and shape_of(after)
        == (
            *shape_of(source)[:-1],
            shape_of(node)[-1],
        )
    ):
        node.update_arg(0, source)
        node.meta["val"] = after.meta["val"]
        after.replace_all_uses_with(node)

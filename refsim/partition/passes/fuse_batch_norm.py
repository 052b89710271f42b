"""A float convolution or linear followed by a batch norm becomes one operator: its weight and bias are computed ahead.

weight' = weight * gamma / sqrt(var + eps);  bias' = (bias - mean) * gamma / sqrt(var + eps) + beta
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import GETITEM, argument, calls, is_node, only_user, shape_of

_CONVOLUTION = "aten.convolution.default"
_LINEAR = "aten.linear.default"
_NORM = "aten._native_batch_norm_legit_no_training.default"


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        norm = only_user(node)
        if calls(node, _CONVOLUTION, _LINEAR) and calls(norm, _NORM) and _fits(program, node, norm):
            _fuse(program, node, norm)
    return program.clean()


def _fits(program: FxProgram, node: fx.Node, norm: fx.Node) -> bool:
    """Whether only the first result is read, and the weights are stored as they are."""
    if any(not calls(user, GETITEM) or user.args[1] != 0 for user in norm.users):
        return False
    if not all(
        is_node(weight) and str(weight) in program.constants for weight in (node.args[1], norm.args[1])
    ):
        return False
    return calls(node, _LINEAR) or len(shape_of(node.args[0])) in (3, 4)


def _fuse(program: FxProgram, node: fx.Node, norm: fx.Node) -> None:
    weight, bias, gamma, beta, mean, var = (
        program.constant(arg) for arg in (node.args[1], argument(node, 2), *norm.args[1:5])
    )
    given: Any = (weight, bias, mean, var, norm.args[-1], gamma, beta)
    with torch.no_grad():
        if calls(node, _CONVOLUTION):
            fused = fuse_conv_bn_weights(*given, node.args[6])
        else:
            fused = fuse_linear_bn_weights(*given)
    name = str(node.args[1])
    node.update_arg(1, program.add_constant(f"{name}_fused_bn", fused[0].detach()))
    made = program.add_constant(f"{name}_bias_fused_bn", fused[1].detach())
    node.args = (*node.args[:2], made, *node.args[3:])
    for user in list(norm.users):
        user.replace_all_uses_with(node)

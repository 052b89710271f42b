"""Passes about weights: how operators hold them, what is computed ahead of time, and what is packed."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from refsim.partition.features import features_of
from refsim.partition.fx_program import FxProgram, Operator, each_call
from refsim.partition.nodes import (
    DEQUANTIZE,
    DEQUANTIZE_BY_TENSOR,
    DEQUANTIZE_PER_CHANNEL,
    GETITEM,
    PREPACK,
    VIEW_COPY,
    argument,
    calls,
    is_node,
    only_user,
    shape_of,
    target_name,
)

_CONVOLUTION, _LINEAR = "aten.convolution.default", "aten.linear.default"

# --- linear ----------------------------------------------------------------------------------------------

_TRANSPOSES = ("aten.permute_copy.default", "aten.t_copy.default")
#: operator -> positions of the input, the weight and the bias.
_ARGUMENTS = {"aten.mm.default": (0, 1, None), "aten.addmm.default": (1, 2, 0)}


@each_call
def linear(program: FxProgram, node: fx.Node) -> None:
    """mm and addmm with a transposed constant become linear: the weight is stored by output channel.

    The views around a linear go where its input is quantized at run time: it then takes all rows as they are.
    """
    if target_name(node) not in _ARGUMENTS:
        return
    found: list[Any] = [None if at is None else node.args[at] for at in _ARGUMENTS[target_name(node)]]
    x, weight, bias = found
    if calls(weight, *_TRANSPOSES) and program.is_constant(weight):
        # changed in place: reports go on calling it by its name
        node.target = torch.ops.aten.linear.default
        node.args = (x, weight.args[0]) if bias is None else (x, weight.args[0], bias)
        _skip_views(node)


def _skip_views(node: fx.Node) -> None:
    view, after = node.args[0], only_user(node)
    if not calls(view, VIEW_COPY) or not calls(after, VIEW_COPY):
        return
    assert isinstance(view, fx.Node)
    source = view.args[0]
    rows = (*shape_of(source)[:-1], shape_of(node)[-1])
    if calls(source, DEQUANTIZE_BY_TENSOR) and only_user(source) is view and shape_of(after) == rows:
        node.update_arg(0, source)
        node.meta["val"] = after.meta["val"]
        after.replace_all_uses_with(node)


# --- batch norms -----------------------------------------------------------------------------------------


@each_call
def fuse_batch_norm(program: FxProgram, node: fx.Node) -> None:
    """A float convolution or linear followed by a batch norm becomes one operator, with these weight and bias:

    weight' = weight * gamma / sqrt(var + eps);  bias' = (bias - mean) * gamma / sqrt(var + eps) + beta
    """
    norm = only_user(node) if calls(node, _CONVOLUTION, _LINEAR) else None
    if norm is None or not calls(norm, "aten._native_batch_norm_legit_no_training.default"):
        return
    if not _fits(program, node, norm):
        return
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


def _fits(program: FxProgram, node: fx.Node, norm: fx.Node) -> bool:
    """Whether only the first result is read, and the weights are stored as they are."""
    if any(not calls(user, GETITEM) or user.args[1] != 0 for user in norm.users):
        return False
    if not all(
        is_node(weight) and str(weight) in program.constants for weight in (node.args[1], norm.args[1])
    ):
        return False
    return calls(node, _LINEAR) or len(shape_of(node.args[0])) in (3, 4)


# --- weights of 8 bits -----------------------------------------------------------------------------------

_FOUR_BITS = (-8, 7)


@each_call
def weight_only(program: FxProgram, node: fx.Node) -> None:
    """A float linear whose weight is dequantized from int8 per output channel becomes aten._weight_int8pack_mm.

    The bias is added by an operator of its own. Weights in the range of four bits stay as they are: ExecuTorch packs
    those for et_vk.linear_qcs4w, whose results are far from torch's.
    """
    if not calls(node, _LINEAR) or calls(node.args[0], DEQUANTIZE, DEQUANTIZE_BY_TENSOR):
        return
    weight, val = node.args[1], node.meta["val"]
    if not _packs(program, weight):
        return
    assert isinstance(weight, fx.Node)
    target = torch.ops.aten._weight_int8pack_mm.default
    new = program.call(node, target, (node.args[0], weight.args[0], weight.args[1]), val)
    bias = argument(node, 2)
    if bias is not None:
        new = program.call(node, torch.ops.aten.add.Tensor, (new, bias), val)
    node.replace_all_uses_with(new)


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


# --- what is packed --------------------------------------------------------------------------------------


@each_call
def fold_constants(program: FxProgram, node: fx.Node) -> None:
    """Compute ahead of time the weights that operators pack by themselves, where constants give them.

    Those are dequantized weights of operators that stayed in float. What other operators read is computed on the
    device, as in ExecuTorch.
    """
    features = features_of(node)
    if features is None or not features.prepacks:
        return
    for index, arg in enumerate(node.args):
        if index != features.primary and program.is_constant(arg) and arg.op != "placeholder":
            value = program.constant(arg)
            assert value is not None
            node.update_arg(index, program.add_constant(f"{arg.name}_folded", value.contiguous()))


def insert_prepack(program: FxProgram) -> FxProgram:
    """Put et_vk.prepack between a constant and the operators that do not pack it by themselves."""
    program, target = program.copy(), Operator(PREPACK, ("x",))
    first = next(program.calls(), program.output)
    for node in [n for n in program.graph.nodes if n.op == "placeholder" and n.name in program.constants]:
        takers = [user for user in node.users if _needs_tensor(user, node)]
        if takers:
            packed = program.call(first, target, (node,), node.meta["val"])
            for user in takers:
                user.replace_input_with(node, packed)
    return program


def _needs_tensor(user: fx.Node, node: fx.Node) -> bool:
    """Whether ``user`` wants a tensor on the device in the place of the constant."""
    features = features_of(user)
    if features is None or target_name(user) == PREPACK:
        return False
    return not features.prepacks or user.args[features.primary] is node

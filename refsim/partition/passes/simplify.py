"""Passes over a delegate once it is fused: they simplify what is left in float."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from refsim.partition.fx_program import FxProgram, Operator, each_call
from refsim.partition.nodes import (
    CLONE,
    CLONE_DIM_ORDER,
    DEQUANTIZE,
    DEQUANTIZE_AFFINE,
    DEQUANTIZE_BY_TENSOR,
    NOT_JOINED,
    QUANTIZE,
    QUANTIZE_AFFINE,
    QUANTIZE_BY_TENSOR,
    RELU,
    VIEW_COPY,
    argument,
    calls,
    dtype_of,
    only_user,
    shape_of,
    target_name,
)

# --- several operators as one ----------------------------------------------------------------------------

RMS_NORM = Operator("et_vk.rms_norm.default", ("x", "weight", "eps"))
_MUL, _ADD, _MEAN = "aten.mul.Tensor", "aten.add.Tensor", "aten.mean.dim"
_RSQRT, _POW = "aten.rsqrt.default", "aten.pow.Tensor_Scalar"


@each_call
def fuse_rms_norm(program: FxProgram, node: fx.Node) -> None:
    """x * rsqrt(mean(x * x) + eps) * weight becomes et_vk.rms_norm; the mean is over the last dim and keeps it."""
    found = _scaled_norm(program, node)
    if found is not None:
        node.replace_all_uses_with(program.call(node, RMS_NORM, found, node.meta["val"]))


def _orders(node: Any) -> Iterator[tuple[Any, Any]]:
    """The two operands, in both orders."""
    yield node.args[0], node.args[1]
    yield node.args[1], node.args[0]


def _scaled_norm(program: FxProgram, node: fx.Node) -> tuple[Any, Any, float] | None:
    """x, weight and eps, if the node scales a norm."""
    if not calls(node, _MUL):
        return None
    for norm, weight in _orders(node):
        if not calls(norm, _MUL):
            continue
        for root, x in _orders(norm):
            eps = _eps(program, root, x) if calls(root, _RSQRT) else None
            if eps is not None:
                return x, weight, eps
    return None


def _eps(program: FxProgram, root: fx.Node, x: Any) -> float | None:
    """What is added to the mean of squares of ``x``; None if the root is of anything else."""
    added: Any = root.args[0]
    if not calls(added, _ADD):
        return None
    for mean, eps in _orders(added):
        value = program.constant(eps)
        if value is None or value.numel() != 1 or not calls(mean, _MEAN):
            continue
        squares = mean.args[0]
        if list(mean.args[1]) != [-1] or not argument(mean, 2, False):
            continue
        by_itself = calls(squares, _MUL) and squares.args[0] is squares.args[1] is x
        if by_itself or (calls(squares, _POW) and squares.args[0] is x and squares.args[1] == 2):
            return float(value)
    return None


CONV_WITH_CLAMP = Operator(
    "et_vk.conv_with_clamp.default",
    (
        "input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups",
        "output_min", "output_max",
    ),
)  # fmt: skip


@each_call
def fuse_clamp(program: FxProgram, node: fx.Node) -> None:
    """A float convolution followed by relu or hardtanh becomes et_vk.conv_with_clamp."""
    if target_name(node) not in (RELU, "aten.hardtanh.default"):
        return
    source = argument(node, 0)
    if not calls(source, "aten.convolution.default") or len(source.users) != 1 or NOT_JOINED in source.meta:
        return
    bounds = (0.0, sys.float_info.max)
    if target_name(node) != RELU:
        bounds = (argument(node, 1, -1.0), argument(node, 2, 1.0))
    new = program.call(source, CONV_WITH_CLAMP, (*source.args, *bounds), node.meta["val"])
    node.replace_all_uses_with(new)


# --- what nothing needs ----------------------------------------------------------------------------------

REDUNDANT = (
    "aten.clone.default",
    "aten.alias.default",
    "aten.alias_copy.default",
    "aten.lift_fresh_copy.default",
    "aten.expand_copy.default",
    "dim_order_ops._clone_dim_order.default",
    "dim_order_ops._to_dim_order_copy.default",
)
#: copy(self, source) gives the source; a delegate takes it only where neither dtype nor shape changes.
COPY = "aten.copy.default"


@each_call
def remove_redundant(program: FxProgram, node: fx.Node) -> None:
    """Remove copies that change neither dtype nor shape: within a delegate nothing can tell them from their source."""
    if target_name(node) in (*REDUNDANT, COPY):
        source = node.args[1 if target_name(node) == COPY else 0]
        if dtype_of(source) == dtype_of(node) and shape_of(source) == shape_of(node):
            node.replace_all_uses_with(source)


_PAIRS = {
    QUANTIZE: DEQUANTIZE,
    QUANTIZE_BY_TENSOR: DEQUANTIZE_BY_TENSOR,
    QUANTIZE_AFFINE: DEQUANTIZE_AFFINE,
}


@each_call
def fold_qdq(program: FxProgram, node: fx.Node) -> None:
    """Remove a quantize and the dequantize behind it where both have the same parameters.

    This is for what no pattern took: no kernel needs the int8 tensor. The float value then is not rounded to a whole
    step, which changes it by half a step at most. Upstream does the same. A pair with different parameters stays.
    """
    for user in list(node.users) if target_name(node) in _PAIRS else ():
        if calls(user, _PAIRS[target_name(node)]) and user.args[1:6] == node.args[1:6]:
            user.replace_all_uses_with(node.args[0])


# --- views -----------------------------------------------------------------------------------------------

_VIEW = torch.ops.aten.view_copy.default
_ELEMENTWISE = (
    CLONE,
    CLONE_DIM_ORDER,
    "aten.alias_copy.default",
    "aten._to_copy.default",
    "dim_order_ops._to_dim_order_copy.default",
    QUANTIZE,
    DEQUANTIZE,
    *(
        f"aten.{name}.default"
        for name in (
            "abs", "clamp", "ceil", "floor", "neg", "relu", "round", "sigmoid", "silu", "sqrt", "tanh", "sign",
            "reciprocal", "gelu", "rsqrt", "exp", "log",
        )
    ),
)  # fmt: skip


@each_call
def squeeze_inputs(program: FxProgram, node: fx.Node) -> None:
    """Compute relu and gelu without dims of size 1: a view in front drops them, one behind brings them back."""
    if target_name(node) not in (RELU, "aten.gelu.default") or not _squeezed(shape_of(node.args[0])):
        return
    source, shape, val = node.args[0], shape_of(node), node.meta["val"]
    short = list(shape)
    while len(short) > 2 and 1 in short:
        short.remove(1)
    node.update_arg(0, program.call(node, _VIEW, (source, short), val.new_empty(short)))
    node.meta["val"] = val.new_empty(short)
    readers = list(node.users)
    back = program.call(node.next, _VIEW, (node, list(shape)), val)
    for reader in readers:
        reader.replace_input_with(node, back)


def _squeezed(shape: tuple[int, ...]) -> bool:
    """Whether ExecuTorch does it: images and rows of one channel stay as they are."""
    if len(shape) == 3:
        return shape[1] == 1 and shape[0] > 1
    if len(shape) != 4 or shape[:3] == (1, 1, 1):
        return False
    image = shape[0] == 1 and all(size > 1 for size in shape[2:])
    return not image and 1 in shape[:3]


@each_call
def fuse_views(program: FxProgram, node: fx.Node) -> None:
    """Keep one view of several along a chain of elementwise operators: the first, with the shape of the last."""
    chain = _chain(node) if calls(node, VIEW_COPY) and node.users else []
    views = [item for item in chain if calls(item, VIEW_COPY)]
    if not views:
        return
    last = views[-1]
    shape, val = last.args[1], last.meta["val"]
    node.update_arg(1, shape)
    for item in (node, *chain[: chain.index(last)]):
        item.meta["val"] = item.meta["val"].new_empty(shape_of(last))
    assert tuple(val.shape) == shape_of(node)
    for view in views:
        view.replace_all_uses_with(view.args[0])


def _chain(view: fx.Node) -> list[fx.Node]:
    """The views and elementwise operators behind ``view``, while each has one user."""
    found: list[fx.Node] = []
    current = only_user(view)
    while current is not None and calls(current, VIEW_COPY, *_ELEMENTWISE):
        found.append(current)
        current = only_user(current)
    return found


@each_call
def squeeze_views(program: FxProgram, node: fx.Node) -> None:
    """Make a view a squeeze_copy if it only drops dims of size 1, and an unsqueeze_copy if it only adds one.

    As upstream does, dims are matched from the first to the last; one that is added at the end is -1. So a dim of size
    1 at the end is never dropped, and a view that adds one in front stays a view, and so does one whose shape is not
    written out (-1 for a size).
    """
    if not calls(node, VIEW_COPY):
        return
    source, shape = node.args[0], node.args[1]
    dropped = dropped_dims(shape_of(source), shape)
    added = dropped_dims(shape, shape_of(source), last=True)
    args: tuple[Any, ...]
    if dropped:
        target, args = torch.ops.aten.squeeze_copy.dims, (source, dropped)
    elif added and len(added) == 1 and added[0] > 0:
        at_the_end = added[0] == len(shape) - 1
        target, args = torch.ops.aten.unsqueeze_copy.default, (source, -1 if at_the_end else added[0])
    else:
        return
    node.replace_all_uses_with(program.call(node, target, args, node.meta["val"]))


def dropped_dims(long: Sequence[int], short: Sequence[int], last: bool = False) -> list[int] | None:
    """The dims of size 1 that ``short`` leaves out of ``long``, matched in order; None if it does anything else.

    With ``last``, dims behind the last match may be left out too.
    """
    dims: list[int] = []
    at = 0
    for dim, size in enumerate(long):
        if at < len(short) and short[at] == size:
            at += 1
        elif size == 1 and (at < len(short) or last):
            dims.append(dim)
        else:
            return None
    return dims if at == len(short) and dims else None

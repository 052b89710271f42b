"""Passes before a program is divided: to the operators that the delegate and the patterns know."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from refsim.partition.fx_program import FxProgram, Operator, each_call
from refsim.partition.nodes import (
    CLONE,
    CLONE_DIM_ORDER,
    DEQUANTIZE,
    DEQUANTIZE_PER_CHANNEL,
    QUANTIZE,
    calls,
    is_single_tensor,
    target_name,
)


@each_call
def functional(program: FxProgram, node: fx.Node) -> None:
    """Replace operators that return views by those that copy: in a delegate no tensor is a view of another."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload) and target.is_view:
        space, _, base = target._schema.name.partition("::")
        packet = getattr(getattr(torch.ops, space), f"{base}_copy", None)
        if packet is not None:
            node.target = getattr(packet, target._overloadname)


@each_call
def scalars(program: FxProgram, node: fx.Node) -> None:
    """Turn numbers that stand for tensors (``x + 2``) into constants of their own: int64, float32 or bool, no dims."""
    schema = getattr(node.target, "_schema", None)
    given = () if schema is None else zip(schema.arguments, node.args, strict=False)
    for index, (argument, value) in enumerate(given):
        if isinstance(argument.type, torch.TensorType) and isinstance(value, bool | int | float):
            text = str(value).replace("-", "minus_").replace(".", "_").replace("+", "")
            node.update_arg(index, program.add_constant(f"scalar_{text}", torch.tensor(value), shared=False))


# --- what changes nothing --------------------------------------------------------------------------------

_SAME_SHAPE = ("aten.slice_copy.Tensor", "aten._to_copy.default")
_PAIRS = {
    DEQUANTIZE: QUANTIZE,
    DEQUANTIZE_PER_CHANNEL: "quantized_decomposed.quantize_per_channel.default",
}


def remove_noops(program: FxProgram) -> FxProgram:
    """Remove what changes nothing, before patterns are looked for.

    That is a slice of everything, a conversion to the same dtype, and a dequantize with the quantize behind it if both
    have the same parameters.
    """
    return _without_pairs(_without_copies(program))


@each_call
def _without_copies(program: FxProgram, node: fx.Node) -> None:
    if target_name(node) in _SAME_SHAPE and _same(node, node.args[0]):
        node.replace_all_uses_with(node.args[0])


@each_call
def _without_pairs(program: FxProgram, node: fx.Node) -> None:
    for user in list(node.users) if target_name(node) in _PAIRS else ():
        if calls(user, _PAIRS[target_name(node)]) and user.args[1:] == node.args[1:]:
            user.replace_all_uses_with(node.args[0])


def _same(node: fx.Node, source: object) -> bool:
    assert isinstance(source, fx.Node)
    one, other = node.meta["val"], source.meta["val"]
    return bool(one.dtype == other.dtype and one.shape == other.shape and one.stride() == other.stride())


# --- dtypes ----------------------------------------------------------------------------------------------

#: Operators that ExecuTorch does this for, and whether integers become float32.
_ARITHMETIC = {
    "aten.add.Tensor": False,
    "aten.mul.Tensor": False,
    "aten.sub.Tensor": False,
    "aten.div.Tensor": True,
    "aten.div.Tensor_mode": False,
    "aten.minimum.default": False,
}
_BINARY = frozenset(
    f"aten.{name}"
    for name in (
        "add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "div.Tensor_mode", "pow.Tensor_Tensor",
        "minimum.default", "eq.Tensor", "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor",
    )
)  # fmt: skip


def _operands(node: fx.Node) -> list[fx.Node]:
    """The two tensors that an operator computes with; empty if they are anything else."""
    found = [arg for arg in node.args[:2] if isinstance(arg, fx.Node)]
    return found if len(found) == 2 and all(map(is_single_tensor, found)) else []


@each_call
def mixed_types(program: FxProgram, node: fx.Node) -> None:
    """Convert operands of arithmetic that are of unequal dtypes, so that each operator sees one dtype."""
    operands = _operands(node) if target_name(node) in _ARITHMETIC else []
    dtype = _dtype(node, operands) if operands else None
    for index, source in enumerate(operands):
        if dtype is not None and source.meta["val"].dtype != dtype:
            node.update_arg(index, _converted(program, node, source, dtype))


@each_call
def promote(program: FxProgram, node: fx.Node) -> None:
    """In a delegate, operators on two tensors of unequal dtypes compute in float32: others are converted."""
    operands = _operands(node) if target_name(node) in _BINARY else []
    if len({operand.meta["val"].dtype for operand in operands}) > 1:
        for operand in operands:
            if operand.meta["val"].dtype != torch.float32:
                node.replace_input_with(operand, _converted(program, node, operand, torch.float32))


def _converted(program: FxProgram, reader: fx.Node, source: fx.Node, dtype: torch.dtype) -> fx.Node:
    """A node in front of ``reader`` that gives ``source`` in another dtype."""
    copy = torch.ops.aten._to_copy.default
    return program.call(reader, copy, (source,), source.meta["val"].to(dtype), {"dtype": dtype})


def _dtype(node: fx.Node, operands: list[fx.Node]) -> torch.dtype:
    """The dtype that torch computes in. A tensor without dims counts less there: it does not widen a float16."""
    dtype = torch.result_type(*(operand.meta["val"] for operand in operands))
    to_float = _ARITHMETIC[target_name(node)] or node.kwargs.get("rounding_mode", "") is None
    return torch.get_default_dtype() if to_float and not dtype.is_floating_point else dtype


# --- copies ----------------------------------------------------------------------------------------------


def _copy(x: torch.Tensor, *, dtype: torch.dtype | None = None, **placement: Any) -> torch.Tensor:
    """What both do to a constant."""
    return x.to(dtype or x.dtype, copy=True).contiguous()


CLONED = Operator(CLONE_DIM_ORDER, ("self", "non_blocking", "dim_order"), (False, None), _copy)
CONVERTED = Operator(
    "dim_order_ops._to_dim_order_copy.default",
    ("self", "dtype", "layout", "device", "pin_memory", "non_blocking", "dim_order"),
    (None, None, None, None, False, None),
    _copy,
)
#: Outside of delegates: an uninitialized tensor, whose dtype is that of the tensor that its kernel is given.
EMPTY = Operator(
    "dim_order_ops._empty_dim_order.default",
    ("size", "dim_order"),
    compute=lambda size, *, dim_order, dtype=None, **placement: torch.empty(size, dtype=dtype),
)
_TARGETS = {CLONE: CLONED, "aten._to_copy.default": CONVERTED, "aten.empty.memory_format": EMPTY}


@each_call
def dim_order(program: FxProgram, node: fx.Node) -> None:
    """Name copies as ExecuTorch does: by the order of dims that they produce, slowest first, not by a memory format."""
    target = _TARGETS.get(target_name(node))
    if target is not None:
        kwargs: dict[str, Any] = dict(node.kwargs)
        kwargs.pop("memory_format", None)
        kwargs["dim_order"] = [int(dim) for dim in node.meta["val"].dim_order()]
        node.target, node.kwargs = target, kwargs

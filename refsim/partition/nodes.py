"""Questions to the nodes of a torch.fx graph. They are read by duck typing: nothing here imports torch.

A node has ``op``, ``target``, ``args``, ``kwargs``, ``users`` and ``meta``. ``meta["val"]`` stands for its result: a
tensor (anything with a shape and a dtype), or a list or tuple of tensors.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from math import prod
from typing import Any

from refsim.core.dtypes import name_of

GETITEM = "getitem"
QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"
DEQUANTIZE_PER_CHANNEL = "quantized_decomposed.dequantize_per_channel.default"
#: The same for a whole tensor whose scale and zero point are made at run time, and what makes them.
CHOOSE_QPARAMS = "quantized_decomposed.choose_qparams.tensor"
QUANTIZE_BY_TENSOR = "quantized_decomposed.quantize_per_tensor.tensor"
DEQUANTIZE_BY_TENSOR = "quantized_decomposed.dequantize_per_tensor.tensor"
#: torchao's operators for activations whose scales are made at run time, and for weights in groups.
QUANTIZE_AFFINE = "torchao.quantize_affine.default"
DEQUANTIZE_AFFINE = "torchao.dequantize_affine.default"
CLONE = "aten.clone.default"
CLONE_DIM_ORDER = "dim_order_ops._clone_dim_order.default"
VIEW_COPY = "aten.view_copy.default"
RELU = "aten.relu.default"
PREPACK = "et_vk.prepack.default"
#: Where a node of the whole program keeps why it may not be part of an int8 operator, joined with another float one, or
#: in a delegate at all: a runtime's own words.
NOT_FUSED, NOT_JOINED, NOT_INSIDE = "not fused", "not joined", "not inside"
#: Where a node that a pass made keeps the name of the one for which it was made.
MADE_FOR = "made for"
#: Where a node keeps whether its shape, or its number, may change between runs.
DYNAMIC = "dynamic"
#: Python's functions that compute sizes, and torch's, by their names in delegates.
_SIZES = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "floordiv": "floordiv",
    "aten.sym_size.int": "sym_size.int",
}


def is_node(item: Any) -> bool:
    return hasattr(item, "meta") and hasattr(item, "target")


def is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def target_name(node: Any) -> str:
    """The operator that a node calls, as it is serialized: ``aten.relu.default``; empty for other nodes."""
    if node.op != "call_function":
        return ""
    if node.target is operator.getitem:
        return GETITEM
    name = getattr(node.target, "__name__", "") if _is_python(node.target) else str(node.target)
    return _SIZES.get(name, name)


def _is_python(target: Any) -> bool:
    """Whether Python's operators, on numbers, have the function."""
    return getattr(target, "__module__", "") in ("_operator", "operator")


def is_number(item: Any) -> bool:
    """Whether a node gives a size, which delegates hold as a SymInt."""
    return is_node(item) and type(item.meta.get("val")) is int


def calls(node: Any, *names: str) -> bool:
    """Whether ``node`` is a node that calls one of the operators."""
    return is_node(node) and target_name(node) in names


def tensors_of(node: Any) -> list[Any]:
    """The tensors that a node produces; empty if it produces anything else."""
    value = node.meta.get("val") if is_node(node) else None
    if is_tensor(value):
        return [value]
    if isinstance(value, list | tuple) and all(is_tensor(item) for item in value):
        return list(value)
    return []


def is_single_tensor(item: Any) -> bool:
    return is_node(item) and is_tensor(item.meta.get("val"))


def is_tensor_node(item: Any) -> bool:
    return is_node(item) and bool(tensors_of(item))


def is_tensor_arg(item: Any) -> bool:
    """Whether an argument is a tensor, or a non-empty list of tensors."""
    if isinstance(item, list | tuple):
        return bool(item) and all(is_tensor_node(entry) for entry in item)
    return is_tensor_node(item)


def nodes_in(item: Any) -> Iterator[Any]:
    """The nodes of an argument: itself, or those of a list."""
    if is_node(item):
        yield item
    elif isinstance(item, list | tuple):
        for entry in item:
            yield from nodes_in(entry)


def shape_of(node: Any) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def numel_of(node: Any) -> int:
    return prod(shape_of(node))


def dtype_of(node: Any) -> str:
    """``float32``, ``int8``, ...: the dtype's name without its module."""
    return name_of(node.meta["val"].dtype)


def argument(node: Any, index: int, default: Any = None) -> Any:
    """A positional argument, or the default where the call stops earlier."""
    return node.args[index] if len(node.args) > index else default


def only_user(node: Any) -> Any:
    """The one node that uses ``node``, or None."""
    return next(iter(node.users)) if len(node.users) == 1 else None

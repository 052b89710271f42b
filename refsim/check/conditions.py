"""Words that a runtime's description uses to say what an operator needs of its arguments; `refsim.check.words` has all.

Each condition takes a call and the arguments' keys, and answers True or False; None where the call has no such
argument, so that nothing can be said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from refsim.check.subject import Call, Operand
from refsim.formats.literals import Bool, BoolList, Double, DoubleList, Int, IntList, Null, String
from refsim.formats.vkgraph.schema import SymInt, Value, ValueList, VkTensor

Answer = bool | None


def literal(call: Call, key: str) -> Any:
    """An argument that is no tensor, as a Python value: None for null, a tuple for a list."""
    value = call.value(key)
    if isinstance(value, ValueList):
        return tuple(_plain(call.delegate.graph.values[item]) for item in value.items)
    return _plain(value)


def _plain(value: Value | None) -> Any:
    if isinstance(value, Int | Double | Bool | String | SymInt):
        return value.value
    if isinstance(value, IntList | DoubleList | BoolList | ValueList):
        return value.items
    return None if isinstance(value, Null) else value


def describe(call: Call, key: str) -> str:
    """An argument as a finding names it: ``float32 6x16 texture_3d W-packed``, or its value."""
    operand = call.operand(key)
    if operand is None:
        found = literal(call, key)
        return "nothing" if found is None else f"{list(found) if isinstance(found, tuple) else found}"
    shape = "x".join(map(str, operand.dims)) or "scalar"
    place = "constant" if operand.is_constant else f"{operand.storage.lower()} {operand.layout}"
    return f"{operand.dtype.lower()} {shape} {place}"


def within(number: Any, least: float | None, most: float | None, multiple: int | None = None) -> Answer:
    if not isinstance(number, int | float):
        return None
    return (
        (least is None or number >= least)
        and (most is None or number <= most)
        and (multiple is None or number % multiple == 0)
    )


# --- what an argument is ---------------------------------------------------------------------------------


def constant(call: Call, arg: str) -> Answer:
    """The argument is a tensor with stored data, or null."""
    if isinstance(call.value(arg), Null):
        return True
    operand = call.operand(arg)
    return None if operand is None else operand.is_constant


def computed(call: Call, arg: str) -> Answer:
    """The argument is a tensor without stored data."""
    operand = call.operand(arg)
    return None if operand is None else not operand.is_constant


def given(call: Call, arg: str) -> Answer:
    """The argument is not null."""
    value = call.value(arg)
    return None if value is None else not isinstance(value, Null)


def is_list(call: Call, arg: str) -> Answer:
    """The argument is a list of numbers or of values."""
    value = call.value(arg)
    return None if value is None else isinstance(value, IntList | DoubleList | BoolList | ValueList)


def packed_int8(call: Call, arg: str) -> Answer:
    """The tensor has one of the PACKED_INT8 layouts."""
    operand = call.operand(arg)
    return None if operand is None else operand.is_packed_int8


# --- numbers and lists -----------------------------------------------------------------------------------


def length(call: Call, arg: str, least: int | None = None, most: int | None = None) -> Answer:
    """The entries of a list. Nothing is said of an argument that is no list."""
    found = literal(call, arg)
    return within(len(found), least, most) if isinstance(found, tuple) else None


def tensors(call: Call, arg: str, least: int | None = None, most: int | None = None) -> Answer:
    """The tensors of a list; entries that are null do not count."""
    value = call.value(arg)
    if not isinstance(value, ValueList):
        return None
    held = (call.delegate.graph.values[item] for item in value.items)
    return within(sum(isinstance(item, VkTensor) for item in held), least, most)


def equals(call: Call, arg: str, values: Sequence[Any]) -> Answer:
    """A number, a flag or a string is one of these."""
    found = literal(call, arg)
    return None if found is None or isinstance(found, tuple) else found in values


def whole(call: Call, arg: str) -> Answer:
    """The argument is a whole number, or one that each run computes."""
    value = call.value(arg)
    return None if value is None else isinstance(value, Int | SymInt)


def entries(call: Call, arg: str, value: int) -> Answer:
    """Every entry of a list is this number."""
    found = literal(call, arg)
    return all(item == value for item in found) if isinstance(found, tuple) else None


def number(
    call: Call, arg: str, least: float | None = None, most: float | None = None, multiple: int | None = None
) -> Answer:
    """A number is within bounds, and a multiple."""
    return within(literal(call, arg), least, most, multiple)


# --- shapes ----------------------------------------------------------------------------------------------


def rank(call: Call, arg: str, least: int | None = None, most: int | None = None) -> Answer:
    """The number of dims of a tensor."""
    operand = call.operand(arg)
    return None if operand is None else within(len(operand.dims), least, most)


def size(
    call: Call,
    arg: str,
    dim: int,
    least: int | None = None,
    most: int | None = None,
    multiple: int | None = None,
) -> Answer:
    """The size of one dim of a tensor; a dim that it lacks has size 1."""
    operand = call.operand(arg)
    return None if operand is None else within(size_of(operand, dim), least, most, multiple)


def size_of(operand: Operand, dim: int) -> int:
    rank = len(operand.dims)
    return operand.dims[dim] if -rank <= dim < rank else 1


def planes(call: Call, arg: str, keep: int = 2, least: int | None = None, most: int | None = None) -> Answer:
    """The product of all dims but the last ``keep``."""
    operand = call.operand(arg)
    if operand is None:
        return None
    return within(prod(operand.dims[: max(len(operand.dims) - keep, 0)]), least, most)


def row_blocks(call: Call, arg: str, block: str) -> Answer:
    """A list of block sizes says one block for each row of a tensor: 1 everywhere, the whole row in the last dim."""
    operand, sizes = call.operand(arg), literal(call, block)
    if operand is None or not isinstance(sizes, tuple) or not sizes or not operand.dims:
        return None
    return all(found == 1 for found in sizes[:-1]) and sizes[-1] == operand.dims[-1]


# --- how a tensor lies in memory -------------------------------------------------------------------------


def storage(call: Call, arg: str, values: Sequence[str]) -> Answer:
    """The tensor lies in one of BUFFER, TEXTURE_3D, TEXTURE_2D."""
    operand = call.operand(arg)
    return None if operand is None or operand.is_constant else operand.storage in values


def dtype(call: Call, arg: str, values: Sequence[str]) -> Answer:
    """The tensor has one of these dtypes."""
    operand = call.operand(arg)
    return None if operand is None else operand.dtype in values


def same_dtype(call: Call, args: Sequence[str]) -> Answer:
    """These tensors have one dtype."""
    found = {operand.dtype for arg in args if (operand := call.operand(arg)) is not None}
    return len(found) == 1 if found else None


def packed(call: Call, arg: str, dim: str) -> Answer:
    """The tensor packs this dim: W, H or C."""
    operand = call.operand(arg)
    return None if operand is None or operand.is_constant else operand.packed_dim == dim


def same_packed(call: Call, args: Sequence[str]) -> Answer:
    """These tensors pack the same dim; constants are laid out as the others are."""
    found = [
        operand for arg in args if (operand := call.operand(arg)) is not None and not operand.is_constant
    ]
    return None if len(found) < 2 else len({operand.packed_dim for operand in found}) == 1


def reduces(call: Call, arg: str, dims: str, what: Sequence[str]) -> Answer:
    """One of the dims, a list or a number, is the ``packed`` one of the tensor, its ``last``, or W, H, C, N."""
    operand, found = call.operand(arg), literal(call, dims)
    numbers = found if isinstance(found, tuple) else (found,)
    if operand is None or not all(isinstance(dim, int) for dim in numbers):
        return None
    rank = max(len(operand.dims), 1)
    names = {"WHCN"[rank - 1 - dim % rank] if rank - 1 - dim % rank < 4 else "" for dim in numbers}
    wanted = {"packed": operand.packed_dim, "last": "W"}
    return bool(names & {wanted.get(name, name) for name in what})


CONDITIONS: dict[str, Callable[..., Answer]] = {
    function.__name__: function
    for function in (
        constant,
        computed,
        given,
        is_list,
        packed_int8,
        length,
        tensors,
        equals,
        whole,
        entries,
        number,
        rank,
        size,
        planes,
        row_blocks,
        storage,
        dtype,
        same_dtype,
        packed,
        same_packed,
        reduces,
    )
}

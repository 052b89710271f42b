"""Conditions on sizes that belong together, of one tensor or of two; as those of `refsim.check.conditions`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod

from refsim.check.conditions import Answer, literal, size_of, within
from refsim.check.subject import Call, Operand
from refsim.formats.literals import Int


def numel(call: Call, arg: str, least: int | None = None, multiple: int | None = None) -> Answer:
    """The number of elements of a tensor."""
    operand = call.operand(arg)
    return None if operand is None else within(operand.tensor.numel, least, None, multiple)


def bytes_(call: Call, arg: str, multiple: int) -> Answer:
    """The size of a tensor without padding."""
    operand = call.operand(arg)
    return None if operand is None else operand.tensor.nbytes % multiple == 0


def same_numel(call: Call, args: Sequence[str]) -> Answer:
    """These tensors have as many elements."""
    found = {operand.tensor.numel for arg in args if (operand := call.operand(arg)) is not None}
    return len(found) == 1 if found else None


def same_bytes(call: Call, args: Sequence[str]) -> Answer:
    """These tensors have one size without padding."""
    found = {operand.tensor.nbytes for arg in args if (operand := call.operand(arg)) is not None}
    return len(found) == 1 if found else None


def same_rank(call: Call, args: Sequence[str]) -> Answer:
    """These tensors have as many dims."""
    found = {len(operand.dims) for arg in args if (operand := call.operand(arg)) is not None}
    return len(found) == 1 if found else None


def _pair(call: Call, arg: str, other: str) -> tuple[Operand, Operand] | None:
    first, second = call.operand(arg), call.operand(other)
    return None if first is None or second is None else (first, second)


def same_size(call: Call, arg: str, dim: int, other: str, at: int) -> Answer:
    """A dim of one tensor is as large as a dim of another."""
    pair = _pair(call, arg, other)
    return None if pair is None else size_of(pair[0], dim) == size_of(pair[1], at)


def size_at_least(call: Call, arg: str, dim: int, other: str, at: int) -> Answer:
    """A dim of one tensor is not smaller than a dim of another."""
    pair = _pair(call, arg, other)
    return None if pair is None else size_of(pair[0], dim) >= size_of(pair[1], at)


def holds(call: Call, arg: str, other: str, dim: int, exactly: bool = False) -> Answer:
    """A vector of floats has a value for each entry of a dim; ``exactly``: and no more."""
    pair = _pair(call, arg, other)
    if pair is None:
        return None
    found, need = pair[0].tensor.nbytes, 4 * size_of(pair[1], dim)
    return found == need if exactly else found >= need


def read_int(call: Call, arg: str, least: int | None = None, most: int | None = None) -> Answer:
    """A number as a runtime reads it that takes values of another type for 0."""
    value = call.value(arg)
    return None if value is None else within(value.value if isinstance(value, Int) else 0, least, most)


def read_size(call: Call, arg: str, other: str, dim: int) -> Answer:
    """The same is the size of a dim."""
    operand = call.operand(other)
    return None if operand is None else read_int(call, arg, size_of(operand, dim), size_of(operand, dim))


def each(call: Call, arg: str, least: int) -> Answer:
    """Every entry of a list is at least this."""
    found = literal(call, arg)
    return all(item >= least for item in found) if isinstance(found, tuple) else None


def row_holds(call: Call, arg: str, kernel: str, x: str) -> Answer:
    """A row of a weight has all taps of a window, each with all channels of an image."""
    pair, window = _pair(call, arg, x), literal(call, kernel)
    if pair is None or not isinstance(window, tuple):
        return None
    return size_of(pair[0], 1) >= prod(window) * size_of(pair[1], 1)


def planes_of(call: Call, out: str, x: str, weight: str) -> Answer:
    """An output has as many elements as the image has places, times the rows of a weight."""
    pair, rows = _pair(call, out, x), call.operand(weight)
    if pair is None or rows is None:
        return None
    places = pair[1].tensor.numel // max(size_of(pair[1], 1), 1)
    return pair[0].tensor.numel == places * size_of(rows, 0)


def channels_divide(call: Call, arg: str, factor: str) -> Answer:
    """The channels are a multiple of the factor's square."""
    operand, r = call.operand(arg), literal(call, factor)
    return None if operand is None or not isinstance(r, int) or r < 1 else size_of(operand, -3) % (r * r) == 0


def shuffled(call: Call, arg: str, out: str, factor: str) -> Answer:
    """One tensor has the dims of the other after a pixel shuffle."""
    pair, r = _pair(call, arg, out), literal(call, factor)
    if pair is None or not isinstance(r, int):
        return None
    (*_, c, h, w), found = pair[0].dims, pair[1].dims
    return tuple(found[-3:]) == (c // (r * r), h * r, w * r)


def _rows(operand: Operand) -> int:
    return prod(operand.dims[:-1])


def rows(call: Call, arg: str) -> Answer:
    """The rows of a tensor are four at most, or a multiple of four."""
    operand = call.operand(arg)
    return None if operand is None else _rows(operand) <= 4 or _rows(operand) % 4 == 0


def a_row_each(call: Call, arg: str, x: str) -> Answer:
    """One tensor has a value for each row of the other."""
    pair = _pair(call, arg, x)
    return None if pair is None else pair[0].tensor.numel == _rows(pair[1])


def last_is(call: Call, arg: str, x: str) -> Answer:
    """The last entry of a list is the last dim of a tensor."""
    operand, found = call.operand(x), literal(call, arg)
    if operand is None or not isinstance(found, tuple):
        return None
    return bool(found) and found[-1] == size_of(operand, -1)


def packed_pairs(call: Call, arg: str, x: str) -> Answer:
    """The second dim of one tensor is half the last of the other, rounded up."""
    pair = _pair(call, arg, x)
    return None if pair is None else size_of(pair[0], 1) == -(-size_of(pair[1], -1) // 2)


def group_rows(call: Call, arg: str, x: str, group: str) -> Answer:
    """One tensor has a row for each group of the other's last dim."""
    pair, size_ = _pair(call, arg, x), literal(call, group)
    if pair is None or not isinstance(size_, int) or size_ < 1:
        return None
    return size_of(pair[0], 0) >= -(-size_of(pair[1], -1) // size_)


def whole_groups(call: Call, arg: str, x: str, group: str) -> Answer:
    """One tensor's second dim, times a size, is the other's last dim."""
    pair, size_ = _pair(call, arg, x), literal(call, group)
    if pair is None or not isinstance(size_, int):
        return None
    return size_of(pair[0], 1) * size_ == size_of(pair[1], -1)


def neighbours(call: Call, arg: str, dims: str) -> Answer:
    """The dims of a list stand side by side."""
    operand, found = call.operand(arg), literal(call, dims)
    if operand is None or not isinstance(found, tuple) or not operand.dims:
        return None
    places = sorted(dim % len(operand.dims) for dim in found)
    return all(second == first + 1 for first, second in pairwise(places))


SIZES: dict[str, Callable[..., Answer]] = {
    function.__name__: function
    for function in (
        numel,
        same_numel,
        same_bytes,
        same_rank,
        same_size,
        size_at_least,
        holds,
        read_int,
        read_size,
        each,
        row_holds,
        planes_of,
        channels_divide,
        shuffled,
        rows,
        a_row_each,
        last_is,
        packed_pairs,
        group_rows,
        whole_groups,
        neighbours,
    )
} | {"bytes": bytes_}

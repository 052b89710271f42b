"""What a file may declare: limits, checked before anything of that size is allocated, and checks of ids and codes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from refsim.core.errors import FormatError, LimitError
from refsim.formats.file import quote


@dataclass(frozen=True)
class Limits:
    """The most that a file may declare.

    ``rank``: dims of a tensor. ``tensor_bytes``: bytes of one tensor's elements. ``total_bytes``: those of all tensors
    that are not constants; what is run may be smaller, see `refsim.core.size_limit`. ``list_items``: values of one
    ValueList, with those of lists inside it. ``list_depth``: how deep lists nest.
    """

    rank: int = 8
    tensor_bytes: int = 2**31
    total_bytes: int = 2**34
    list_items: int = 2**16
    list_depth: int = 8

    def check(self, where: str, name: str, got: int) -> None:
        """Raise LimitError if ``got`` exceeds the limit called ``name``."""
        allowed = getattr(self, name)
        if got > allowed:
            raise LimitError(where, f"exceeds the limit {name}", got=got, need=f"at most {allowed}")


LIMITS = Limits()


def span(count: int, lowest: int = 0) -> str:
    """The ids of ``count`` things, as an error names them."""
    return f"{lowest} to {count - 1}" if count > lowest else "none: there are no such things"


def check_ids(place: str, ids: Iterable[int], count: int, lowest: int = 0) -> None:
    """Every id is in [lowest, count)."""
    for position, number in enumerate(ids):
        if not lowest <= number < count:
            raise FormatError(f"{place}[{position}]", "no such id", got=number, need=span(count, lowest))


def check_size(place: str, dims: tuple[int, ...], itemsize: int, limits: Limits) -> int:
    """Bytes of a tensor of ``dims``; raises LimitError, and FormatError for a negative dim."""
    limits.check(f"{place}.dims", "rank", len(dims))
    nbytes = itemsize
    for position, size in enumerate(dims):
        if size < 0:
            raise FormatError(f"{place}.dims[{position}]", "negative size", got=size, need="at least 0")
        nbytes *= size
    # a dim of 0 must not hide an absurd one: strides and grids are made of the other dims
    for size in dims:
        limits.check(f"{place}.dims", "tensor_bytes", size)
    limits.check(f"{place}.dims {list(dims)}", "tensor_bytes", nbytes)
    return nbytes


def check_code(place: str, code: int, known: Iterable[int]) -> None:
    """An enum's code is one of ``known``."""
    if code not in known:
        raise FormatError(place, "unknown code", got=code, need=f"one of {sorted(known)}")


def sizes(place: str, content: Any, most: int = 8) -> tuple[int, ...]:
    """A shape out of JSON: a list of at most ``most`` whole numbers, none negative; FormatError for anything else."""
    fits = isinstance(content, list) and len(content) <= most
    if not fits or not all(type(size) is int and 0 <= size < 1 << 31 for size in content):
        raise FormatError(place, "not a shape", got=quote(content), need=f"a list of up to {most} sizes")
    return tuple(content)

"""Values that are no tensors: null, numbers, strings and lists of numbers, the same in graphs and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from refsim.formats.flatbuffer.schema import At, Table, named


@dataclass(frozen=True, slots=True)
class Null:
    """No value: an argument that was left out."""


@dataclass(frozen=True, slots=True)
class Int:
    value: Annotated[int, At(0, "long", 0)]


@dataclass(frozen=True, slots=True)
class Double:
    value: Annotated[float, At(0, "double", 0.0)]


@dataclass(frozen=True, slots=True)
class Bool:
    value: Annotated[bool, At(0, "bool", False)]


@dataclass(frozen=True, slots=True)
class String:
    value: Annotated[str, At(0, "string")]


@dataclass(frozen=True, slots=True)
class IntList:
    items: Annotated[tuple[int, ...], At(0, "[long]")]


@dataclass(frozen=True, slots=True)
class DoubleList:
    items: Annotated[tuple[float, ...], At(0, "[double]")]


@dataclass(frozen=True, slots=True)
class BoolList:
    items: Annotated[tuple[bool, ...], At(0, "[bool]")]


#: Tables that both formats define alike.
COMMON_TABLES: Mapping[str, Table] = named(Null, Int, Bool, Double, String, IntList, DoubleList, BoolList)

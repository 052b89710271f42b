"""Values that are no tensors: null, numbers, strings and lists of numbers, the same in graphs and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refsim.formats.flatbuffer.schema import Table, table


@dataclass(frozen=True, slots=True)
class Null:
    """No value: an argument that was left out."""


@dataclass(frozen=True, slots=True)
class Int:
    value: int


@dataclass(frozen=True, slots=True)
class Double:
    value: float


@dataclass(frozen=True, slots=True)
class Bool:
    value: bool


@dataclass(frozen=True, slots=True)
class String:
    value: str


@dataclass(frozen=True, slots=True)
class IntList:
    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DoubleList:
    items: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class BoolList:
    items: tuple[bool, ...]


#: Tables that both formats define alike.
COMMON_TABLES: Mapping[str, Table] = {
    "Null": table(Null),
    "Int": table(Int, (0, "value", "long", 0)),
    "Bool": table(Bool, (0, "value", "bool", False)),
    "Double": table(Double, (0, "value", "double", 0.0)),
    "String": table(String, (0, "value", "string")),
    "IntList": table(IntList, (0, "items", "[long]")),
    "DoubleList": table(DoubleList, (0, "items", "[double]")),
    "BoolList": table(BoolList, (0, "items", "[bool]")),
}

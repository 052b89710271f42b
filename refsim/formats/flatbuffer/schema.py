"""What a flatbuffer file holds, as data: a class for each table, whose fields say where they stand and how.

A field is ``Annotated[type, At(slot, stored)]`` or ``Annotated[type, At(slot, stored, default)]``; the default is the
file's, for a field that it leaves out. How it is stored is one of

- a flatbuffer scalar (``int``, ``ulong``, ...), ``string``, or a vector of scalars, ``[int]``;
- ``bytes``: a ``[ubyte]`` that is kept as a view of the file;
- the name of a table, a vector of tables ``[Table]``, or a union.

A union takes two slots: its type byte is in ``slot - 1``, its table in ``slot``. The decoder and the encoder know no
field beyond these. The classes are in `refsim.formats.vkgraph.schema` and `refsim.formats.pte.schema`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

#: Flatbuffer scalar -> little-endian struct code.
SCALARS = {
    "bool": "?",
    "byte": "b",
    "ubyte": "B",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "double": "d",
}


class TableField(NamedTuple):
    slot: int
    name: str
    type: str
    default: Any = None


@dataclass(frozen=True)
class Table:
    """A flatbuffer table: the class that holds it, and its rows.

    ``cls`` None means that the table only wraps its single field, whose value then stands for it.
    """

    cls: type | None
    fields: tuple[TableField, ...]

    def slots(self, unions: Collection[str]) -> set[int]:
        """The slots that the rows take; a union takes the one before its own too."""
        return {row.slot - back for row in self.fields for back in ((0, 1) if row.type in unions else (0,))}


@dataclass(frozen=True)
class FileSchema:
    """A file format: 4-byte identifier, root table, tables and unions (member 1 first; 0 is "none")."""

    identifier: bytes
    root: str
    tables: Mapping[str, Table]
    unions: Mapping[str, tuple[str, ...]]
    union_of: Mapping[tuple[str, type], int] = field(init=False)

    def __post_init__(self) -> None:
        kinds = {
            (union, cls): code
            for union, members in self.unions.items()
            for code, name in enumerate(members, 1)
            if (cls := self.tables[name].cls) is not None
        }
        object.__setattr__(self, "union_of", kinds)


class At(NamedTuple):
    """Where a field of a class stands in its table, and how; ``default`` for scalars alone."""

    slot: int
    type: str
    default: Any = None


def table(cls: type) -> Table:
    """The table that a class holds: a row for each field, in the order of the slots."""
    space = vars(sys.modules[cls.__module__])
    rows = []
    for name, said in vars(cls).get("__annotations__", {}).items():
        (place,) = get_args(eval(said, space))[1:]
        rows.append(TableField(place.slot, name, place.type, place.default))
    return Table(cls, tuple(sorted(rows)))


def named(*classes: type, **others: type | Table) -> dict[str, Table]:
    """Tables by name: classes under their own, ``others`` under the name that the format gives them."""
    given = {cls.__name__: cls for cls in classes} | others
    return {name: one if isinstance(one, Table) else table(one) for name, one in given.items()}


def members(tables: Mapping[str, Table], union: Any) -> tuple[str, ...]:
    """The names of the tables of a union of classes, in its order."""
    names = {one.cls: name for name, one in tables.items()}
    return tuple(names[cls] for cls in get_args(union))


def wrapper(slot: int, name: str, type: str, default: Any = None) -> Table:
    """A table that only wraps its single field."""
    return Table(None, (TableField(slot, name, type, default),))

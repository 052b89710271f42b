"""What a flatbuffer file holds, as data: one row per field of each table.

A row is ``(slot, name, type)`` or ``(slot, name, type, default)``. A type is one of

- a flatbuffer scalar (``int``, ``ulong``, ...), ``string``, or a vector of scalars, ``[int]``;
- ``bytes``: a ``[ubyte]`` that is kept as a view of the file;
- the name of a table, a vector of tables ``[Table]``, or a union.

A union takes two slots: its type byte is in ``slot - 1``, its table in ``slot``. The decoder and the encoder know no
field beyond these rows. The rows themselves are in `refsim.formats.vkgraph.schema` and `refsim.formats.pte.schema`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

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


def table(cls: type | None, *rows: tuple[Any, ...]) -> Table:
    """A `Table` from plain rows."""
    return Table(cls, tuple(TableField(*row) for row in rows))

"""A bounds-checked flatbuffer decoder, driven by the rows of a `FileSchema`.

The file is untrusted: every offset, table, vtable, vector and string is checked before it is read. An object that
several offsets point at is decoded once. No more than twice the size of the file is decoded in all, so that overlapping
objects cannot make memory grow beyond a fixed multiple of the file.
"""

from __future__ import annotations

import struct
from typing import Any, NoReturn

from refsim.core.counted import counted
from refsim.core.errors import FormatError, LimitError
from refsim.formats.flatbuffer.schema import SCALARS, FileSchema, Table, TableField

_STRUCTS = {name: struct.Struct("<" + code) for name, code in SCALARS.items()}
_U16 = struct.Struct("<H")
#: Nesting of tables; neither schema is recursive, both stay below 10.
MAX_DEPTH = 32
#: Most tables, vectors and strings in one flatbuffer; real programs have thousands. The smallest table takes 4 bytes of
#: the file, the Python object made of it far more.
MAX_OBJECTS = 2**20


def decode(data: memoryview, schema: FileSchema, where: str, base: int = 0) -> Any:
    """Decode the root table of ``data`` into the classes of ``schema``.

    ``where`` names the file in errors and ``base`` is the place of ``data`` in it, in bytes. Raises
    FormatError for anything that the schema does not allow.
    """
    return _Decoder(data, schema, where, base).root()


def unread(data: memoryview, schema: FileSchema, where: str) -> list[str]:
    """The fields that ``data`` has and ``schema`` lacks, as ``Table slot N``: what a rewritten file would lose."""
    decoder = _Decoder(data, schema, where, 0)
    decoder.root()
    found = set()
    for name, at in decoder.done:
        if name in schema.tables:
            vtable, slots, _length = decoder.vtable(name, at)
            present = {slot for slot in range(slots) if _U16.unpack_from(data, vtable + 4 + 2 * slot)[0]}
            found |= {(name, slot) for slot in present - schema.tables[name].slots(schema.unions)}
    return [f"{name} slot {slot}" for name, slot in sorted(found)]


class _Decoder:
    def __init__(self, data: memoryview, schema: FileSchema, where: str, base: int) -> None:
        self.data = data
        self.size = len(data)
        self.schema = schema
        self.where = where
        self.base = base
        self.budget = 2 * self.size
        self.done: dict[tuple[str, int], Any] = {}

    def fail(self, place: str, at: int, what: str, got: object, need: object) -> NoReturn:
        raise FormatError(f"{self.where}: {place} at byte {self.base + at}", what, got=got, need=need)

    def root(self) -> Any:
        name = self.schema.root
        if self.size < 8:
            self.fail(name, 0, "flatbuffer too short", counted(self.size, "byte"), "at least 8")
        identifier = bytes(self.data[4:8])
        if identifier != self.schema.identifier:
            self.fail(name, 4, "wrong file identifier", identifier, self.schema.identifier)
        return self.table(name, self.follow("root", 0), 0)

    def follow(self, place: str, at: int) -> int:
        """Where the offset stored at ``at`` (already known to be inside) points."""
        (offset,) = _STRUCTS["uint"].unpack_from(self.data, at)
        if not 4 <= offset <= self.size - 4 - at:
            self.fail(place, at, "offset leaves the file", offset, f"4 to {self.size - 4 - at}")
        return at + int(offset)

    def charge(self, place: str, at: int, nbytes: int) -> None:
        self.budget -= nbytes
        if self.budget < 0:
            self.fail(
                place,
                at,
                "objects overlap",
                f"more than {counted(2 * self.size, 'byte')}",
                "distinct objects",
            )

    def table(self, name: str, at: int, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self.fail(name, at, "nested too deep", depth, f"at most {MAX_DEPTH}")
        if (name, at) in self.done:
            return self.done[name, at]
        if len(self.done) > MAX_OBJECTS:
            raise LimitError(
                self.where, "too many objects", got=len(self.done), need=f"at most {MAX_OBJECTS}"
            )
        rows = self.schema.tables[name]
        vtable, slots, length = self.vtable(name, at)
        self.charge(name, at, length)
        values: dict[str, Any] = {}
        for row in rows.fields:
            values[row.name] = self.field(name, row, at, (vtable, slots, length), depth)
        result = self.build(rows, values)
        self.done[name, at] = result
        return result

    @staticmethod
    def build(rows: Table, values: dict[str, Any]) -> Any:
        return rows.cls(**values) if rows.cls is not None else values[rows.fields[0].name]

    def vtable(self, name: str, at: int) -> tuple[int, int, int]:
        """(position of the vtable, its number of slots, bytes of the table) of the table at ``at``."""
        (back,) = _STRUCTS["int"].unpack_from(self.data, at)
        vtable = at - back
        if not 0 <= vtable <= self.size - 4:
            self.fail(name, at, "vtable leaves the file", vtable, f"0 to {self.size - 4}")
        (nbytes,) = _U16.unpack_from(self.data, vtable)
        (length,) = _U16.unpack_from(self.data, vtable + 2)
        if nbytes < 4 or nbytes % 2 or vtable + nbytes > self.size:
            self.fail(name, vtable, "bad vtable size", nbytes, f"even, 4 to {self.size - vtable}")
        if length < 4 or at + length > self.size:
            self.fail(name, vtable + 2, "bad table size", length, f"4 to {self.size - at}")
        return vtable, (nbytes - 4) // 2, length

    def locate(self, place: str, at: int, slot: int, width: int, shape: tuple[int, int, int]) -> int:
        """Position of a slot's inline bytes, or 0 if the table lacks it."""
        vtable, slots, length = shape
        if slot >= slots:
            return 0
        (offset,) = _U16.unpack_from(self.data, vtable + 4 + 2 * slot)
        if offset == 0:
            return 0
        if offset < 4 or offset + width > length:
            self.fail(
                place, vtable + 4 + 2 * slot, "field leaves its table", offset, f"4 to {length - width}"
            )
        return at + int(offset)

    def field(self, name: str, row: TableField, at: int, shape: tuple[int, int, int], depth: int) -> Any:
        place = f"{name}.{row.name}"
        scalar = _STRUCTS.get(row.type)
        if scalar is not None:
            here = self.locate(place, at, row.slot, scalar.size, shape)
            return scalar.unpack_from(self.data, here)[0] if here else row.default
        here = self.locate(place, at, row.slot, 4, shape)
        if row.type in self.schema.unions:
            return self.union(place, row, at, here, shape, depth)
        if not here:
            return _ABSENT.get(row.type, () if row.type.startswith("[") else None)
        target = self.follow(place, here)
        if row.type in self.schema.tables:
            return self.table(row.type, target, depth + 1)
        return self.vector(place, row.type, target, depth)

    def union(
        self, place: str, row: TableField, at: int, here: int, shape: tuple[int, int, int], depth: int
    ) -> Any:
        members = self.schema.unions[row.type]
        kind_at = self.locate(place, at, row.slot - 1, 1, shape)
        kind = self.data[kind_at] if kind_at else 0
        if not 1 <= kind <= len(members):
            self.fail(place, kind_at or at, "unknown kind", kind, f"1 to {len(members)}")
        if not here:
            self.fail(place, at, "kind without a value", members[kind - 1], "an offset")
        return self.table(members[kind - 1], self.follow(place, here), depth + 1)

    def vector(self, place: str, kind: str, at: int, depth: int) -> Any:
        """A string, byte view or vector whose length word is at ``at`` (already known to be inside)."""
        key = (kind, at)
        if key in self.done:
            return self.done[key]
        (count,) = _STRUCTS["uint"].unpack_from(self.data, at)
        element = kind.strip("[]")
        scalar = _STRUCTS.get(element)
        width = 1 if kind in _ABSENT else scalar.size if scalar is not None else 4
        # a string is followed by a zero byte that its length does not count
        room = (self.size - at - 4 - (kind == "string")) // width
        if count > room:
            self.fail(place, at, "length runs past the end", count, f"at most {room}")
        start, stop = at + 4, at + 4 + count * width
        result: Any
        if kind == "bytes":
            return self.data[start:stop]
        self.charge(place, at, stop - start)
        if kind == "string":
            result = self.text(place, start, stop)
        elif scalar is not None:
            result = struct.unpack_from(f"<{count}{SCALARS[element]}", self.data, start)
        else:
            result = tuple(
                self.table(element, self.follow(place, entry), depth + 1) for entry in range(start, stop, 4)
            )
        self.done[key] = result
        return result

    def text(self, place: str, start: int, stop: int) -> str:
        if self.data[stop] != 0:
            self.fail(place, stop, "string without its end", self.data[stop], 0)
        try:
            return str(self.data[start:stop], "utf-8")
        except UnicodeDecodeError as error:
            self.fail(place, start + error.start, "string is not UTF-8", error.reason, "UTF-8")


_ABSENT: dict[str, Any] = {"string": "", "bytes": memoryview(b"")}

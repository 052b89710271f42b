"""A flatbuffer encoder, driven by the rows of a `FileSchema`: equal input gives equal bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any, NoReturn

import flatbuffers

from refsim.core.errors import FormatError
from refsim.formats.file import quote
from refsim.formats.flatbuffer.schema import SCALARS, FileSchema, Table, TableField

#: Alignment in bytes of whatever is read in place: flatbuffers, regions and segments, and the data in them.
ALIGNMENT = 16

#: Flatbuffer scalar -> (method of the builder that pushes it, bytes).
_PUSH = {
    "bool": ("PrependBool", 1),
    "byte": ("PrependInt8", 1),
    "ubyte": ("PrependUint8", 1),
    "int": ("PrependInt32", 4),
    "uint": ("PrependUint32", 4),
    "long": ("PrependInt64", 8),
    "ulong": ("PrependUint64", 8),
    "double": ("PrependFloat64", 8),
}


def encode(root: Any, schema: FileSchema, where: str = "flatbuffer") -> bytes:
    """The flatbuffer of ``root``, an instance of the root class of ``schema``.

    Strings and vectors are written even if they are empty, since upstream's reader fails where they are absent. Raises
    FormatError for a value that its field cannot hold.
    """
    encoder = _Encoder(schema, where)
    offset = encoder.table(schema.root, root)
    encoder.builder.Finish(offset, file_identifier=schema.identifier)
    return bytes(encoder.builder.Output())


class _Encoder:
    def __init__(self, schema: FileSchema, where: str) -> None:
        self.schema = schema
        self.where = where
        self.builder = flatbuffers.Builder(1024)

    def fail(self, place: str, value: object, need: str) -> NoReturn:
        raise FormatError(f"{self.where}: {place}", "cannot be written", got=quote(value), need=need)

    def table(self, name: str, value: Any) -> int:
        rows = self.schema.tables[name]
        if rows.cls is not None and not isinstance(value, rows.cls):
            self.fail(name, value, f"a {rows.cls.__name__}")
        # children come first: a flatbuffer's table only points forward
        ready = [self.ready(name, rows, row, value) for row in rows.fields]
        self.builder.StartObject(1 + max((row.slot for row in rows.fields), default=-1))
        # widest first, so that padding is needed at most once
        for _width, slot, push, content in sorted(
            (item for items in ready for item in items), key=lambda item: (-item[0], item[1])
        ):
            push(content)
            self.builder.Slot(slot)
        return int(self.builder.EndObject())

    def ready(self, name: str, rows: Table, row: TableField, value: Any) -> list[tuple[int, int, Any, Any]]:
        """What a field adds to its table as (bytes, slot, push, content): nothing, one such row, or two for a union."""
        place = f"{name}.{row.name}"
        content = value if rows.cls is None else getattr(value, row.name)
        if row.type in SCALARS:
            self.check(place, row.type, content)
            method, width = _PUSH[row.type]
            if content == row.default and not _is_negative_zero(content):
                return []
            return [(width, row.slot, getattr(self.builder, method), content)]
        pointer = self.builder.PrependUOffsetTRelative
        if row.type in self.schema.unions:
            kind = self.schema.union_of.get((row.type, type(content)))
            if kind is None:
                self.fail(place, content, f"one of {', '.join(self.schema.unions[row.type])}")
            target = self.table(self.schema.unions[row.type][kind - 1], content)
            return [(1, row.slot - 1, self.builder.PrependUint8, kind), (4, row.slot, pointer, target)]
        if content is None and row.type in self.schema.tables:
            return []
        return [(4, row.slot, pointer, self.reference(place, row.type, content))]

    def reference(self, place: str, kind: str, content: Any) -> int:
        """Write a string, a table or a vector; returns where it begins."""
        if kind in self.schema.tables:
            return self.table(kind, content)
        if kind == "string":
            return self.string(place, content)
        if kind == "bytes":
            # delegates and constants inside the program are read in place, so they start aligned
            self.builder.Prep(ALIGNMENT, len(content))
            return int(self.builder.CreateByteVector(bytes(content)))
        return self.vector(place, kind.strip("[]"), content)

    def string(self, place: str, content: Any) -> int:
        if not isinstance(content, str):
            self.fail(place, content, "a str")
        try:
            return int(self.builder.CreateSharedString(content))
        except UnicodeEncodeError:
            self.fail(place, content, "text that UTF-8 can hold")

    def vector(self, place: str, element: str, content: Sequence[Any]) -> int:
        builder = self.builder
        if element in SCALARS:
            for item in content:
                self.check(place, element, item)
            method, width = _PUSH[element]
            push = getattr(builder, method)
            items: Sequence[Any] = content
        else:
            items = [self.table(element, item) for item in content]
            push, width = builder.PrependUOffsetTRelative, 4
        builder.StartVector(width, len(items), width)
        for item in reversed(items):
            push(item)
        return int(builder.EndVector())

    def check(self, place: str, kind: str, value: Any) -> None:
        """The scalar fits its type."""
        allowed = {"bool": bool, "double": (float, int)}.get(kind, int)
        try:
            if not isinstance(value, allowed):  # type: ignore[arg-type]
                self.fail(place, value, f"a {kind}")
            struct.pack("<" + SCALARS[kind], value)
        except (struct.error, OverflowError):
            self.fail(place, value, f"a value that fits a {kind}")


def _is_negative_zero(value: Any) -> bool:
    """-0.0 equals the default 0.0 but is another value."""
    return isinstance(value, float) and value == 0.0 and math.copysign(1.0, value) < 0

"""Write a graph as a delegate blob, and a program as a .pte; equal input gives equal bytes.

The same schema rows that drive the reader drive the encoder, so `read_blob(write_blob(g, raw)).graph == g`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import flatbuffers

from refsim.core.errors import FormatError
from refsim.formats.pte.program import PROGRAM, DataSegment, Program
from refsim.formats.pte.pte import EXTENDED_AT, EXTENDED_LONG, EXTENDED_MAGIC
from refsim.formats.vkgraph.check import check_graph
from refsim.formats.vkgraph.flat import SCALARS, quote, view
from refsim.formats.vkgraph.limits import LIMITS, Limits
from refsim.formats.vkgraph.read import HEADER, HEADER_MAGIC
from refsim.formats.vkgraph.schema import NAMED_OFFSET, VKGRAPH, Field, Schema, Table, VkBytes, VkGraph

#: Alignment of the flatbuffer, of the constants region and of each constant, in bytes.
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


def pack_constants(
    parts: Sequence[bytes | bytearray | memoryview | VkBytes],
) -> tuple[tuple[VkBytes, ...], bytes]:
    """Rows and bytes of a constants region that holds ``parts`` in order, each padded to 16 bytes.

    A part given as a VkBytes is named data: it takes a row and no space.
    """
    rows: list[VkBytes] = []
    raw = bytearray()
    for part in parts:
        if isinstance(part, VkBytes):
            rows.append(part)
            continue
        data = view(part)
        rows.append(VkBytes(len(raw), len(data)))
        raw += data
        raw += bytes(-len(raw) % ALIGNMENT)
    return tuple(rows), bytes(raw)


def named_constant(key: str, length: int) -> VkBytes:
    """The row of a constant of ``length`` bytes that lies in the named data of the .pte under ``key``."""
    return VkBytes(NAMED_OFFSET, length, key)


def write_blob(
    graph: VkGraph,
    raw: bytes | bytearray | memoryview = b"",
    where: str = "graph",
    limits: Limits = LIMITS,
) -> bytes:
    """The delegate blob of ``graph``, whose constants lie in ``raw`` as its rows say.

    Raises FormatError or LimitError for a graph that the reader would refuse.
    """
    constants = view(raw)
    padded = len(constants) + -len(constants) % ALIGNMENT
    check_graph(graph, padded, where, limits)
    body = encode(graph, VKGRAPH, where)
    start = HEADER.size + -HEADER.size % ALIGNMENT
    raw_start = start + len(body) + -len(body) % ALIGNMENT
    blob = bytearray(raw_start + padded)
    HEADER.pack_into(blob, 0, HEADER_MAGIC, HEADER.size, start, len(body), raw_start, padded)
    blob[start : start + len(body)] = body
    blob[raw_start : raw_start + len(constants)] = constants
    return bytes(blob)


def write_pte(program: Program, segments: Sequence[bytes | bytearray | memoryview] = ()) -> bytes:
    """A .pte of ``program``, whose segments become ``segments`` in order, each aligned to 16 bytes.

    Ids and indices are not checked; `refsim.formats.pte.pte.read_pte` does.
    """
    rows: list[DataSegment] = []
    tail = bytearray()
    for segment in segments:
        rows.append(DataSegment(len(tail), len(segment)))
        tail += segment
        tail += bytes(-len(tail) % ALIGNMENT)
    body = bytearray(encode(replace(program, segments=tuple(rows)), PROGRAM))
    # offsets inside a flatbuffer are relative: only the one to the root crosses the inserted header
    (root,) = struct.unpack_from("<I", body, 0)
    struct.pack_into("<I", body, 0, root + EXTENDED_LONG.size)
    size = len(body) + EXTENDED_LONG.size
    base = size + -size % ALIGNMENT
    header = EXTENDED_LONG.pack(EXTENDED_MAGIC, EXTENDED_LONG.size, size, base if segments else 0, len(tail))
    body[EXTENDED_AT:EXTENDED_AT] = header
    return bytes(body) + bytes(base - size) + bytes(tail)


def encode(root: Any, schema: Schema, where: str = "flatbuffer") -> bytes:
    """The flatbuffer of ``root``, an instance of the root class of ``schema``.

    Strings and vectors are written even when empty, since upstream's reader misses absent ones. Raises
    FormatError for a value that its field cannot hold.
    """
    encoder = _Encoder(schema, where)
    offset = encoder.table(schema.root, root)
    encoder.builder.Finish(offset, file_identifier=schema.identifier)
    return bytes(encoder.builder.Output())


class _Encoder:
    def __init__(self, schema: Schema, where: str) -> None:
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

    def ready(self, name: str, rows: Table, row: Field, value: Any) -> list[tuple[int, int, Any, Any]]:
        """(bytes, slot, push, content) of what a field adds to its table: none, one, or two for a union."""
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
        """Write a string, a table or a vector; its place."""
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

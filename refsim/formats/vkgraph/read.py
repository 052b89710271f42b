"""Read a Vulkan delegate blob: ``VH00`` header, ``VK00`` graph, constants. Nothing is copied."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from refsim.core.counted import counted
from refsim.core.errors import FormatError, GraphError
from refsim.formats.file import quote, view
from refsim.formats.flatbuffer.decode import decode, unread
from refsim.formats.limits import LIMITS, Limits, span
from refsim.formats.vkgraph.check import check_graph
from refsim.formats.vkgraph.schema import NAMED_OFFSET, VKGRAPH, VkBytes, VkGraph

HEADER_MAGIC = b"VH00"
#: magic, header length, flatbuffer offset and size, constants offset and size; 4 zero bytes stand before it.
HEADER = struct.Struct("<4x4sHIIIQ")


class Constants:
    """The constants of a graph by ``constant_id``, as read-only views of the file.

    A constant with a key is looked up in ``named``; an absent key raises GraphError when asked for.
    """

    def __init__(
        self, rows: tuple[VkBytes, ...], raw: memoryview, named: Mapping[str, memoryview], where: str
    ) -> None:
        self._rows = rows
        self._raw = raw
        self._named = named
        self._where = where

    @property
    def raw(self) -> memoryview:
        """The constants region of the blob; named data is not in it."""
        return self._raw

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[memoryview]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> memoryview:
        """The bytes of constant ``number``, exactly as long as the graph says."""
        place = f"{self._where}: constants[{number}]"
        if not 0 <= number < len(self._rows):
            raise GraphError(place, "no such constant", got=number, need=span(len(self._rows)))
        row = self._rows[number]
        if row.offset != NAMED_OFFSET:
            return self._raw[row.offset : row.offset + row.length]
        data = self._named.get(row.named_key)
        if data is None:
            keys = f"one of {len(self._named)} keys of the named data"
            raise GraphError(place, "missing constant", got=quote(row.named_key), need=keys)
        if len(data) < row.length:
            raise FormatError(place, "named data too short", got=len(data), need=counted(row.length, "byte"))
        return data[: row.length]


@dataclass(frozen=True)
class Blob:
    """One delegate: its graph, and the bytes of its constants."""

    graph: VkGraph
    constants: Constants = field(compare=False)
    body: memoryview = field(default=memoryview(b""), compare=False, repr=False)

    def unread(self, where: str = "blob") -> list[str]:
        """Fields of the graph that are not read here, and so would be lost if it were written again."""
        return unread(self.body, VKGRAPH, where) if self.body else []


def read_blob(
    data: bytes | bytearray | memoryview,
    where: str = "blob",
    named: Mapping[str, memoryview] | None = None,
    limits: Limits = LIMITS,
) -> Blob:
    """Read and check a delegate blob.

    ``where`` names the file in errors; ``named`` is the named data of the .pte around it. Raises
    FormatError, or LimitError when a declared size exceeds ``limits``.
    """
    content = view(data)
    if len(content) < HEADER.size:
        raise FormatError(
            f"{where}: header at byte 0",
            "file too short",
            got=counted(len(content), "byte"),
            need=HEADER.size,
        )
    magic, length, start, size, raw_start, raw_size = HEADER.unpack_from(content)
    if magic != HEADER_MAGIC:
        raise FormatError(f"{where}: header at byte 4", "wrong magic", got=magic, need=HEADER_MAGIC)
    if length != HEADER.size:
        raise FormatError(f"{where}: header at byte 8", "wrong header length", got=length, need=HEADER.size)
    _check_region(f"{where}: flatbuffer offset at byte 10", start, size, HEADER.size, len(content))
    _check_region(f"{where}: constants offset at byte 18", raw_start, raw_size, start + size, len(content))
    graph: VkGraph = decode(content[start : start + size], VKGRAPH, where, base=start)
    check_graph(graph, raw_size, where, limits)
    raw = content[raw_start : raw_start + raw_size]
    constants = Constants(graph.constants, raw, named or {}, where)
    return Blob(graph, constants, content[start : start + size])


def _check_region(place: str, start: int, size: int, first: int, end: int) -> None:
    if start < first or start + size > end:
        raise FormatError(
            place,
            "region leaves the file",
            got=f"offset {start}, size {size}",
            need=f"within {first} to {end}",
        )

"""Write a program as a .pte; equal input gives equal bytes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from refsim.formats.flatbuffer.encode import ALIGNMENT, encode
from refsim.formats.pte.read import EXTENDED_AT, EXTENDED_LONG, EXTENDED_MAGIC
from refsim.formats.pte.schema import PROGRAM, DataSegment, Program


def write_pte(program: Program, segments: Sequence[bytes | bytearray | memoryview] = ()) -> bytes:
    """A .pte of ``program``, whose segments become ``segments`` in order, each aligned to 16 bytes.

    Ids and indices are not checked; `refsim.formats.pte.read.read_pte` does.
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

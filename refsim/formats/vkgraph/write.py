"""Write a graph as a delegate blob; equal input gives equal bytes.

The schema rows that drive the reader drive the encoder too, so `read_blob(write_blob(g, raw)).graph == g`.
"""

from __future__ import annotations

from collections.abc import Sequence

from refsim.formats.file import view
from refsim.formats.flatbuffer.encode import ALIGNMENT, encode
from refsim.formats.limits import LIMITS, Limits
from refsim.formats.vkgraph.check import check_graph
from refsim.formats.vkgraph.read import HEADER, HEADER_MAGIC
from refsim.formats.vkgraph.schema import NAMED_OFFSET, VKGRAPH, VkBytes, VkGraph


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

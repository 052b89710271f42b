"""Write a graph as a delegate blob; equal input gives equal bytes.

The schema rows that drive the reader drive the encoder too, so `read_blob(write_blob(g, raw)).graph == g`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from refsim.formats.file import view
from refsim.formats.flatbuffer.encode import ALIGNMENT, encode
from refsim.formats.limits import LIMITS, Limits
from refsim.formats.vkgraph.check import check_graph
from refsim.formats.vkgraph.read import HEADER, HEADER_MAGIC, Blob
from refsim.formats.vkgraph.schema import NAMED_OFFSET, VKGRAPH, Value, ValueList, VkBytes, VkGraph, VkTensor


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


def compacted(blob: Blob, where: str = "graph") -> bytes:
    """The blob with the values that its operators, inputs and outputs name, in their order, under new ids.

    Memory objects are numbered anew; values that share one still do. Named data of a .pte stays where it is.
    """
    graph = blob.graph
    used = sorted(_used(graph))
    ids = {old: new for new, old in enumerate(used)}
    held = [graph.values[number] for number in used]
    objects = _numbered(v.mem_obj_id for v in held if isinstance(v, VkTensor))
    stored = _numbered(v.constant_id for v in held if isinstance(v, VkTensor))

    def value(row: Value) -> Value:
        if isinstance(row, ValueList):
            return ValueList(tuple(ids[item] for item in row.items))
        if isinstance(row, VkTensor):
            return replace(row, mem_obj_id=objects[row.mem_obj_id], constant_id=stored[row.constant_id])
        return row

    parts: list[memoryview | VkBytes] = []
    for number in stored:
        if number >= 0:
            row = graph.constants[number]
            parts.append(row if row.offset == NAMED_OFFSET else blob.constants[number])
    rows, raw = pack_constants(parts)
    made = replace(
        graph,
        chain=tuple(replace(call, args=tuple(ids[a] for a in call.args)) for call in graph.chain),
        values=tuple(map(value, held)),
        input_ids=tuple(ids[number] for number in graph.input_ids),
        output_ids=tuple(ids[number] for number in graph.output_ids),
        constants=rows,
        shaders=(),
    )
    return write_blob(made, raw, where)


def _numbered(numbers: Iterable[int]) -> dict[int, int]:
    """New numbers from 0 on, in the order of the old ones' first use; -1, which stands for none, stays."""
    found = {-1: -1}
    for number in numbers:
        found.setdefault(number, len(found) - 1)
    return found


def _used(graph: VkGraph) -> set[int]:
    found: set[int] = set()
    waiting = [*graph.input_ids, *graph.output_ids, *(a for call in graph.chain for a in call.args)]
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            held = graph.values[number]
            waiting += held.items if isinstance(held, ValueList) else ()
    return found

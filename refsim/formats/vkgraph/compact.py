"""A delegate blob without the values and constants that nothing in it uses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import NAMED_OFFSET, Value, ValueList, VkBytes, VkGraph, VkTensor
from refsim.formats.vkgraph.write import pack_constants, write_blob


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

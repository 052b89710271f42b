"""Values that lie in each other's memory: programs for a device that read a buffer as words, or fill it with words.

A runtime on a device runs them. Here every value has bytes of its own, so that a run would give other bytes.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from refsim.graph.graph import Graph, refs

#: What an error needs where a file can be run by nothing else.
RUNTIME = "ExecuTorch's runtime: only it runs what expose, extract --pte and golden export write"


def other_view(graph: Graph, number: int) -> int | None:
    """A value in the memory of this one that takes it for int32 words, or the other way round; None without any."""
    mine = graph.tensors[number]
    together = (n for n, t in graph.tensors.items() if t.mem_obj_id == mine.mem_obj_id)
    return next((n for n in together if _views(graph, {n, number})), None)


def read_as_another(graph: Graph) -> tuple[int, int] | None:
    """(what is read, what its memory was last written as), of the first read that depends on shared memory."""
    last: dict[int, int] = {}

    def clash(number: int) -> tuple[int, int] | None:
        tensor = graph.tensors.get(number)
        if tensor is None:
            return None
        held = last.get(tensor.mem_obj_id, number)
        return (number, held) if _views(graph, {held, number}) else None

    def write(number: int) -> None:
        if number in graph.tensors:
            last[graph.tensors[number].mem_obj_id] = number

    for number in graph.inputs:
        write(number)
    for node in graph.nodes:
        for number in refs(node.args):
            if (found := clash(number)) is not None:
                return found
        for number in node.outputs:
            write(number)
    return next((found for number in graph.outputs if (found := clash(number)) is not None), None)


def _views(graph: Graph, values: Collection[int]) -> bool:
    """Whether two values of one memory object are an int8 buffer and int32 words."""
    tensors = [graph.tensors[value] for value in values]
    stored = any(tensor.data is not None or tensor.mem_obj_id < 0 for tensor in tensors)
    return not stored and {tensor.dtype for tensor in tensors} == {np.dtype(np.int8), np.dtype(np.int32)}

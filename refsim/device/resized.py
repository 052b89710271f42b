"""Buffers of a device's run that have the bound's shape, where an operator should have had a smaller one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from refsim.core.buffer import PackedBuffer, offsets
from refsim.core.counted import counted
from refsim.core.tensor import TensorDesc
from refsim.device.dumped import Buffers, Row, dumped
from refsim.exec.model import Model
from refsim.graph.graph import Graph, Node


def told(model: Model, recorded: Buffers, row: Row, right: PackedBuffer | None) -> Row:
    """The row, which says why if its buffer has the bound's shape; ``right``: what its operator should have written."""
    graph = model.graphs[row.delegate]
    if graph.bound is None:
        return row
    if not row.unfit:
        return _cut(graph, recorded, row, right)
    node = graph.writer(row.node)
    desc = graph.bound.tensors[node.outputs[0]].desc
    if desc is None or recorded.unfit(row.value, desc):
        return row
    shape = "x".join(map(str, desc.shape))
    own = next((resize for other, resize in graph.misshaped() if other is node), None)
    if own is not None:
        cause = f"not resized: it has the bound's shape {shape}{_places(recorded, row, desc, right)}"
        return replace(row, wrong=True, cause=cause)
    if (source := _source(graph, node)) is not None:
        return replace(row, cause=f"the bound's shape: it follows from {source}, which is not resized")
    return row


def _cut(graph: Graph, recorded: Buffers, row: Row, right: PackedBuffer | None) -> Row:
    """The row of a buffer that was dumped with the sizes of the run, though its operator was not resized."""
    if right is None or row.run is None or row.run.same:
        return row
    node = graph.writer(row.node)
    if not any(other is node and resize.keeps for other, resize in graph.misshaped()):
        source = _source(graph, node) if row.wrong and not row.cause else None
        told = f"stale rows: it may have read those of {source}, which is not resized"
        return row if source is None else replace(row, cause=told)
    bound = graph.root.tensors[node.outputs[0]].desc
    if bound is None or not bound.is_int8:
        return row
    raw = recorded.beside(row.value, right)
    inside = tuple(slice(size) for size in right.desc.shape)
    places = offsets(bound).reshape(bound.shape)[inside]
    held = places < raw.size
    if (raw.view(np.int8)[places[held]] != right.unpack()[held]).any():
        return row
    shape, count = "x".join(map(str, bound.shape)), counted(int(held.sum()), "element")
    cause = (
        f"not resized: {count} lie right, where the bound's shape {shape} has them; all others are stale rows"
    )
    return replace(row, wrong=True, cause=cause)


def _places(recorded: Buffers, row: Row, desc: TensorDesc, right: PackedBuffer | None) -> str:
    """Whether the right elements lie where the bound has them, and how many stale ones lie beside them."""
    if right is None or not desc.is_int8:
        return ""
    held = dumped(recorded, row.value, PackedBuffer(desc)).unpack()
    inside = held[tuple(slice(size) for size in right.desc.shape)]
    wrong = int(np.count_nonzero(inside != right.unpack()))
    stale = counted(held.size - inside.size, "other element")
    if wrong:
        return f"; {wrong} of {counted(inside.size, 'element')} differ, and {stale} are stale rows"
    return f"; all {counted(inside.size, 'element')} lie right, where the bound has them, and {stale} are stale rows"


def _source(graph: Graph, node: Node) -> Node | None:
    """The first operator before a node, on a way to it, that upstream does not resize."""
    wrong = {id(other) for other, resize in graph.misshaped() if not resize.stops}
    makers = {value: other for other in graph.nodes for value in other.outputs}
    seen, waiting = set(), [node]
    found: list[Node] = []
    while waiting:
        for value in waiting.pop().reads:
            before = makers.get(value)
            if before is not None and id(before) not in seen:
                seen.add(id(before))
                waiting.append(before)
                found += [before] if id(before) in wrong else []
    return min(found, key=lambda one: one.number, default=None)

"""Values that follow from single bytes: what a dequantize and operators on single elements make of an int8 tensor.

Such a value is a table of 256 numbers, made by the definitions of refsim.aten. So a chain from a dequantize to a
quantize is a table of 256 bytes, exact by construction, whatever stands in between: a clamp, a hardswish, a sigmoid,
arithmetic with a constant, or several of them. Every executor that looks values up finds them here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim import aten
from refsim.core.errors import RefsimError
from refsim.graph.graph import Graph, Node, Ref, refs
from refsim.ops.base.traits import Family

#: Every byte, in the order of a table.
BYTES = np.arange(256, dtype=np.uint8).view(np.int8)


@dataclass(frozen=True)
class ByteTable:
    """What a value is for each byte (`BYTES`) of the int8 value ``source``; ``nodes`` compute it otherwise."""

    source: int
    values: np.ndarray
    nodes: frozenset[int]


@dataclass(frozen=True)
class ConstantNumber:
    """A single element that follows from constants; ``nodes`` compute it otherwise."""

    value: np.ndarray
    nodes: frozenset[int] = frozenset()


def tables(
    graph: Graph, constants: Mapping[int, np.ndarray], kept: Set[int] = frozenset()
) -> dict[int, ByteTable]:
    """The values of a graph that follow from single bytes, int8 ones among them where a quantize makes them.

    Chains go on behind a quantize, except from a value that is ``kept``: there another one begins.
    """
    found: dict[int, ByteTable] = {}
    numbers = {value: ConstantNumber(array) for value, array in constants.items() if array.size == 1}
    for node in graph.nodes:
        call = node.call
        if call is not None and call.op.family in (Family.DEQUANTIZE, Family.QUANTIZE):
            x, (value,) = node.inputs["x"], node.outputs
            before = found.get(x)
            if x in numbers:
                number = numbers[x]
                numbers[value] = ConstantNumber(quantized(node, number.value), number.nodes | {node.number})
                continue
            if call.op.family is Family.DEQUANTIZE and (before is None or x in kept):
                before = ByteTable(x, BYTES, frozenset())
            if before is not None:
                nodes = before.nodes | {node.number}
                found[value] = ByteTable(before.source, quantized(node, before.values), nodes)
        elif node.is_float and len(node.outputs) == 1:
            _of_elements(graph, node, found, numbers)
    return found


def quantized(node: Node, values: np.ndarray) -> np.ndarray:
    """What a quantize or dequantize makes of each of these."""
    call = node.call
    assert call is not None
    return call.op.define(call.params, call.target, values)


def _of_elements(
    graph: Graph, node: Node, known: dict[int, ByteTable], numbers: dict[int, ConstantNumber]
) -> None:
    """Note what a float node makes of numbers, and at most one table, if it works on single elements."""
    (value,) = node.outputs
    out = graph.tensors[value]
    used = [known[value] for value in refs(node.args) if value in known]
    sources = {table.source for table in used}
    nodes = frozenset([node.number]).union(*(table.nodes for table in used))
    args: list[Any] = []
    for arg in node.args:
        if not isinstance(arg, Ref):
            args.append(arg)
        elif arg.id in known and graph.tensors[arg.id].shape == out.shape != ():
            args.append(known[arg.id].values)
        elif arg.id in numbers and numbers[arg.id].value.ndim <= len(out.shape):
            number = numbers[arg.id]
            nodes |= number.nodes
            # ATen promotes by whether it has dims
            args.append(number.value.reshape(number.value.shape[-1:]) if used else number.value)
        else:
            return
    try:
        operator = aten.find(node.name, str(node))
        if len(sources) > 1 or operator.row is None or not operator.row.pointwise:
            return
        (made,) = operator.run(args, str(node), graph.place(node))
    except (RefsimError, ValueError):  # it is raised when the node runs
        return
    for source in sources:  # what is made of a table is as large as that
        known[value] = ByteTable(source, out.typed(made), nodes)
    if not sources and made.size == 1 and made.shape == out.shape:
        numbers[value] = ConstantNumber(out.typed(made), nodes)


def steps(graph: Graph, chosen: Mapping[int, ByteTable], kept: Set[int]) -> dict[int, list[Node]]:
    """The values to look up, of these, each with the nodes that need not run because of it; the last one makes it.

    A node need not run if nobody reads its outputs but such nodes and those that make the chosen values, and none of
    its outputs is among ``kept``. It stands with the first value that is made of it. A chosen value that only nodes
    read that need not run is left out.
    """
    readers = readers_of(graph)
    makers = {value: node for node in graph.nodes for value in node.outputs}
    looking = {makers[value].number for value in chosen}
    between = {n for value, table in chosen.items() for n in table.nodes if n != makers[value].number}
    free: set[int] = set()
    for node in reversed(graph.nodes):
        read = [reader.number for value in node.outputs for reader in readers[value]]
        if node.number in between and read and not kept & set(node.outputs):
            free |= {node.number} if all(number in free | looking for number in read) else set()
    left = [value for value in chosen if makers[value].number not in free]
    found: dict[int, list[Node]] = {}
    for value in left:
        members = chosen[value].nodes & free | {makers[value].number}
        free -= members
        found[value] = [node for node in graph.nodes if node.number in members]
    return found


def readers_of(graph: Graph) -> Mapping[int, list[Node]]:
    """The nodes that read each value."""
    found: dict[int, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        for value in node.reads:
            found[value].append(node)
    return found

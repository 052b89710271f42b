"""What a delegate costs: operators, dispatches of int8 kernels, clones and the bytes they move, memory."""

from __future__ import annotations

from dataclasses import dataclass

from refsim.formats.vkgraph.schema import VkGraph
from refsim.graph import memory
from refsim.graph.describe import transitions
from refsim.graph.graph import Graph
from refsim.partition.nodes import CLONE


@dataclass(frozen=True)
class Statistics:
    """Counts of one delegate; bytes are those of buffers as they lie in memory, padding included."""

    operators: int
    int8_operators: int
    float_operators: int
    dispatches: int  # of int8 kernels; how many a float operator needs is up to the runtime
    transitions: int
    clones: int
    clone_bytes: int
    constants: int
    constant_bytes: int
    memory_bytes: int
    memory_bytes_unshared: int


def statistics(source: VkGraph, graph: Graph) -> Statistics:
    """Count a delegate, given as it is serialized and as it was built (`refsim.graph.build.build`)."""
    int8 = [node for node in graph.nodes if not node.is_float]
    clones = [node for node in graph.nodes if node.name == CLONE]
    moved = [memory.nbytes(source.values[number]) for node in clones for number in node.outputs]  # type: ignore[arg-type]
    shared, unshared = memory.total(source)
    return Statistics(
        operators=len(graph.nodes),
        int8_operators=len(int8),
        float_operators=len(graph.nodes) - len(int8),
        dispatches=sum(1 if node.prepared is None else len(node.prepared.dispatches) for node in int8),
        transitions=len(list(transitions(graph))),
        clones=len(clones),
        clone_bytes=sum(moved),
        constants=len(source.constants),
        constant_bytes=sum(part.length for part in source.constants),
        memory_bytes=shared,
        memory_bytes_unshared=unshared,
    )

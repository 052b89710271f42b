"""Take the nodes of a partition out of a program, and order the delegates and the nodes outside of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from torch import fx

from refsim.core.errors import GraphError
from refsim.partition.fx_program import FxProgram


@dataclass(frozen=True)
class Delegate:
    """A partition, as a program of its own. ``inputs`` and ``outputs`` are names of nodes of the whole program."""

    program: FxProgram
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def extract(program: FxProgram, nodes: Sequence[fx.Node]) -> Delegate:
    """Copy the nodes (given in order) and the constants that they read. What other nodes read becomes an output."""
    inside = set(nodes)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    constants = {}
    inputs: list[fx.Node] = []

    def use(source: fx.Node) -> fx.Node:
        if source in copies:
            return copies[source]
        if program.is_constant(source) and source.op == "call_function":
            return copy(source)
        copies[source] = graph.placeholder(source.name)
        copies[source].meta = dict(source.meta)
        if source.op == "placeholder" and source.name in program.constants:
            constants[copies[source].name] = program.constants[source.name]
        else:
            inputs.append(source)
        return copies[source]

    def copy(node: fx.Node) -> fx.Node:
        copies[node] = graph.node_copy(node, use)
        copies[node].meta = dict(node.meta)
        return copies[node]

    for node in nodes:
        copy(node)
    outputs = [node for node in nodes if any(user not in inside for user in node.users)]
    graph.output(tuple(copies[node] for node in outputs))
    return Delegate(
        FxProgram(_placeholders_first(graph), constants),
        tuple(node.name for node in inputs),
        tuple(node.name for node in outputs),
    )


def _placeholders_first(graph: fx.Graph) -> fx.Graph:
    """A copy of the graph that begins with its placeholders."""
    ordered = fx.Graph()
    mapped: dict[fx.Node, fx.Node] = {}
    nodes = list(graph.nodes)
    for node in [n for n in nodes if n.op == "placeholder"] + [n for n in nodes if n.op != "placeholder"]:
        mapped[node] = ordered.node_copy(node, mapped.__getitem__)
        mapped[node].meta = dict(node.meta)
    return ordered


@dataclass(frozen=True)
class ScheduledCall:
    """What a program runs at a time: a delegate, by its number, or else a node outside of any."""

    delegate: int | None
    node: fx.Node | None = None


def schedule(program: FxProgram, groups: Sequence[Sequence[fx.Node]], where: str) -> list[ScheduledCall]:
    """The order in which delegates and the other nodes run: the graph's own order, as far as delegates allow it.

    GraphError if delegates need each other's results in a circle.
    """
    owner = {node: number for number, group in enumerate(groups) for node in group}
    nodes = [n for n in program.graph.nodes if n.op == "call_function"]
    position = {node: number for number, node in enumerate(nodes)}

    def unit(node: fx.Node) -> fx.Node:
        """A node's group, named by its first node."""
        return groups[owner[node]][0] if node in owner else node

    needs: dict[fx.Node, set[fx.Node]] = {unit(node): set() for node in nodes}
    for node in nodes:
        needs[unit(node)] |= {unit(source) for source in node.all_input_nodes if source in position}
        needs[unit(node)].discard(unit(node))
    sorter = TopologicalSorter(needs)
    try:
        sorter.prepare()
    except ValueError as error:
        raise GraphError(where, "delegates depend on each other in a circle", got=error) from error
    scheduled = []
    ready: list[fx.Node] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()], key=position.__getitem__)
        node = ready.pop(0)
        sorter.done(node)
        scheduled.append(ScheduledCall(owner[node]) if node in owner else ScheduledCall(None, node))
    return scheduled

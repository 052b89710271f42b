"""What must hold of a graph before it runs: of its inputs and outputs, and of the order in which values are written."""

from __future__ import annotations

from refsim.core.errors import GraphError
from refsim.graph.aliases import RUNTIME, other_view
from refsim.graph.graph import Graph, refs


def check(graph: Graph, runs: bool) -> None:
    """GraphError for a graph that cannot run; ``runs`` as for `refsim.graph.build.build`."""
    check_interface(graph)
    check_order(graph, runs)


def check_interface(graph: Graph) -> None:
    """Inputs and outputs are tensors; inputs are distinct and have no stored data."""
    for what, numbers in (("input", graph.inputs), ("output", graph.outputs)):
        for number in numbers:
            if number not in graph.tensors:
                raise GraphError(f"{graph.where}: {what}", "not a tensor", got=f"value {number}")
    for number in graph.inputs:
        if graph.tensors[number].data is not None:
            raise GraphError(f"{graph.where}: input", "is a constant", got=f"value {number}")
    if len(set(graph.inputs)) != len(graph.inputs):
        raise GraphError(
            f"{graph.where}: input", "given twice", got=list(graph.inputs), need="distinct values"
        )


def check_order(graph: Graph, runs: bool) -> None:
    """Every activation is written before it is read, and written once; ``runs`` as for `build`."""
    written = set(graph.inputs)

    def need(number: int, what: str) -> None:
        if graph.tensors[number].data is None and number not in written:
            other = other_view(graph, number)
            if other in written and not runs:
                return
            got = f"value {number}" + (
                "" if other is None else f", which lies in the memory of value {other}"
            )
            need = None if other is None else RUNTIME
            raise GraphError(f"{graph.where}: {what}", "reads a value that nothing wrote", got=got, need=need)

    for node in graph.nodes:
        for ref in refs(node.args):
            need(ref, str(node))
        for number in node.outputs:
            if number in written:
                raise GraphError(f"{graph.where}: {node}", "writes a value again", got=f"value {number}")
            written.add(number)
    for number in graph.outputs:
        need(number, "output")

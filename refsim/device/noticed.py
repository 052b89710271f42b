"""Whether a program was exposed, told from the program itself: its manifest may have been left behind."""

from __future__ import annotations

import os

from refsim.core.errors import RefsimError
from refsim.exec.model import Model, load
from refsim.formats.dumps import quantization
from refsim.graph.aliases import other_view, read_as_another
from refsim.graph.graph import Graph, Ref

#: What `refsim expose --as values` hands the elements of a value out with: every int8 number as itself.
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"
_AS_ITSELF = (1.0, 0)


def exposed(path: str | os.PathLike[str]) -> bool:
    """Whether a file hands out its own buffers, as expose makes it; False for one that cannot be read at all."""
    try:
        return is_exposed(load(path, runs=False))
    except RefsimError:
        return False


def is_exposed(model: Model) -> bool:
    """Whether a graph hands out buffers as words, or the plain numbers of values that stand for others.

    Programs of cases do the first too, but they have packed inputs as words as well, or no inputs, or one output: an
    exposed file keeps its own outputs beside those.
    """
    if model.plan is None or not model.plan.inputs or len(model.plan.outputs) < 2:
        return False
    graphs = model.graphs.values()
    if any(other_view(graph, number) is not None for graph in graphs for number in graph.inputs):
        return False
    return any(read_as_another(graph) is not None or _plain_numbers(graph) for graph in graphs)


def _plain_numbers(graph: Graph) -> bool:
    """Whether an output is a value dequantized as if its numbers stood for themselves, which its writer denies."""
    facts = {
        number: quantization(node.call.params)
        for node in graph.nodes
        if node.call is not None
        for number in node.outputs
    }
    for node in graph.nodes:
        if node.name != DEQUANTIZE or node.call is None or set(node.outputs).isdisjoint(graph.outputs):
            continue
        written = next((facts.get(arg.id) for arg in node.args if isinstance(arg, Ref)), None)
        if written and _pair(quantization(node.call.params)) == _AS_ITSELF != _pair(written):
            return True
    return False


def _pair(facts: dict[str, float]) -> tuple[float | None, float | None]:
    return facts.get("scale", facts.get("inv_scale")), facts.get("zero_point")

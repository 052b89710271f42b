"""Run a model node by node and record the inputs of each int8 operator, for extract, compare and bisect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from refsim.core import choices
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import GraphError
from refsim.exec.executor import Executor
from refsim.exec.model import Model
from refsim.formats.dumps import value_name
from refsim.graph.graph import Graph, Node
from refsim.graph.interpreter import Event, Observer
from refsim.ops.base.binding import BoundCase, bound_of


@dataclass(frozen=True)
class Traced:
    """One executed node: its outputs by value name and, for an int8 operator, its call with the inputs.

    ``outside`` is the error if it wrote outside of its output, and the run went on. ``read``: what it read, by its
    value's id. ``inputs``: the ids of what its call reads, by argument.
    """

    delegate: int
    graph: Graph
    node: Node
    outputs: Mapping[str, PackedBuffer | np.ndarray]
    bound: BoundCase | None
    outside: str = ""
    read: Mapping[int, PackedBuffer | np.ndarray] = field(default_factory=dict)
    inputs: Mapping[str, int] = field(default_factory=dict)

    @property
    def output(self) -> str:
        """Name of the first output."""
        return next(iter(self.outputs))

    def input_names(self) -> dict[str, str]:
        """Argument of an int8 operator -> name of the value that it reads."""
        return {name: value_name(self.delegate, value) for name, value in self.inputs.items()}


def trace(
    model: Model,
    inputs: Sequence[np.ndarray],
    executor: Executor,
    visit: Callable[[Traced], None],
    past_guards: bool = False,
) -> list[np.ndarray]:
    """Run a model and show each node to ``visit`` once it has run; returns the outputs.

    Raises GuardError if a dispatch wrote outside of its buffer; with ``past_guards`` the run goes on, and the node
    shows it.
    """

    def tell(event: Event) -> None:
        call, bound = event.graph.asked(event.node, flat=True), None
        reads = event.graph.inputs_of(event.node)
        if call is not None:
            reads = {name: value for name, value in reads.items() if name in call.descs}
            given = ((name, event.read[value]) for name, value in reads.items())
            bound = bound_of(call, {name: held for name, held in given if isinstance(held, PackedBuffer)})
        named = {value_name(event.delegate, value): held for value, held in event.outputs.items()}
        visit(Traced(event.delegate, event.graph, event.node, named, bound, event.outside, event.read, reads))

    return model.run(inputs, executor, Observer(tell, node_by_node=True, past_guards=past_guards))


def unwatched(
    model: Model, inputs: Sequence[np.ndarray], executor: Executor, watched: Sequence[np.ndarray]
) -> tuple[list[np.ndarray], list[str]] | None:
    """The outputs of a run that nobody watches, and the names of those that are not the ones of a watched run.

    An executor may compute what nobody watches in fewer steps and in other layouts. None for one that prepares no
    graphs: it runs the same either way.
    """
    if all(executor.session(graph) is None for graph in model.graphs.values()):
        return None
    outputs = model.run(inputs, executor)
    pairs = zip(outputs, watched, strict=True)
    return outputs, [
        f"out{n}" for n, (ours, theirs) in enumerate(pairs) if ours.tobytes() != theirs.tobytes()
    ]


def find_node(model: Model, text: str) -> tuple[int, Node]:
    """The (delegate, node) for a number, ``DELEGATE:NUMBER``, or the name of a value that the node writes.

    ``v74`` will do for a name if one delegate has it.

    GraphError if there is none, or if a bare number does not say which delegate.
    """
    delegate, _, number = text.rpartition(":")
    numbers = {
        (str(d) if delegate else "", str(node.number)): (d, node)
        for d, node in model.nodes()
        if delegate or len(model.graphs) == 1
    }
    values = {value_name(d, v): (d, node) for d, node in model.nodes() for v in node.outputs}
    short = [
        name for name in values if name.endswith(f"_{text}")
    ]  # as inspect has it in the table of a delegate
    found = numbers.get((delegate, number)) or values.get(short[0] if len(short) == 1 else text)
    if found is None:
        if len(model.graphs) > 1 and any(text == str(node.number) for _, node in model.nodes()):
            both = [f"{d}:{text}" for d, node in model.nodes() if str(node.number) == text]
            raise GraphError(
                model.path, "no such node: it has several delegates", got=text, need=" or ".join(both)
            )
        need = "a NUMBER, or DELEGATE:NUMBER if there are several delegates, as inspect lists them, or a value's name"
        if short:
            raise GraphError(
                model.path, "no such node: it has several delegates", got=text, need=" or ".join(short)
            )
        same = [f"{d}:{node.number}" for d, node in model.nodes() if text in (node.operator, node.name)]
        if same:
            raise GraphError(model.path, "an operator and no node", got=text, need=choices.listed(same))
        near = choices.meant(text, values) or f"; there are {choices.listed(values)}"
        raise GraphError(
            model.path, f"no such node (refsim inspect {model.path} lists all)", got=text, need=need + near
        )
    return found

"""Run a model node by node and record the inputs of each int8 operator, for extract, compare and bisect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from refsim.core import choices
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import GraphError, GuardError
from refsim.core.launch import Launch
from refsim.exec.executor import Executor
from refsim.exec.model import Model
from refsim.formats.dumps import value_name
from refsim.graph.graph import Node
from refsim.graph.interpreter import Event
from refsim.ops.base.binding import BoundCase, bound_of
from refsim.ops.base.prepared import Prepared


@dataclass(frozen=True)
class Traced:
    """One executed node: its outputs by value name and, for an int8 operator, its call with the inputs.

    ``outside`` is the error if it wrote outside of its output, and the run went on. ``read``: what it read, by its
    value's id. ``inputs``: the ids of what its call reads, by argument.
    """

    delegate: int
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


class _Witness(Executor):
    """Passes calls on to another executor, one by one, and remembers the last call's inputs."""

    flat = True

    def __init__(self, inner: Executor, past_guards: bool = False) -> None:
        self.inner, self.name, self.past_guards = inner, inner.name, past_guards
        self.outside = ""
        self.inputs: Mapping[str, PackedBuffer] = {}

    def supports(self, launch: Launch) -> str | None:
        return self.inner.supports(launch)

    def run(self, launch: Launch, inputs: Sequence[np.ndarray]) -> PackedBuffer:
        return self.inner.run(launch, inputs)

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
        self.inputs, self.outside = inputs, ""
        if not (prepared.dispatches or self.inner.flat):  # refsim has no kernels on flat tensors
            return prepared.call.expected(inputs)
        try:
            return self.inner.run_prepared(prepared, inputs)
        except GuardError as error:
            found = error.buffer  # of an earlier dispatch, where an executor stops there
            if not self.past_guards or not isinstance(found, PackedBuffer) or found.desc != prepared.call.out:
                raise
            self.outside = str(error)
            return error.buffer


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
    witness = _Witness(executor, past_guards)

    def observe(event: Event) -> None:
        call = event.graph.asked(event.node, witness.flat)
        bound = None if call is None else bound_of(call, witness.inputs)
        named = {value_name(event.delegate, value): held for value, held in event.outputs.items()}
        outside = witness.outside if bound is not None else ""
        reads = event.graph.inputs_of(event.node)
        if bound is not None:
            reads = {name: value for name, value in reads.items() if name in bound.inputs}
        visit(Traced(event.delegate, event.node, named, bound, outside, event.read, reads))

    return model.run(inputs, witness, observe)


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

"""Runs a graph node by node, with values by id, each in a buffer of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from refsim import aten
from refsim.aten.row import Exact
from refsim.core import doing
from refsim.core.buffer import PackedBuffer, raw_of
from refsim.core.errors import GraphError, OutputError
from refsim.core.tensor import TensorDesc
from refsim.graph.graph import Graph, Node, Ref
from refsim.ops.base.prepared import Prepared


@dataclass(frozen=True)
class Event:
    """One executed step of a delegate: a node, or several that an executor computes as one.

    ``outputs`` are the watched values that the step has written, by value id: packed buffers, or arrays of other
    dtypes. ``seconds`` is the time of the whole step. ``on_host`` says why an executor of a device had the host compute
    the step; it is empty where the executor itself did. ``by`` tells the route and the kernels of a CPU. In a run node
    by node, ``read`` is what it read, by value id, and ``outside`` the error if it wrote outside of its output and the
    run went on.
    """

    delegate: int
    graph: Graph
    nodes: tuple[Node, ...]
    outputs: Mapping[int, PackedBuffer | np.ndarray]
    seconds: float
    on_host: str = ""
    by: str = ""
    read: Mapping[int, PackedBuffer | np.ndarray] = field(default_factory=dict)
    outside: str = ""

    @property
    def node(self) -> Node:
        """The last node of the step; the only one if every value is watched."""
        return self.nodes[-1]


def _every(delegate: int, value: int) -> bool:
    return True


@dataclass(frozen=True)
class Observer:
    """Is told of each step of a run, and says for which values (delegate, id) it wants the buffers.

    A wanted value has exactly the bytes that its operator writes; it is never fused away. An observer that wants no
    buffers gets the times of a run as it is without an observer. ``enter`` is told of each delegate that begins, with
    its inputs. ``node_by_node``: all executors run one node after the other. With ``past_guards`` such a run goes on
    where a node wrote outside of its output.
    """

    tell: Callable[[Event], None]
    wants: Callable[[int, int], bool] = _every
    enter: Callable[[int, Graph, Sequence[np.ndarray]], None] = lambda *_: None
    node_by_node: bool = False
    past_guards: bool = False

    def watched(self, delegate: int, graph: Graph) -> frozenset[int]:
        """The wanted values of a graph."""
        return frozenset(v for node in graph.nodes for v in node.outputs if self.wants(delegate, v))

    def report(
        self,
        delegate: int,
        graph: Graph,
        nodes: tuple[Node, ...],
        outputs: Mapping[int, PackedBuffer | np.ndarray],
        seconds: float,
        on_host: str = "",
        by: str = "",
        read: Mapping[int, PackedBuffer | np.ndarray] | None = None,
        outside: str = "",
    ) -> None:
        """Report a step, with those of its outputs that are wanted."""
        wanted = {value: held for value, held in outputs.items() if self.wants(delegate, value)}
        self.tell(Event(delegate, graph, nodes, wanted, seconds, on_host, by, read or {}, outside))


class Kept(dict[tuple[int, int], PackedBuffer | np.ndarray]):
    """The values of the steps that it is told of, by delegate and id."""

    def __call__(self, event: Event) -> None:
        self.update({(event.delegate, value): held for value, held in event.outputs.items()})

    def raw(self) -> dict[tuple[int, int], bytes]:
        """The bytes of each, padding included."""
        return {key: raw_of(held).tobytes() for key, held in self.items()}


class Runner(Protocol):
    """What runs one call: an executor."""

    def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer: ...


def run_nodes(
    graph: Graph,
    inputs: Sequence[np.ndarray],
    executor: Runner,
    number: int = 0,
    observe: Observer | None = None,
) -> list[np.ndarray]:
    """Run the graph node by node, each value in a buffer of its own, and return its outputs as logical arrays."""
    values: dict[int, PackedBuffer | np.ndarray] = {
        tensor.id: tensor.data for tensor in graph.tensors.values() if tensor.data is not None
    }
    graph.check_count(inputs)
    for value, array in zip(graph.inputs, inputs, strict=True):
        values[value] = stored(graph, value, array, graph.where)
    for node in graph.nodes:
        begin, outside = time.perf_counter(), ""
        try:
            outputs = doing.during(NodesInWords(graph, (node,)), run_node, graph, node, values, executor)
        except OutputError as error:
            outputs, outside = _written(graph, node, error, observe), str(error)
        seconds = time.perf_counter() - begin
        values |= outputs
        if observe is not None:
            read = {value: values[value] for value in node.reads if value in values}
            observe.report(number, graph, (node,), outputs, seconds, read=read, outside=outside)
    return [logical(graph, values, value) for value in graph.outputs]


def _written(
    graph: Graph, node: Node, error: OutputError, observe: Observer | None
) -> dict[int, PackedBuffer | np.ndarray]:
    """What a node wrote whose kernel ran otherwise than it must; the error where nobody wants to go on."""
    (value, *_), held = node.outputs, error.buffer
    if observe is None or not observe.past_guards or not isinstance(held, PackedBuffer):
        raise error
    if held.desc != graph.tensors[value].desc:  # of an earlier dispatch, where an executor stops there
        raise error
    return {value: held}


@dataclass(frozen=True)
class NodesInWords:
    """Nodes of a graph, in words if somebody asks."""

    graph: Graph
    nodes: tuple[Node, ...]

    def __str__(self) -> str:
        first, last = self.nodes[0], self.nodes[-1]
        return f"{self.graph.where}: {first}" + (f" to {last}" if last is not first else "")


def run_node(
    graph: Graph, node: Node, values: Mapping[int, PackedBuffer | np.ndarray], executor: Runner
) -> dict[int, PackedBuffer | np.ndarray]:
    """Run one node and return its outputs by value id."""
    if node.prepared is not None:
        buffers = {name: values[value] for name, value in node.inputs.items()}
        (value,) = node.outputs
        return {value: executor.run_prepared(node.prepared, buffers)}  # type: ignore[arg-type]
    asked = graph.asked(node, getattr(executor, "flat", False))
    if asked is not None:
        names = graph.inputs_of(node)
        buffers = {name: values[value] for name, value in names.items() if name in asked.descs}
        return {node.outputs[0]: executor.run_prepared(Prepared(asked), buffers)}  # type: ignore[arg-type]
    where = f"{graph.where}: {node}"
    return {
        value: stored(graph, value, array, where) for value, array in results(graph, node, values).items()
    }


def results(
    graph: Graph, node: Node, values: Mapping[int, PackedBuffer | np.ndarray]
) -> dict[int, np.ndarray]:
    """Run a node without kernels and return its outputs by value id, as logical arrays."""
    if node.meaning is not None:
        given = {name: logical(graph, values, value) for name, value in node.inputs.items()}
        (value,) = node.outputs
        meaning = node.meaning
        if meaning.target != graph.target:  # another profile is tried
            meaning = replace(meaning, target=graph.target)
        return {value: meaning.run(given)}
    where = f"{graph.where}: {node}"
    operator = aten.find(node.name, where)
    found = operator.run(arguments(graph, node, values), where, graph.place(node))
    if len(found) < len(node.outputs):
        raise GraphError(where, "gives fewer results", got=len(found), need=len(node.outputs))
    return dict(zip(node.outputs, found, strict=False))


def same_bits(node: Node) -> bool:
    """Whether all devices must give the same bits for an operator without kernels. Of a float one that is in no table
    nobody knows."""
    if node.meaning is not None:
        return True
    row = aten.find(node.name, str(node)).row
    return row is not None and row.exact is Exact.BITS


def arguments(graph: Graph, node: Node, values: Mapping[int, PackedBuffer | np.ndarray]) -> list[Any]:
    """The arguments of a node without kernels, in ATen's order, tensors as arrays."""
    return [_argument(graph, values, arg) for arg in node.args]


def _argument(graph: Graph, values: Mapping[int, PackedBuffer | np.ndarray], arg: Any) -> Any:
    if isinstance(arg, Ref):
        return logical(graph, values, arg.id)
    if isinstance(arg, tuple):
        return tuple(_argument(graph, values, item) for item in arg)
    return arg


def logical(graph: Graph, values: Mapping[int, PackedBuffer | np.ndarray], value: int) -> np.ndarray:
    """A value as an array of the shape that the graph declares."""
    held = values[value]
    return held.unpack().reshape(graph.tensors[value].shape) if isinstance(held, PackedBuffer) else held


def stored(graph: Graph, value: int, array: np.ndarray, where: str) -> PackedBuffer | np.ndarray:
    """An array as the graph holds it: packed in the value's layout if it is int8 or float32."""
    tensor = graph.tensors[value]
    graph.check_shape(value, array.shape, where)
    desc: TensorDesc | None = tensor.desc
    typed = tensor.typed(array)
    if desc is None:
        return typed
    return PackedBuffer.pack(typed.reshape(desc.shape), desc.layout, dtype=desc.dtype)

"""A delegate as plain facts: its operators, with layouts, kernels and words, its memory, and where layouts change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any

from refsim import aten
from refsim.core.meanings import DelegateNumber, DtypeName, NodeNumber, OperatorName, SizeInBytes
from refsim.core.plain import Column
from refsim.formats.dumps import value_name
from refsim.graph.graph import Graph, Node, Ref, Tensor, refs
from refsim.ops.base.registry import kernel_of


@dataclass(frozen=True)
class NodeOutput:
    """An output of a node."""

    delegate: DelegateNumber
    node: Annotated[int, "Number of the node in it.", Column()]
    operator: Annotated[OperatorName, Column()]
    value: Annotated[str, "Its output.", Column()]

    @property
    def at(self) -> tuple[int, int]:
        """(delegate, node)."""
        return self.delegate, self.node


@dataclass(frozen=True)
class TensorFacts:
    """A tensor."""

    value: Annotated[str, "The value's name."]
    shape: Annotated[Sequence[int], "The sizes, outermost dim first."]
    dtype: DtypeName
    layout: Annotated[str | None, "The layout; null for a tensor that has none."]
    memory_object: Annotated[int, "Those with the same number share memory; -1: it shares none."]
    bytes: SizeInBytes

    @classmethod
    def of(cls, delegate: int, tensor: Tensor) -> TensorFacts:
        name = value_name(delegate, tensor.id)
        return cls(name, tensor.shape, str(tensor.dtype), layout(tensor), tensor.mem_obj_id, nbytes(tensor))


@dataclass(frozen=True)
class DispatchFacts:
    """One kernel that is run."""

    shader: Annotated[str, "Name of the kernel."]
    specialization_words: Annotated[Sequence[int], "Its specialization constants."]
    specialization_names: Annotated[Sequence[str], "Their names."]
    push_words: Annotated[Sequence[int], "Its push constants."]
    push_names: Annotated[Sequence[str], "Their names."]
    workgroup: Annotated[Sequence[int], "The size of a workgroup."]
    grid: Annotated[Sequence[int], "How many workgroups."]


@dataclass(frozen=True)
class OperatorFacts:
    """An operator of a delegate."""

    node: NodeNumber
    node_id: Annotated[int, "Its id in the file."]
    name: Annotated[str, "The operator as it is serialized."]
    operator: OperatorName
    kernels: Annotated[str, "The kernels, or the library that runs a float operator."]
    inputs: Annotated[Sequence[str], "What it reads that is no constant."]
    outputs: Annotated[Sequence[TensorFacts], "What it writes."]
    note: Annotated[str | None, "Where upstream's kernel does something else than its operator means."]
    parameters: Annotated[Mapping[str, Any], "Its parameters by name; empty for a float operator."]
    dispatches: Annotated[
        Sequence[DispatchFacts], "The kernels that are run, in order; empty for a float operator."
    ]


@dataclass(frozen=True)
class ConstantFacts:
    """The constants of a delegate."""

    count: Annotated[int, "How many."]
    bytes: SizeInBytes


@dataclass(frozen=True)
class MemoryFacts:
    """Memory objects of the activations.

    Tensors with the same memory object never live at the same time; the object is as large as the largest.
    """

    objects: Annotated[int, "How many memory objects."]
    bytes: SizeInBytes
    bytes_unshared: Annotated[int, "If none were shared."]


@dataclass(frozen=True)
class LayoutTransition:
    """An operator whose output has another layout than its first input."""

    node: NodeNumber
    operator: OperatorName
    before: Annotated[str | None, "The layout of the first input."]
    after: Annotated[str | None, "The layout of the output."]
    bytes: Annotated[int, "Bytes written."]


@dataclass(frozen=True)
class NumberFacts:
    """A SymInt that the delegate computes."""

    value: Annotated[str, "The value's name."]
    formula: Annotated[str, "What it is computed from."]
    number: Annotated[int, "What it is at the shapes that are shown."]


@dataclass(frozen=True)
class DelegateFacts:
    """A delegate."""

    delegate: DelegateNumber
    inputs: Annotated[Sequence[TensorFacts], "The inputs."]
    outputs: Annotated[Sequence[TensorFacts], "The outputs."]
    operators: Annotated[Sequence[OperatorFacts], "The operators."]
    constants: Annotated[ConstantFacts, "The constants."]
    memory: Annotated[MemoryFacts, "Memory objects of the activations."]
    transitions: Annotated[
        Sequence[LayoutTransition], "Operators whose output has another layout than their first input."
    ]
    numbers: Annotated[Sequence[NumberFacts], "The SymInts that the delegate computes."] = ()


def describe(number: int, graph: Graph, taken: Mapping[tuple[int, int], str]) -> DelegateFacts:
    """One delegate. ``taken``: by delegate and node, kernels that an executor takes in place of refsim's."""
    constants = [tensor.data for tensor in graph.tensors.values() if tensor.data is not None]
    return DelegateFacts(
        number,
        [TensorFacts.of(number, graph.tensors[value]) for value in graph.inputs],
        [TensorFacts.of(number, graph.tensors[value]) for value in graph.outputs],
        [_operator(number, graph, node, taken) for node in graph.nodes],
        ConstantFacts(len(constants), sum(data.nbytes for data in constants)),
        memory(graph),
        list(transitions(graph)),
    )


def memory(graph: Graph) -> MemoryFacts:
    objects: dict[object, int] = {}
    used = {*graph.inputs, *graph.outputs, *(value for node in graph.nodes for value in node.outputs)}
    sizes = [(t, nbytes(t)) for t in graph.tensors.values() if t.id in used and t.data is None]
    for tensor, size in sizes:
        key = tensor.mem_obj_id if tensor.mem_obj_id >= 0 else f"own {tensor.id}"
        objects[key] = max(objects.get(key, 0), size)
    return MemoryFacts(len(objects), sum(objects.values()), sum(size for _, size in sizes))


def transitions(graph: Graph) -> Iterator[LayoutTransition]:
    """Nodes whose int8 or float32 output has another layout than their first input."""
    for node in graph.nodes:
        source = next((graph.tensors[arg.id] for arg in node.args if isinstance(arg, Ref)), None)
        target = graph.tensors.get(node.outputs[0]) if node.outputs else None
        if source is not None and target is not None and source.layout is not target.layout:
            yield LayoutTransition(node.number, node.operator, layout(source), layout(target), nbytes(target))


def layout(tensor: Tensor) -> str | None:
    """Its long name; None for a tensor that a graph keeps in no layout."""
    return tensor.layout.name if tensor.desc is not None and tensor.layout is not None else None


def nbytes(tensor: Tensor) -> int:
    """The size of its buffer."""
    return tensor.desc.nbytes if tensor.desc is not None else prod(tensor.shape) * tensor.dtype.itemsize


def kernels(node: Node) -> str:
    """The kernels that a node dispatches, in order; the library that runs a float operator; or ``definition``."""
    if node.meaning is not None:
        return "definition"
    if node.prepared is None:
        return aten.find(node.name, str(node)).source
    return ", ".join(step.launch.shader for step in node.prepared.dispatches)


def note(node: Node) -> str | None:
    """Where upstream's kernel does something else than its operator means."""
    row = aten.find(node.name, str(node)).row if node.is_float else None
    return "; ".join(filter(None, (node.upstream, "" if row is None else row.note))) or None


def _operator(number: int, graph: Graph, node: Node, taken: Mapping[tuple[int, int], str]) -> OperatorFacts:
    prepared = node.prepared
    launches = [] if prepared is None else [step.launch for step in prepared.dispatches]
    return OperatorFacts(
        node.number,
        node.node_id,
        node.name,
        node.operator,
        taken.get((number, node.number)) or kernels(node),
        [value_name(number, value) for value in refs(node.args) if graph.tensors[value].data is None],
        [TensorFacts.of(number, graph.tensors[value]) for value in node.outputs],
        note(node),
        {} if prepared is None else vars(prepared.call.params),
        [
            DispatchFacts(
                one.shader, one.spec, kernel_of(one.shader).spec.names, one.push, kernel_of(one.shader).push.names,
                one.local, one.grid,
            )
            for one in launches
        ],
    )  # fmt: skip

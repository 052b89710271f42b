"""A lowering as rows: what was fused, the clones and what forced them, the cost; and a node explained."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from refsim.core.errors import ParameterError
from refsim.formats.vkgraph.read import read_blob
from refsim.formats.vkgraph.schema import VkGraph
from refsim.graph import memory
from refsim.graph.describe import transitions
from refsim.graph.flat import built_graph
from refsim.graph.graph import Graph
from refsim.ops.base.target import Target
from refsim.partition.check import ALLOWED, Deviation
from refsim.partition.lower import Lowered, LoweredDelegate, is_called
from refsim.partition.nodes import CLONE, target_name, tensors_of
from refsim.partition.passes.tag_layouts import Transition
from refsim.partition.rows import CheckedOperator, DelegateReport, LayoutChange


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


def graphs(lowered: Lowered, target: Target | None = None) -> list[Graph]:
    """Each delegate as it will be executed on a target; raises what `refsim.graph.build.build` raises."""
    return [
        built_graph(
            read_blob(delegate.serialized.blob(lowered.where)), f"{lowered.where}: delegate {number}", target
        )
        for number, delegate in enumerate(lowered.delegates)
    ]


def steps(lowered: Lowered) -> list[str]:
    """The program's steps in words: ``delegate 0``, or the operator that runs outside."""
    return [
        f"delegate {call.delegate}" if call.delegate is not None else target_name(call.node)
        for call in lowered.schedule
    ]


def clone(item: Transition, delegate: LoweredDelegate, graph: Graph) -> LayoutChange:
    """A clone, with the layouts that its tensors have in the graph: there each has one name."""
    before, after = (
        str(graph.tensors[delegate.serialized.values[name]].layout) for name in (item.source, item.clone)
    )
    return LayoutChange(
        item.source, before, after, item.reader, item.operator, item.argument, item.clone, item.reused
    )


def difference(item: Deviation) -> CheckedOperator:
    counts = {str(steps): count for steps, count in sorted(item.steps.items())}
    elements = sum(counts.values())
    return CheckedOperator(
        item.delegate, item.node, item.operator, elements, counts, item.worst, ALLOWED, item.by_draw
    )


def idle_blocks(lowered: Lowered, names: Iterable[str]) -> list[str]:
    """Blocked operators that kept no node out: each is part of a pattern, which is fused all the same."""
    kept = {item.operator for item in lowered.refusals if item.code == "blocked"}
    return [name for name in names if not any(is_called(one, name) for one in kept)]


def delegates(lowered: Lowered, built: list[Graph]) -> list[DelegateReport]:
    """What became of each delegate, except for the comparison with torch."""
    return [
        DelegateReport(
            number, delegate.source.inputs, delegate.source.outputs, delegate.fused,
            [clone(item, delegate, graph) for item in delegate.transitions],
            asdict(statistics(delegate.serialized.graph, graph)),
        )
        for number, (delegate, graph) in enumerate(zip(lowered.delegates, built, strict=True))
    ]  # fmt: skip


def explain(lowered: Lowered, built: list[Graph], name: str) -> list[str]:
    """What became of a node, in sentences. ``name`` is that of a node of the program or of the lowered graph.

    ParameterError for a name that neither has.
    """
    lines: list[str] = []
    for item in (*lowered.refusals, *lowered.unfused):
        if item.node == name:
            lines.append(f"{'outside' if item in lowered.refusals else 'not fused'} [{item.code}]: {item}")
    for number, (delegate, graph) in enumerate(zip(lowered.delegates, built, strict=True)):
        lines += [f"delegate {number}: {line}" for line in _explain_in(delegate, graph, name)]
    head = next((node for node in lowered.core.graph.nodes if node.name == name), None)
    if head is not None:
        constant = lowered.core.is_constant(head)
        shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors_of(head))
        kind = target_name(head) or ("constant" if constant else head.op)
        if constant and not lines:
            lines = ["a constant: packed, or computed ahead of time"]
        lines.insert(0, f"{name}: {kind} {shapes}".rstrip())
    if not lines:
        raise ParameterError(
            "--explain", "no such node", got=repr(name), need="a name that the program or the report shows"
        )
    return lines


def _explain_in(delegate: LoweredDelegate, graph: Graph, name: str) -> list[str]:
    lines = []
    nodes = {node.name: node for node in delegate.program.graph.nodes}
    for fused in delegate.fused:
        if name == fused.node:
            lines.append(f"{fused.node} ({fused.operator}) made of {', '.join(fused.parts)}")
            lines += fused.notes
        elif name == fused.anchor:
            lines += _explain_in(delegate, graph, fused.node)
        elif name in fused.parts:
            lines.append(f"part of {fused.node} ({fused.operator})")
    before = {node.name for node in delegate.unfused.graph.nodes}
    known = {part for fused in delegate.fused for part in fused.parts}
    if name in before and name not in nodes and name not in known:
        lines.append("removed: a copy, a constant, or a round trip through int8 that no kernel needs")
    if name in delegate.choices:
        lines.append(f"{target_name(nodes[name])} in the lowered graph")
        lines += [str(choice) for choice in delegate.choices[name]]
        held = graph.tensors.get(delegate.serialized.values[name])
        if held is not None and held.layout is not None:
            lines.append(f"the runtime holds its output in {held.layout}")
    for item in delegate.transitions:
        if name in (item.source, item.reader, item.clone):
            one = clone(item, delegate, graph)
            lines.append(
                f"{item.clone} changes {item.source} from {one.before} to {one.after} for {item.reader}"
            )
    return lines

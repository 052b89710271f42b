"""A lowering as plain data: what was fused, what was refused and why, the clones and what forced them, the cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from refsim.core.errors import ParameterError
from refsim.formats.vkgraph.read import read_blob
from refsim.graph.flat import built_graph
from refsim.graph.graph import Graph
from refsim.ops.base.target import Target
from refsim.partition.check import ALLOWED, Deviation
from refsim.partition.lower import Lowered, LoweredDelegate, is_called
from refsim.partition.nodes import target_name, tensors_of
from refsim.partition.passes.tag_layouts import Transition
from refsim.partition.refusal import CODES, Refusal
from refsim.partition.statistics import statistics


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


def refusal(item: Refusal) -> dict[str, Any]:
    return {**asdict(item), "reason": CODES[item.code]}


def clone(item: Transition, delegate: LoweredDelegate, graph: Graph) -> dict[str, Any]:
    """A clone, with the layouts that its tensors have in the graph: there each has one name."""
    before, after = (
        str(graph.tensors[delegate.serialized.values[name]].layout) for name in (item.source, item.clone)
    )
    return {
        "source": item.source,
        "before": before,
        "after": after,
        "forced_by": item.reader,
        "operator": item.operator,
        "argument": item.argument,
        "clone": item.clone,
        "reused": item.reused,
    }


def difference(item: Deviation) -> dict[str, Any]:
    counts = {str(steps): count for steps, count in sorted(item.steps.items())}
    return {
        "delegate": item.delegate,
        "node": item.node,
        "operator": item.operator,
        "elements": sum(item.steps.values()),
        "steps": counts,
        "worst": item.worst,
        "allowed": ALLOWED,
        "by_draw": item.by_draw,
    }


def idle_blocks(lowered: Lowered, names: Iterable[str]) -> list[str]:
    """Blocked operators that kept no node out: each is part of a pattern, which is fused all the same."""
    kept = {item.operator for item in lowered.refusals if item.code == "blocked"}
    return [name for name in names if not any(is_called(one, name) for one in kept)]


def defects(built: list[Graph]) -> list[dict[str, Any]]:
    """The nodes that ExecuTorch lowers in the same way, and that its runtime gets wrong."""
    return [
        {"delegate": number, "node": node.number, "operator": node.operator, "what": node.upstream}
        for number, graph in enumerate(built)
        for node in graph.nodes
        if node.upstream is not None
    ]


def report(lowered: Lowered, built: list[Graph]) -> dict[str, Any]:
    """The whole report, except for the comparison with torch."""
    delegates = [
        {
            "delegate": number,
            "inputs": list(delegate.source.inputs),
            "outputs": list(delegate.source.outputs),
            "fused": [asdict(item) for item in delegate.fused],
            "clones": [clone(item, delegate, graph) for item in delegate.transitions],
            "statistics": asdict(statistics(delegate.serialized.graph, graph)),
        }
        for number, (delegate, graph) in enumerate(zip(lowered.delegates, built, strict=True))
    ]
    return {
        "steps": steps(lowered),
        "delegates": delegates,
        "refused": [refusal(item) for item in lowered.refusals],
        "unfused": [refusal(item) for item in lowered.unfused],
        "defects": defects(built),
    }


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
                f"{item.clone} changes {item.source} from {one['before']} to {one['after']} for {item.reader}"
            )
    return lines

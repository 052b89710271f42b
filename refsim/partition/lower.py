"""Lower a quantized `torch.export` program: partition it, fuse, choose layouts, serialize the delegates."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.export import ExportedProgram

from refsim.core import choices
from refsim.core.errors import ParameterError
from refsim.graph import memory
from refsim.partition import keep_float
from refsim.partition.delegate import Delegate, ScheduledCall, divide
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import MADE_FOR, NOT_FUSED, NOT_INSIDE, NOT_JOINED, target_name
from refsim.partition.partitioner import propose
from refsim.partition.passes import decompose, fuse_patterns, simplify, tag_layouts, weights
from refsim.partition.passes.prepare import dim_order, functional, mixed_types, promote, remove_noops, scalars
from refsim.partition.passes.tag_layouts import Choice, Transition
from refsim.partition.refusal import RefusedNode
from refsim.partition.rows import FusedOperator
from refsim.partition.serialize import Serialized, serialize


@dataclass(frozen=True)
class LoweredDelegate:
    """One delegate at each stage: taken out of the program, before fusing, tagged with layouts, and serialized."""

    source: Delegate
    unfused: FxProgram
    program: FxProgram
    serialized: Serialized
    fused: tuple[FusedOperator, ...]
    transitions: tuple[Transition, ...]
    choices: Mapping[str, tuple[Choice, ...]]


@dataclass(frozen=True)
class Lowered:
    """A lowered program. ``core`` is the whole program in core ATen operators; ``schedule`` says what runs, in order.

    ``refusals`` are of nodes outside of delegates, ``unfused`` of quantized operators that run in float.
    """

    core: FxProgram
    delegates: tuple[LoweredDelegate, ...]
    schedule: tuple[ScheduledCall, ...]
    refusals: tuple[RefusedNode, ...]
    unfused: tuple[RefusedNode, ...]
    where: str = "program"


#: What a runtime refuses in a delegate's blob: the value that the call would write -> why.
Refused = Callable[[bytes], Mapping[int, str]]
#: Passes before partitioning: to the operators that the delegate and the patterns know.
PREPARE = (functional, scalars, remove_noops, mixed_types, dim_order)
#: Passes over a delegate once it is fused: they simplify what is left in float.
SIMPLIFY = (
    simplify.fuse_rms_norm,
    simplify.fuse_clamp,
    simplify.remove_redundant,
    weights.weight_only,
    simplify.fold_qdq,
    simplify.squeeze_inputs,
    simplify.fuse_views,
    simplify.squeeze_views,
    weights.fold_constants,
)


def prepare(exported: ExportedProgram, where: str = "program") -> FxProgram:
    """The program in core ATen operators, as the partitioner reads it."""
    program = decompose.run(exported, where)
    for each in PREPARE:
        program = each(program)
    for node in program.calls():
        node.meta.pop(MADE_FOR, None)
    return program


def lower(
    exported: ExportedProgram,
    where: str = "program",
    blocked: Collection[str] = (),
    refused: Refused | None = None,
    kept: Sequence[str] = (),
    exact: ExportedProgram | None = None,
) -> Lowered:
    """Partition, fuse, tag and serialize. GraphError for a program that cannot be lowered at all.

    ``blocked`` are operators that stay outside of delegates, as for ExecuTorch's ``operator_blocklist``:
    ``aten.mul.Tensor``, or ``aten.mul`` for all of its overloads. ParameterError for one that the program has not.
    ``refused`` says what a runtime refuses: that is not fused, and then not delegated, until nothing more is refused.
    ``kept`` are nodes that stay in float (`refsim.partition.keep_float`), with the weights of ``exact``, the program
    before it was quantized.
    """
    with torch.no_grad():
        core = prepare(exported, where)
        if kept:
            assert exact is not None
            core = keep_float.run(core, kept, prepare(exact, "--float"))
        names = _blocked(core, blocked)
        found = _divided(core, where, names)
        while refused is not None and avoid(found, refused):
            found = _divided(core, where, names)
    return found


def _divided(core: FxProgram, where: str, blocked: Collection[str]) -> Lowered:
    """The program, divided into delegates and lowered."""
    partitions = propose(core, blocked)
    sources, calls = divide(core, partitions.groups, where)
    delegates = tuple(
        lower_delegate(source, f"{where}: delegate {number}") for number, source in enumerate(sources)
    )
    return Lowered(core, delegates, tuple(calls), partitions.refusals, partitions.unfused, where)


def avoid(lowered: Lowered, refused: Refused) -> bool:
    """Mark the nodes of the whole program that gave what a runtime refuses; whether there were any to mark."""
    nodes = {node.name: node for node in lowered.core.calls()}
    marked = False
    for delegate in lowered.delegates:
        anchors = {item.anchor for item in delegate.fused}
        made = {number: name for name, number in delegate.serialized.values.items()}
        inside = {node.name: node for node in delegate.program.graph.nodes}
        for value, why in refused(delegate.serialized.blob(lowered.where)).items():
            found = inside[made[value]]
            node = nodes.get(found.meta.get(MADE_FOR, found.name))
            if node is None:
                continue
            ways = {
                NOT_FUSED: node.name in anchors,
                NOT_JOINED: target_name(node) != target_name(found),
                NOT_INSIDE: True,
            }
            mark = next((mark for mark, fits in ways.items() if fits and mark not in node.meta), None)
            if mark is not None:
                node.meta[mark], marked = why, True
    return marked


def _blocked(program: FxProgram, names: Collection[str]) -> set[str]:
    """The operators of a program that have these names."""
    there = dict.fromkeys(target_name(node) for node in program.calls())
    for name in names:
        if not any(is_called(one, name) for one in there):
            raise ParameterError(
                "--block", "the program has no such operator", got=name, need=choices.need(name, there)
            )
    return {one for one in there for name in names if is_called(one, name)}


def is_called(operator: str, name: str) -> bool:
    """Whether a name is that of an operator, with its overload or without."""
    return operator == name or operator.rpartition(".")[0] == name


def lower_delegate(source: Delegate, where: str) -> LoweredDelegate:
    unfused = promote(weights.fuse_batch_norm(weights.linear(source.program)))
    program, fused = fuse_patterns.run(unfused)
    for each in SIMPLIFY:
        program = each(program)
    tagged = tag_layouts.run(weights.insert_prepack(program))
    serialized = serialize(tagged.program, where)
    graph = memory.plan(serialized.graph)
    memory.check(graph, where)
    return LoweredDelegate(
        source=source,
        unfused=unfused,
        program=tagged.program,
        serialized=replace(serialized, graph=graph),
        fused=fused,
        transitions=tagged.transitions,
        choices=tagged.choices,
    )

"""Lower a quantized `torch.export` program: from the program to delegates, and a report of what was decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch.export import ExportedProgram

from refsim.graph import memory
from refsim.partition.delegate import Delegate, Step, extract, schedule
from refsim.partition.partitioner import propose
from refsim.partition.passes import (
    decompose,
    dim_order,
    fold_constants,
    fold_qdq,
    functional,
    fuse_clamp,
    fuse_patterns,
    fuse_views,
    insert_prepack,
    linear,
    remove_noops,
    remove_redundant,
    scalars,
    squeeze_views,
    tag_layouts,
)
from refsim.partition.passes.fuse_patterns import Fused
from refsim.partition.passes.tag_layouts import Choice, Transition
from refsim.partition.program import Program
from refsim.partition.refusal import Refusal
from refsim.partition.serialize import Serialized, serialize


@dataclass(frozen=True)
class LoweredDelegate:
    """One delegate: the partition as it was taken out, before fusing, and the tagged program and its graph."""

    source: Delegate
    unfused: Program
    program: Program
    serialized: Serialized
    fused: tuple[Fused, ...]
    transitions: tuple[Transition, ...]
    choices: Mapping[str, tuple[Choice, ...]]


@dataclass(frozen=True)
class Lowered:
    """A whole program: ``core`` in core ATen operators, and what became of it, in the order of ``steps``."""

    core: Program
    delegates: tuple[LoweredDelegate, ...]
    steps: tuple[Step, ...]
    refusals: tuple[Refusal, ...]
    unfused: tuple[Refusal, ...]
    where: str = "program"


#: Before partitioning: to the operators that the delegate and the patterns know.
PREPARE = (functional, scalars, remove_noops, dim_order)
#: Of a delegate, once fused: what is left in float.
SIMPLIFY = (fuse_clamp, remove_redundant, fold_qdq, fuse_views, squeeze_views, fold_constants)


def prepare(exported: ExportedProgram, where: str = "program") -> Program:
    """The program in core ATen operators, as the partitioner reads it."""
    program = decompose.run(exported, where)
    for step in PREPARE:
        program = step.run(program)
    return program


def lower(exported: ExportedProgram, where: str = "program") -> Lowered:
    """Partition, fuse, tag and serialize. GraphError for a program that cannot be lowered at all."""
    with torch.no_grad():
        core = prepare(exported, where)
        partitions = propose(core)
        steps = schedule(core, partitions.groups, where)
        order = [step.delegate for step in steps if step.delegate is not None]
        renumbered = {old: new for new, old in enumerate(order)}
        delegates = tuple(
            lower_delegate(extract(core, partitions.groups[old]), f"{where}: delegate {new}")
            for old, new in renumbered.items()
        )
    steps = [step if step.delegate is None else Step(renumbered[step.delegate]) for step in steps]
    return Lowered(core, delegates, tuple(steps), partitions.refusals, partitions.unfused, where)


def lower_delegate(source: Delegate, where: str) -> LoweredDelegate:
    unfused = linear.run(source.program)
    program, fused = fuse_patterns.run(unfused)
    for step in SIMPLIFY:
        program = step.run(program)
    tagged = tag_layouts.run(insert_prepack.run(program))
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

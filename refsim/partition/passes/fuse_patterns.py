"""Replace every match of a pattern by its q8ta operator."""

from __future__ import annotations

from refsim.partition.fx_program import FxProgram
from refsim.partition.patterns import Match, find
from refsim.partition.rows import FusedOperator


def run(program: FxProgram) -> tuple[FxProgram, tuple[FusedOperator, ...]]:
    """The fused program, and what was fused into what."""
    program = program.copy()
    fused = []
    for node in program.calls():
        # looked for one at a time: a match sees its producer as it is by now
        pattern, found = find(program, node) or (None, None)
        if pattern is not None and isinstance(found, Match):
            new = pattern.fuse(program, found)
            fused.append(
                FusedOperator(
                    found.operator,
                    new.name,
                    str(found.anchor),
                    tuple(str(part) for part in found.nodes),
                    str(found.output.node),
                    tuple(str(item.node) for item in found.inputs),
                    found.notes,
                    tuple(str(item) for item in found.sources),
                )
            )
    return program.clean(), tuple(fused)

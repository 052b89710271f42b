"""Replace every match of a pattern by its q8ta operator."""

from __future__ import annotations

from refsim.partition.nodes import target_name
from refsim.partition.patterns import PATTERNS, Match
from refsim.partition.program import Program


def run(program: Program) -> tuple[Program, list[Match]]:
    """The fused program, and what was fused; the nodes of the matches are those of the program given."""
    program = program.copy()
    fused = []
    for node in program.calls():
        pattern = PATTERNS.get(target_name(node))
        # looked for one at a time: a match sees its producer as it is by now
        found = pattern.find(program, node) if pattern else None
        if pattern is not None and isinstance(found, Match):
            new = pattern.fuse(program, found)
            new.meta["fused"] = [str(part) for part in found.nodes]
            fused.append(found)
    return program.clean(), fused

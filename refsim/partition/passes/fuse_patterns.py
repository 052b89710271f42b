"""Replace every match of a pattern by its q8ta operator."""

from __future__ import annotations

from dataclasses import dataclass

from refsim.partition.fx_program import FxProgram
from refsim.partition.patterns import Match, find


@dataclass(frozen=True)
class Fused:
    """What became of a match. All fields are names: ``node`` is the new node, the others are of the program before.

    ``anchor`` is the operator that was matched; ``replaced`` are the nodes that went with it, the anchor included. The
    new node gives the result of ``quantize``, and reads what ``dequantizes`` read. Where nothing quantizes the result,
    ``quantize`` is the last of ``replaced``. ``sources`` are what it reads that nothing dequantizes.
    """

    operator: str
    node: str
    anchor: str
    replaced: tuple[str, ...]
    quantize: str
    dequantizes: tuple[str, ...]
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """Every node that is gone, once."""
        return tuple(dict.fromkeys((*self.replaced, self.quantize)))

    def __str__(self) -> str:
        notes = "".join(f"; {note}" for note in self.notes)
        return f"{self.node}: {' '.join(self.parts)}{notes}"


def run(program: FxProgram) -> tuple[FxProgram, tuple[Fused, ...]]:
    """The fused program, and what was fused into what."""
    program = program.copy()
    fused = []
    for node in program.calls():
        # looked for one at a time: a match sees its producer as it is by now
        pattern, found = find(program, node) or (None, None)
        if pattern is not None and isinstance(found, Match):
            new = pattern.fuse(program, found)
            fused.append(
                Fused(
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

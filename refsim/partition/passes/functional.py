"""Replace operators that return views by those that copy, because in a delegate no tensor is a view of another."""

from __future__ import annotations

import torch

from refsim.partition.fx_program import FxProgram


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and target.is_view:
            space, _, base = target._schema.name.partition("::")
            packet = getattr(getattr(torch.ops, space), f"{base}_copy", None)
            if packet is not None:
                node.target = getattr(packet, target._overloadname)
    return program

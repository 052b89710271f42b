"""Compute ahead of time whatever depends on constants alone.

That is dequantized weights of operators that stayed in float, and reshaped biases.
"""

from __future__ import annotations

from refsim.partition.fx_program import FxProgram


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        if program.is_constant(node) and not all(program.is_constant(user) for user in node.users):
            value = program.constant(node)
            assert value is not None
            node.replace_all_uses_with(program.add_constant(f"{node.name}_folded", value.contiguous()))
    return program.clean()

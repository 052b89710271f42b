"""Compute ahead of time the weights that operators pack by themselves, where constants give them.

Those are dequantized weights of operators that stayed in float. What other operators read is computed on the device, as
in ExecuTorch.
"""

from __future__ import annotations

from refsim.partition.features import features_of
from refsim.partition.fx_program import FxProgram


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        features = features_of(node)
        if features is None or not features.prepacks:
            continue
        for index, arg in enumerate(node.args):
            if index == features.primary or not program.is_constant(arg) or arg.op == "placeholder":
                continue
            value = program.constant(arg)
            assert value is not None
            node.update_arg(index, program.add_constant(f"{arg.name}_folded", value.contiguous()))
    return program.clean()

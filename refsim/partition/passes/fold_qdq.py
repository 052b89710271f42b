"""Remove a quantize and the dequantize behind it where both have the same parameters.

This is for what no pattern took: no kernel needs the int8 tensor. The float value then is not rounded to a whole step,
which changes it by half a step at most. Upstream does the same. A pair with different parameters stays.
"""

from __future__ import annotations

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import (
    DEQUANTIZE,
    DEQUANTIZE_AFFINE,
    DEQUANTIZE_BY_TENSOR,
    QUANTIZE,
    QUANTIZE_AFFINE,
    QUANTIZE_BY_TENSOR,
    calls,
    target_name,
)

_PAIRS = {
    QUANTIZE: DEQUANTIZE,
    QUANTIZE_BY_TENSOR: DEQUANTIZE_BY_TENSOR,
    QUANTIZE_AFFINE: DEQUANTIZE_AFFINE,
}


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        if target_name(node) not in _PAIRS:
            continue
        for user in list(node.users):
            if calls(user, _PAIRS[target_name(node)]) and user.args[1:6] == node.args[1:6]:
                user.replace_all_uses_with(node.args[0])
    return program.clean()

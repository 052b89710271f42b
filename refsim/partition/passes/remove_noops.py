"""Remove what changes nothing, before patterns are looked for.

That is a slice of everything, a conversion to the same dtype, and a dequantize with the quantize behind it if both have
the same parameters.
"""

from __future__ import annotations

from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import DEQUANTIZE, DEQUANTIZE_PER_CHANNEL, QUANTIZE, calls, target_name

_SAME_SHAPE = ("aten.slice_copy.Tensor", "aten._to_copy.default")
_PAIRS = {
    DEQUANTIZE: QUANTIZE,
    DEQUANTIZE_PER_CHANNEL: "quantized_decomposed.quantize_per_channel.default",
}


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        if target_name(node) in _SAME_SHAPE and _same(node, node.args[0]):
            node.replace_all_uses_with(node.args[0])
    for node in program.calls():
        for user in list(node.users):
            if calls(user, _PAIRS.get(target_name(node), "")) and user.args[1:] == node.args[1:]:
                user.replace_all_uses_with(node.args[0])
    return program.clean()


def _same(node: fx.Node, source: object) -> bool:
    assert isinstance(source, fx.Node)
    one, other = node.meta["val"], source.meta["val"]
    return bool(one.dtype == other.dtype and one.shape == other.shape and one.stride() == other.stride())

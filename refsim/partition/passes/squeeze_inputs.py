"""Compute relu and gelu without dims of size 1: a view in front drops them, one behind brings them back."""

from __future__ import annotations

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import RELU, shape_of, target_name
from refsim.partition.passes.fuse_views import VIEW

_OPERATORS = (RELU, "aten.gelu.default")


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        if target_name(node) not in _OPERATORS or not _needed(shape_of(node.args[0])):
            continue
        source, shape, val = node.args[0], shape_of(node), node.meta["val"]
        short = list(shape)
        while len(short) > 2 and 1 in short:
            short.remove(1)
        node.update_arg(0, program.call(node, VIEW, (source, short), val.new_empty(short)))
        node.meta["val"] = val.new_empty(short)
        readers = list(node.users)
        back = program.call(node.next, VIEW, (node, list(shape)), val)
        for reader in readers:
            reader.replace_input_with(node, back)
    return program


def _needed(shape: tuple[int, ...]) -> bool:
    """Whether ExecuTorch does it: images and rows of one channel stay as they are."""
    if len(shape) == 3:
        return shape[1] == 1 and shape[0] > 1
    if len(shape) != 4 or shape[:3] == (1, 1, 1):
        return False
    image = shape[0] == 1 and all(size > 1 for size in shape[2:])
    return not image and 1 in shape[:3]

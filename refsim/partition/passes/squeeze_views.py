"""Make a view a squeeze_copy if it only drops dims of size 1, and an unsqueeze_copy if it only adds one.

As upstream does, dims are matched from the first to the last; one that is added at the end is -1. So a dim of
size 1 at the end is never dropped, and a view that adds one in front stays a view, and so does one whose shape is not
written out (-1 for a size).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import VIEW_COPY, calls, shape_of


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        if not calls(node, VIEW_COPY):
            continue
        source, shape = node.args[0], node.args[1]
        dropped = dropped_dims(shape_of(source), shape)
        added = dropped_dims(shape, shape_of(source), last=True)
        args: tuple[Any, ...]
        if dropped:
            target, args = torch.ops.aten.squeeze_copy.dims, (source, dropped)
        elif added and len(added) == 1 and added[0] > 0:
            at_the_end = added[0] == len(shape) - 1
            target, args = torch.ops.aten.unsqueeze_copy.default, (source, -1 if at_the_end else added[0])
        else:
            continue
        new = program.call(node, target, args, node.meta["val"])
        node.replace_all_uses_with(new)
    return program.clean()


def dropped_dims(long: Sequence[int], short: Sequence[int], last: bool = False) -> list[int] | None:
    """The dims of size 1 that ``short`` leaves out of ``long``, matched in order; None if it does anything else.

    With ``last``, dims behind the last match may be left out too.
    """
    dims: list[int] = []
    at = 0
    for dim, size in enumerate(long):
        if at < len(short) and short[at] == size:
            at += 1
        elif size == 1 and (at < len(short) or last):
            dims.append(dim)
        else:
            return None
    return dims if at == len(short) and dims else None

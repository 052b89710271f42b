"""Keep one view of several along a chain of elementwise operators: the first, with the shape of the last."""

from __future__ import annotations

import torch
from torch import fx

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import (
    CLONE,
    CLONE_DIM_ORDER,
    DEQUANTIZE,
    QUANTIZE,
    VIEW_COPY,
    calls,
    only_user,
    shape_of,
)

VIEW = torch.ops.aten.view_copy.default
_ELEMENTWISE = (
    CLONE,
    CLONE_DIM_ORDER,
    "aten.alias_copy.default",
    "aten._to_copy.default",
    "dim_order_ops._to_dim_order_copy.default",
    QUANTIZE,
    DEQUANTIZE,
    *(
        f"aten.{name}.default"
        for name in (
            "abs", "clamp", "ceil", "floor", "neg", "relu", "round", "sigmoid", "silu", "sqrt", "tanh", "sign",
            "reciprocal", "gelu", "rsqrt", "exp", "log",
        )
    ),
)  # fmt: skip


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        if not calls(node, VIEW_COPY) or not node.users:
            continue
        chain = _chain(node)
        views = [item for item in chain if calls(item, VIEW_COPY)]
        if not views:
            continue
        last = views[-1]
        shape, val = last.args[1], last.meta["val"]
        node.update_arg(1, shape)
        for item in (node, *chain[: chain.index(last)]):
            item.meta["val"] = item.meta["val"].new_empty(shape_of(last))
        assert tuple(val.shape) == shape_of(node)
        for view in views:
            view.replace_all_uses_with(view.args[0])
    return program.clean()


def _chain(view: fx.Node) -> list[fx.Node]:
    """The views and elementwise operators behind ``view``, while each has one user."""
    found: list[fx.Node] = []
    current = only_user(view)
    while current is not None and calls(current, VIEW_COPY, *_ELEMENTWISE):
        found.append(current)
        current = only_user(current)
    return found

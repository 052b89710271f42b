"""Remove copies that change neither dtype nor shape: within a delegate nothing can tell them from their source."""

from __future__ import annotations

from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import dtype_of, shape_of, target_name

REDUNDANT = (
    "aten.clone.default",
    "aten.alias.default",
    "aten.alias_copy.default",
    "aten.lift_fresh_copy.default",
    "aten.expand_copy.default",
    "dim_order_ops._clone_dim_order.default",
    "dim_order_ops._to_dim_order_copy.default",
)
#: copy(self, source) gives the source; a delegate takes it only where neither dtype nor shape changes.
COPY = "aten.copy.default"


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    for node in program.calls():
        if target_name(node) not in (*REDUNDANT, COPY):
            continue
        source = node.args[1 if target_name(node) == COPY else 0]
        if dtype_of(source) == dtype_of(node) and shape_of(source) == shape_of(node):
            node.replace_all_uses_with(source)
    return program.clean()

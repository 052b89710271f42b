"""Put et_vk.prepack between a constant and the operators that do not pack it by themselves."""

from __future__ import annotations

from torch import fx

from refsim.partition.features import features_of
from refsim.partition.fx_program import FxProgram, Operator
from refsim.partition.nodes import PREPACK, target_name

TARGET = Operator(PREPACK, ("x",))


def run(program: FxProgram) -> FxProgram:
    program = program.copy()
    first = next(program.calls(), program.output)
    for node in [n for n in program.graph.nodes if n.op == "placeholder" and n.name in program.constants]:
        takers = [user for user in node.users if _needs_tensor(user, node)]
        if takers:
            packed = program.call(first, TARGET, (node,), node.meta["val"])
            for user in takers:
                user.replace_input_with(node, packed)
    return program


def _needs_tensor(user: fx.Node, node: fx.Node) -> bool:
    """Whether ``user`` wants a tensor on the device in the place of the constant."""
    features = features_of(user)
    if features is None or target_name(user) == PREPACK:
        return False
    return not features.prepacks or user.args[features.primary] is node

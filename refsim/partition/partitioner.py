"""Decide which nodes delegates run: those that their operators accept, in subgraphs as large as possible."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from refsim.partition.features import features_of
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import NOT_INSIDE, calls, only_user, target_name
from refsim.partition.patterns import Match, find_all
from refsim.partition.refusal import RefusedNode, refuse

_TRANSPOSES = ("aten.t_copy.default", "aten.permute_copy.default")
_PRODUCTS = ("aten.mm.default", "aten.addmm.default")


@dataclass
class Support(OperatorSupportBase):
    """Says whether a delegate runs a node, and remembers why each other node was refused."""

    program: FxProgram
    fused: set[fx.Node] = field(default_factory=set)
    blocked: Collection[str] = ()
    refusals: dict[fx.Node, RefusedNode] = field(default_factory=dict)

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        if node.op != "call_function":
            return False
        refusal = None if node in self.fused and NOT_INSIDE not in node.meta else self.refusal(node)
        if refusal is not None:
            self.refusals[node] = refusal
        return refusal is None

    def refusal(self, node: fx.Node) -> RefusedNode | None:
        if calls(node, *_TRANSPOSES) and calls(only_user(node), *_PRODUCTS):
            # it goes where the product goes
            return self.refusal(only_user(node))
        if NOT_INSIDE in node.meta:
            return refuse("runtime", node, node.meta[NOT_INSIDE])
        if target_name(node) in self.blocked:
            return refuse("blocked", node)
        features = features_of(node)
        return features.refusal(node) if features else refuse("no-implementation", node)


@dataclass(frozen=True)
class Partitions:
    """How a program is divided.

    ``groups``: the nodes of each delegate, in the order in which they are taken out. ``refusals``: why each of the
    other nodes is in none. ``unfused``: why a quantized operator is not fused, though a delegate may run it in float.
    """

    groups: tuple[tuple[fx.Node, ...], ...]
    refusals: tuple[RefusedNode, ...]
    unfused: tuple[RefusedNode, ...]


def propose(program: FxProgram, blocked: Collection[str] = ()) -> Partitions:
    """Divide the program's nodes. Operators that are ``blocked`` stay outside, but for nodes that a pattern fuses."""
    found = [item for _pattern, item in find_all(program)]
    matches = [item for item in found if isinstance(item, Match)]
    module = fx.GraphModule(torch.nn.Module(), program.graph)
    support = Support(program, {node for match in matches for node in match.nodes}, blocked)
    proposed = CapabilityBasedPartitioner(
        module, support, allows_single_node_partition=True
    ).propose_partitions()
    order = {node: number for number, node in enumerate(program.graph.nodes)}
    groups = [tuple(sorted(partition.nodes, key=order.__getitem__)) for partition in proposed]
    return Partitions(
        tuple(groups),
        tuple(support.refusals[node] for node in program.graph.nodes if node in support.refusals),
        tuple(item for item in found if isinstance(item, RefusedNode)),
    )

"""Give every tensor a representation, and insert a clone where two operators need different ones.

Nodes are visited in order. The set of each tensor argument starts as what the operator allows, and is narrowed

1. to what its readers want. They are searched breadth first; the search goes on behind a reader whose output must be
   packed as that argument is;
2. if that leaves a choice, to what its producer can give.

The output is narrowed by its readers. What remains decides. A clone serves every later reader that needs the same
representation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from refsim.partition.features import FEATURES, Features
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import (
    GETITEM,
    is_single_tensor,
    is_tensor_arg,
    is_tensor_node,
    nodes_in,
    target_name,
    tensors_of,
)
from refsim.partition.repset.op import OpRepSets
from refsim.partition.repset.sets import ANY_STORAGE, ANY_STORAGE_INCL_PACKED_INT8, TensorRepr, TensorRepSet

#: How many nodes' readers one search looks at. Without a bound, graphs with many branches take forever.
TRACE_BUDGET = 64
#: Where a node's representation is kept: a TensorRepr, or a list of them for several outputs.
REPR = "repr"


@dataclass(frozen=True)
class Transition:
    """A clone that was needed: of what, from which representation to which, and for which reader."""

    source: str
    given: TensorRepr
    needed: TensorRepr
    reader: str
    operator: str
    argument: int
    reused: bool = False
    clone: str = ""


@dataclass(frozen=True)
class Choice:
    """How one tensor of a node got its representation.

    ``declared`` is what the operator allows, ``after_users`` what its readers left of that, ``after_producer`` what the
    producer left. ``chosen`` comes from what remained when the tensors that are synced with it had narrowed it too.
    """

    tensor: str
    declared: TensorRepSet
    after_users: TensorRepSet
    after_producer: TensorRepSet
    chosen: TensorRepr

    def __str__(self) -> str:
        return (
            f"{self.tensor}: {self.declared}; its users leave {self.after_users}; its producer leaves "
            f"{self.after_producer}; chosen {self.chosen}"
        )


@dataclass(frozen=True)
class Tagged:
    """The tagged program, the transitions in the order in which they were found, and the choices by node."""

    program: FxProgram
    transitions: tuple[Transition, ...]
    choices: Mapping[str, tuple[Choice, ...]]


def run(
    program: FxProgram, features: Mapping[str, Features] = FEATURES, budget: int = TRACE_BUDGET
) -> Tagged:
    """Tag every tensor of the program; clones are inserted where representations differ."""
    tagger = _Tagger(program.copy(), features, budget)
    for node in tagger.program.calls():
        tagger.visit(node)
    return Tagged(tagger.program, tuple(tagger.transitions), tagger.choices)


class _Tagger:
    def __init__(self, program: FxProgram, features: Mapping[str, Features], budget: int) -> None:
        self.program = program
        self.features = features
        self.budget = budget
        self.transitions: list[Transition] = []
        self.choices: dict[str, tuple[Choice, ...]] = {}
        self.clones: dict[tuple[fx.Node, TensorRepr], fx.Node] = {}
        #: Sets of nodes as declared; what is being constrained is a copy of its own.
        self.declared: dict[fx.Node, OpRepSets] = {}

    # --- what a node can have ---

    def is_operator(self, node: Any) -> bool:
        return isinstance(node, fx.Node) and is_tensor_node(node) and target_name(node) in self.features

    def fresh(self, node: fx.Node) -> OpRepSets:
        if target_name(node) == GETITEM:
            source, index = node.args[0], node.args[1]
            assert isinstance(source, fx.Node) and isinstance(index, int)
            taken = self.sets(source).outs[index]
            return OpRepSets(taken, taken, node)
        return self.features[target_name(node)].op_repsets(node)

    def sets(self, node: fx.Node) -> OpRepSets:
        if node not in self.declared:
            self.declared[node] = self.fresh(node)
        return self.declared[node]

    def given(self, arg: Any) -> TensorRepSet:
        """What an argument's producer gives: its representation if it has one, else what it can have."""
        if not is_tensor_arg(arg):
            return ANY_STORAGE_INCL_PACKED_INT8
        node = next(nodes_in(arg))
        if isinstance(node.meta.get(REPR), TensorRepr):
            return TensorRepSet({node.meta[REPR]})
        return self.sets(node).outs[0] if self.is_operator(node) else ANY_STORAGE

    # --- what its readers want ---

    def wanted(self, origin: fx.Node, choices: TensorRepSet) -> TensorRepSet:
        """``choices`` narrowed by the readers of ``origin``, and by those behind them, as the module says."""
        queue = deque([origin])
        # the last unit of the budget only says that it is spent
        for _ in range(self.budget - 1):
            if not queue or len(choices) <= 1:
                break
            for user, index in self.readers(queue.popleft()):
                if len(choices) <= 1:
                    break
                asked = self.sets(user).args[index]
                if choices & asked:
                    choices &= asked
                    if self.sets(user).propagates_to_output(index):
                        queue.append(user)
        return choices

    def readers(self, node: fx.Node) -> list[tuple[fx.Node, int]]:
        """The operators that read ``node`` otherwise than in a list, and which of their arguments it is."""
        users = list(node.users)
        if len(tensors_of(node)) > 1 and self.is_operator(node) and not self.sets(node).sync_outs_repr:
            users = [user for user in users if target_name(user) == GETITEM and user.args[1] == 1]
        found = []
        for user in users:
            index = next((i for i, arg in enumerate(user.args) if arg is node), None)
            if index is not None and self.is_operator(user):
                found.append((user, index))
        return found

    # --- tagging ---

    def visit(self, node: fx.Node) -> None:
        if not self.is_operator(node):
            return
        if target_name(node) == GETITEM:
            source, index = node.args[0], node.args[1]
            assert isinstance(source, fx.Node) and isinstance(index, int)
            node.meta[REPR] = source.meta[REPR][index]
            return
        sets = self.fresh(node)
        tensors = [
            index
            for index, arg in enumerate(node.args)
            if is_tensor_arg(arg) and not any(self.is_stored(source) for source in nodes_in(arg))
        ]
        stages = {index: self.constrain_arg(sets, index) for index in tensors}
        declared = sets.outs[0]
        if len(declared) > 1:
            sets.try_constrain_with_out_repset(self.wanted(node, declared))
        args, outs = ([each.choice() for each in held] for held in (sets.args, sets.outs))
        after = sets.outs[0]
        self.choices[node.name] = (
            *(Choice(f"argument {index}", *stages[index], args[index]) for index in tensors),
            Choice("output", declared, after, after, outs[0]),
        )
        node.meta[REPR] = outs[0] if is_single_tensor(node) else outs
        for index in tensors:
            for source in list(nodes_in(node.args[index])):
                self.supply(node, index, source, args[index])

    def constrain_arg(self, sets: OpRepSets, index: int) -> tuple[TensorRepSet, TensorRepSet, TensorRepSet]:
        """Narrow an argument. Returns its set as declared, after its readers, and after its producer."""
        arg = sets.op_node.args[index]
        declared = sets.args[index]
        if len(declared) > 1:
            asked = self.wanted(next(nodes_in(arg)), declared)
            sets.try_constrain_with_arg_repset(index, asked)
        after_users = sets.args[index]
        if len(after_users) > 1:
            sets.try_constrain_with_arg_repset(index, self.given(arg))
        return declared, after_users, sets.args[index]

    def is_stored(self, node: fx.Node) -> bool:
        """Whether the node is a constant that the operator packs by itself: it has no representation."""
        return node.op == "placeholder" and node.name in self.program.constants

    def supply(self, reader: fx.Node, index: int, source: fx.Node, needed: TensorRepr) -> None:
        """Let ``reader`` have ``source`` as it needs it: as it is, or through a clone."""
        given = source.meta.setdefault(REPR, needed)
        if given == needed:
            return
        clone = self.clones.get((source, needed))
        reused = clone is not None
        if clone is None:
            clone = self.program.call(reader, torch.ops.aten.clone.default, (source,), source.meta["val"])
            clone.meta[REPR] = needed
            self.clones[source, needed] = clone
        operator = target_name(reader)
        self.transitions.append(
            Transition(str(source), given, needed, str(reader), operator, index, reused, str(clone))
        )
        reader.replace_input_with(source, clone)

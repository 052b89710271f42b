"""The sets of one operator's tensors, and the rules that bind them to each other."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import combinations
from operator import and_
from typing import Any

from refsim.core.errors import GraphError
from refsim.partition.nodes import GETITEM, is_single_tensor, is_tensor_arg, target_name, tensors_of
from refsim.partition.repset.sets import (
    ANY_STORAGE_INCL_PACKED_INT8,
    DEFAULT_TEXTURE_LIMITS,
    NO_STORAGE,
    Sets,
    TensorRepSet,
)


def _at(declared: Sequence[TensorRepSet], index: int) -> TensorRepSet:
    """The set of a tensor; a single set stands for all, and past the end sets are empty."""
    index = 0 if len(declared) == 1 else index
    return declared[index] if index < len(declared) else NO_STORAGE


class OpRepSets:
    """The representations that are still possible for every argument and output of one node.

    Tensors may be *synced*: they must pack the same dim in blocks of the same size, but their layouts may differ. So an
    addition may read 4W4C and 4C1W, and write 4C1W. Three rules say what is synced:

    1. ``sync_args_repr``: all arguments, if one set was declared for them all.
    2. ``sync_outs_repr``: all outputs, likewise.
    3. ``sync_primary_io_repr``: output 0 and the primary argument, if their declared sets are equal. The primary
       argument is the first tensor argument whose set is not empty.

    An argument that is no tensor, or whose set is empty (a prepacked weight), may have any representation.
    """

    def __init__(
        self,
        inputs: Sets,
        outputs: Sets,
        op_node: Any,
        texture_limits: Sequence[int] = DEFAULT_TEXTURE_LIMITS,
    ) -> None:
        self.op_node = op_node
        given, made = (sets if isinstance(sets, list) else [sets] for sets in (inputs, outputs))
        self.sync_args_repr, self.sync_outs_repr = len(given) <= 1, len(made) <= 1
        there = {index: _at(given, index) for index, arg in enumerate(op_node.args) if is_tensor_arg(arg)}
        self.primary_arg_idx = next((index for index, declared in there.items() if declared), None)
        self.sync_primary_io_repr = self.primary_arg_idx is not None and there[self.primary_arg_idx] == _at(
            made, 0
        )
        self.args = [
            self._possible(arg, there[index], texture_limits)
            if there.get(index)
            else ANY_STORAGE_INCL_PACKED_INT8
            for index, arg in enumerate(op_node.args)
        ]
        self.outs = [
            _at(made, index).fitting(tensor, texture_limits)
            for index, tensor in enumerate(tensors_of(op_node))
        ]
        common_arg, common_out = (
            reduce(and_, sets, ANY_STORAGE_INCL_PACKED_INT8) for sets in (self.args, self.outs)
        )
        if self.sync_primary_io_repr:
            assert self.primary_arg_idx is not None
            # from here on the primary pair stands for whatever else is synced with either of the two
            first = common_arg if self.sync_args_repr else self.args[self.primary_arg_idx]
            second = common_out if self.sync_outs_repr else self.outs[0]
            common_arg = common_out = first & second
            self.args[self.primary_arg_idx] = self.outs[0] = common_arg
        if self.sync_args_repr:
            self.args = [common_arg for _ in self.args]
        if self.sync_outs_repr:
            self.outs = [common_out for _ in self.outs]
        self.check_synced()

    def _possible(self, arg: Any, declared: TensorRepSet, limits: Sequence[int]) -> TensorRepSet:
        """What is possible for an argument, given its size; the tensors of a list share one representation."""
        if isinstance(arg, list | tuple):
            for entry in arg:
                declared = declared.fitting(entry.meta["val"], limits)
            return declared
        if is_single_tensor(arg):
            return declared.fitting(arg.meta["val"], limits)
        if target_name(self.op_node) == GETITEM:
            return declared.fitting(tensors_of(arg)[self.op_node.args[1]], limits)
        raise GraphError(f"node {self.op_node}", "takes several tensors as one argument", got=str(arg))

    def any_is_empty(self) -> bool:
        """Whether a tensor has no representation at all, or there is none."""
        return not (self.args and self.outs and all((*self.args, *self.outs)))

    def propagates_to_output(self, arg_i: int) -> bool:
        """Whether constraining the argument constrains output 0."""
        return self.sync_primary_io_repr and (self.sync_args_repr or arg_i == self.primary_arg_idx)

    def check_synced(self) -> None:
        """Raise GraphError if synced tensors pack different dims."""
        groups: dict[str, list[TensorRepSet]] = {}
        if self.sync_args_repr:
            groups["arguments"] = self.args
        if self.sync_outs_repr:
            groups["outputs"] = self.outs
        if self.sync_primary_io_repr and self.outs:
            assert self.primary_arg_idx is not None
            groups["primary argument and output"] = [self.args[self.primary_arg_idx], self.outs[0]]
        for what, sets in groups.items():
            for item, other in combinations(filter(None, sets), 2):
                if not other.packed <= item.packed:
                    where, got = f"node {self.op_node}", f"{item}, {other}"
                    raise GraphError(where, f"synced {what} pack different dims", got=got)

    def try_constrain_with_arg_repset(self, arg_i: int, source_repset: TensorRepSet) -> bool:
        """Narrow argument ``arg_i`` to ``source_repset``, and what is synced with it. True if that was possible."""
        current = self.args[arg_i]
        narrowed = current & source_repset
        if current == source_repset or not narrowed:
            return False
        if self.sync_primary_io_repr and not narrowed.packed <= self.outs[0].packed:
            return False
        _narrow(self.args, arg_i, narrowed, self.sync_args_repr)
        if self.propagates_to_output(arg_i):
            _narrow(self.outs, 0, self.outs[0].like(narrowed), self.sync_outs_repr)
        self.check_synced()
        return True

    def try_constrain_with_out_repset(self, required_repset: TensorRepSet) -> bool:
        """Narrow output 0 to ``required_repset``, and what is synced with it. True if that was possible."""
        current = self.outs[0]
        narrowed = current & required_repset
        if current == required_repset or not narrowed:
            return False
        _narrow(self.outs, 0, narrowed, self.sync_outs_repr)
        if self.sync_primary_io_repr:
            assert self.primary_arg_idx is not None
            primary = self.args[self.primary_arg_idx].like(narrowed)
            _narrow(self.args, self.primary_arg_idx, primary, self.sync_args_repr)
        self.check_synced()
        return True


def _narrow(sets: list[TensorRepSet], at: int, narrowed: TensorRepSet, synced: bool) -> None:
    """Put a set in the place of another; what is synced with it follows."""
    sets[:] = [
        narrowed if index == at else item.like(narrowed) if synced else item
        for index, item in enumerate(sets)
    ]

"""The sets of one operator's tensors, and the rules that bind them to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refsim.core.errors import GraphError
from refsim.partition.nodes import GETITEM, is_single_tensor, is_tensor_arg, target_name, tensors_of
from refsim.partition.repset.constants import ANY_STORAGE_INCL_PACKED_INT8
from refsim.partition.repset.sets import (
    DEFAULT_TEXTURE_LIMITS,
    TensorReprList,
    TensorRepSet,
    TensorRepSetList,
    filter_invalid_reprs,
)


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
        inputs_repsets: TensorRepSetList,
        outputs_repsets: TensorRepSetList,
        op_node: Any,
        texture_limits: Sequence[int] = DEFAULT_TEXTURE_LIMITS,
    ) -> None:
        self.op_node = op_node
        self.sync_args_repr = len(inputs_repsets) <= 1
        self.sync_outs_repr = len(outputs_repsets) <= 1
        self.primary_arg_idx: int | None = next(
            (
                index
                for index, arg in enumerate(op_node.args)
                if is_tensor_arg(arg) and not inputs_repsets[index].is_empty()
            ),
            None,
        )
        self.sync_primary_io_repr = (
            self.primary_arg_idx is not None and inputs_repsets[self.primary_arg_idx] == outputs_repsets[0]
        )

        args: list[TensorRepSet] = []
        outs: list[TensorRepSet] = []
        common_arg = common_out = ANY_STORAGE_INCL_PACKED_INT8
        for index, arg in enumerate(op_node.args):
            declared = inputs_repsets[index]
            if not is_tensor_arg(arg) or declared.is_empty():
                args.append(ANY_STORAGE_INCL_PACKED_INT8.copy())
                continue
            args.append(self._possible(arg, declared, texture_limits))
            common_arg = common_arg.make_intersect(args[-1])
        for index, tensor in enumerate(tensors_of(op_node)):
            outs.append(filter_invalid_reprs(tensor, outputs_repsets[index], texture_limits))
            common_out = common_out.make_intersect(outs[-1])

        if self.sync_primary_io_repr:
            assert self.primary_arg_idx is not None
            # from here on the primary pair stands for whatever else is synced with either of the two
            first = common_arg if self.sync_args_repr else args[self.primary_arg_idx]
            second = common_out if self.sync_outs_repr else outs[0]
            common_arg = common_out = first.make_intersect(second)
            args[self.primary_arg_idx] = common_arg.copy()
            outs[0] = common_arg.copy()
        if self.sync_args_repr:
            args = [common_arg.copy() for _ in args]
        if self.sync_outs_repr:
            outs = [common_out.copy() for _ in outs]
        self.args_repset_list = TensorRepSetList(args)
        self.outs_repset_list = TensorRepSetList(outs)
        self.assert_sync_contraints()

    def _possible(self, arg: Any, declared: TensorRepSet, limits: Sequence[int]) -> TensorRepSet:
        """What is possible for an argument, given its size; the tensors of a list share one representation."""
        if isinstance(arg, list | tuple):
            for entry in arg:
                declared = filter_invalid_reprs(entry.meta["val"], declared, limits)
            return declared
        if is_single_tensor(arg):
            return filter_invalid_reprs(arg.meta["val"], declared, limits)
        if target_name(self.op_node) == GETITEM:
            return filter_invalid_reprs(tensors_of(arg)[self.op_node.args[1]], declared, limits)
        raise GraphError(f"node {self.op_node}", "takes several tensors as one argument", got=str(arg))

    def __str__(self) -> str:
        return f"args {self.args_repset_list} outs {self.outs_repset_list}"

    def any_is_empty(self) -> bool:
        return self.args_repset_list.any_is_empty() or self.outs_repset_list.any_is_empty()

    def get_arg_repset(self, i: int) -> TensorRepSet:
        return self.args_repset_list[i]

    def get_out_repset(self, i: int) -> TensorRepSet:
        return self.outs_repset_list[i]

    def propagates_to_output(self, arg_i: int) -> bool:
        """Whether constraining the argument constrains output 0."""
        return self.sync_primary_io_repr and (self.sync_args_repr or arg_i == self.primary_arg_idx)

    def assert_sync_contraints(self) -> None:
        """Raise GraphError if synced tensors pack different dims. (Upstream's spelling.)"""
        groups: list[tuple[str, list[TensorRepSet]]] = []
        if self.sync_args_repr:
            groups.append(("arguments", self.args_repset_list.vals))
        if self.sync_outs_repr:
            groups.append(("outputs", self.outs_repset_list.vals))
        if self.sync_primary_io_repr and self.outs_repset_list.vals:
            assert self.primary_arg_idx is not None
            pair = [self.args_repset_list[self.primary_arg_idx], self.outs_repset_list[0]]
            groups.append(("primary argument and output", pair))
        for what, sets in groups:
            there = [item for item in sets if not item.is_empty()]
            for number, item in enumerate(there):
                for other in there[number + 1 :]:
                    if not item.has_compatible_packed_dim_info_set(other):
                        raise GraphError(
                            f"node {self.op_node}",
                            f"synced {what} pack different dims",
                            got=f"{item}, {other}",
                        )

    def try_constrain_with_arg_repset(self, arg_i: int, source_repset: TensorRepSet) -> bool:
        """Narrow argument ``arg_i`` to ``source_repset``, and what is synced with it. True if that was possible."""
        current = self.args_repset_list[arg_i]
        narrowed = current.make_intersect(source_repset)
        if current == source_repset or narrowed.is_empty():
            return False
        if self.sync_primary_io_repr and not self.get_out_repset(0).has_compatible_packed_dim_info_set(
            narrowed
        ):
            return False
        self.args_repset_list[arg_i] = narrowed
        if self.sync_args_repr:
            self._follow(self.args_repset_list, narrowed, but=arg_i)
        if self.propagates_to_output(arg_i):
            out = self.outs_repset_list[0].constrain_to_compatible_packed_dim(narrowed)
            self.outs_repset_list[0] = out
            if self.sync_outs_repr:
                self._follow(self.outs_repset_list, out, but=0)
        self.assert_sync_contraints()
        return True

    def try_constrain_with_out_repset(self, required_repset: TensorRepSet) -> bool:
        """Narrow output 0 to ``required_repset``, and what is synced with it. True if that was possible."""
        current = self.outs_repset_list[0]
        narrowed = current.make_intersect(required_repset)
        if current == required_repset or narrowed.is_empty():
            return False
        self.outs_repset_list[0] = narrowed
        if self.sync_outs_repr:
            self._follow(self.outs_repset_list, narrowed, but=0)
        if self.sync_primary_io_repr:
            assert self.primary_arg_idx is not None
            primary = self.args_repset_list[self.primary_arg_idx].constrain_to_compatible_packed_dim(narrowed)
            self.args_repset_list[self.primary_arg_idx] = primary
            if self.sync_args_repr:
                self._follow(self.args_repset_list, primary, but=self.primary_arg_idx)
        self.assert_sync_contraints()
        return True

    @staticmethod
    def _follow(sets: TensorRepSetList, leader: TensorRepSet, but: int) -> None:
        for index, item in enumerate(sets.vals):
            if index != but:
                sets[index] = item.constrain_to_compatible_packed_dim(leader)

    def pick_representations(self) -> tuple[TensorReprList, TensorReprList]:
        """A representation for every argument and every output."""
        return (
            TensorReprList([item.make_tensor_repr() for item in self.args_repset_list.vals]),
            TensorReprList([item.make_tensor_repr() for item in self.outs_repset_list.vals]),
        )

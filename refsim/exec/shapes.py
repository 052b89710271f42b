"""`at`: the static copy of a model whose inputs have other shapes. Every run at a smaller shape is a run of that copy.

The walk follows the program's instructions with tensors of which only the shapes count. Numbers that an input gives,
as a SymInt or as an element that becomes one, count too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from refsim.core.counted import counted
from refsim.core.errors import GraphError, ShapeError
from refsim.exec.instructions import LoadedModel, PlainKernel, fetched, one_chain
from refsim.exec.prepared import Values
from refsim.formats.literals import Int
from refsim.formats.pte import schema as program
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import VkTensor
from refsim.graph.shapes import SELECTED, at_shapes

#: What identifies a copy: the shape of each input, and its bytes where its numbers count.
Key = tuple[Any, ...]


@dataclass(frozen=True)
class InputBorder:
    """An input of a model: dtype and sizes at the bound; whether it may be smaller, and whether its numbers count."""

    sizes: tuple[int, ...]
    dtype: np.dtype[Any]
    dynamic: bool
    numbers: bool = False

    def __str__(self) -> str:
        return f"{self.dtype} {'up to ' if self.dynamic else ''}{list(self.sizes)}"


def key(border: Sequence[InputBorder], given: Sequence[np.ndarray]) -> Key:
    """What identifies the copy for these inputs."""
    return tuple(
        (array.shape, array.tobytes()) if row.numbers else array.shape
        for row, array in zip(border, given, strict=True)
    )


def check(where: str, border: Sequence[InputBorder], given: Sequence[np.ndarray]) -> None:
    """ShapeError for inputs that do not fit, with what ExecuTorch would do."""
    if len(given) != len(border):
        raise ShapeError(where, "wrong number of inputs", got=len(given), need=len(border))
    for number, (row, array) in enumerate(zip(border, given, strict=True)):
        if array.shape == row.sizes and array.dtype == row.dtype:
            continue
        place, got = f"{where}: input {number}", f"{array.dtype} {list(array.shape)}"
        if array.dtype != row.dtype or array.ndim != len(row.sizes) or not row.dynamic:
            raise ShapeError(place, "does not fit", got=got, need=str(row))
        beyond = [
            f"dim {d} is {n} of {m}"
            for d, (n, m) in enumerate(zip(array.shape, row.sizes, strict=True))
            if n > m
        ]
        if beyond:
            most = prod(row.sizes)
            told = (
                f"ExecuTorch refuses more than {counted(most, 'element')}"
                if array.size > most
                else "ExecuTorch counts elements only, takes it, and writes outside of its images"
            )
            raise ShapeError(
                place, f"is beyond the bound: {', '.join(beyond)}", got=f"{got}, {counted(array.size, 'element')}",
                need=f"{row}, {counted(most, 'element')}; {told}",
            )  # fmt: skip


def border_of(
    plan: program.Plan | None, blobs: Mapping[int, Blob], shapes: Sequence[Any]
) -> list[InputBorder]:
    """The inputs of a model, of which ``shapes`` has sizes and dtypes. Of a bare delegate nobody says which of its
    inputs are dynamic; all may be."""
    if plan is None:
        if not blobs:  # a graph that no file holds
            return [InputBorder(sizes, dtype, False) for sizes, dtype in shapes]
        (blob,) = blobs.values()
        selected = _selected(blob)
        return [
            InputBorder(sizes, dtype, True, value in selected)
            for (sizes, dtype), value in zip(shapes, blob.graph.input_ids, strict=True)
        ]
    numbers = {number for number in plan.inputs if isinstance(plan.values[number], program.Int)}
    for call in _delegate_calls(plan):
        if (called := blobs.get(call.delegate_index)) is None:
            continue
        for value, argument in zip(called.graph.input_ids, call.args, strict=False):
            if value in _selected(called) or not _is_tensor(called, value):
                numbers.add(argument)
    found = []
    for number, (sizes, dtype) in zip(plan.inputs, shapes, strict=True):
        held = plan.values[number]
        dynamic = isinstance(held, program.Tensor) and held.shape_dynamism != 0
        found.append(InputBorder(sizes, dtype, dynamic, number in numbers))
    return found


def _delegate_calls(plan: program.Plan) -> Iterator[program.DelegateCall]:
    steps = (step for chain in plan.chains for step in chain.instructions)
    return (step for step in steps if isinstance(step, program.DelegateCall))


def _selected(blob: Blob) -> set[int]:
    """The tensors of which the numbers become SymInts."""
    return {call.args[0] for call in blob.graph.chain if call.name == SELECTED}


def _is_tensor(blob: Blob, number: int) -> bool:
    return isinstance(blob.graph.values[number], VkTensor)


def at(
    model: LoadedModel, blobs: Mapping[int, Blob], given: Sequence[np.ndarray], where: str
) -> tuple[program.Plan | None, dict[int, Blob]]:
    """Plan and delegates of the static copy of a model for these inputs, which `check` has let pass.

    ``blobs`` are those of the file. GraphError or ShapeError, which name the operator, where sizes do not fit.
    """
    plan = model.plan
    if plan is None:
        ((number, blob),) = blobs.items()
        found, _ = at_shapes(blob, model.graphs[number], given, where)
        return None, {number: found}
    return _Walk(model, plan, blobs, f"{where}: {plan.name}").run(given)


class _Walk:
    """One way through a program's instructions."""

    def __init__(self, model: LoadedModel, plan: program.Plan, blobs: Mapping[int, Blob], where: str) -> None:
        self.model, self.plan, self.blobs, self.where = model, plan, blobs, where
        self.values: dict[int, Any] = {}
        self.copies: dict[int, Blob] = {}
        self.calls: dict[int, program.DelegateCall] = {}

    def run(self, given: Sequence[np.ndarray]) -> tuple[program.Plan, dict[int, Blob]]:
        one_chain(self.plan, self.where)
        self.values |= zip(self.plan.inputs, given, strict=True)
        for at, instruction in enumerate(self.plan.chains[0].instructions):
            place = f"{self.where}: instruction {at}"
            if isinstance(instruction, program.DelegateCall):
                self._delegate(at, instruction, place)
            elif isinstance(instruction, program.KernelCall):
                kernel = PlainKernel(self.plan, instruction, place)
                kernel.run([partial(self._fetch, n, place) for n in kernel.given], self.values)
            elif isinstance(instruction, program.MoveCall):
                self.values[instruction.move_to] = self._fetch(instruction.move_from, place, self.values)
        steps = tuple(self.calls.get(n, step) for n, step in enumerate(self.plan.chains[0].instructions))
        chains = (replace(self.plan.chains[0], instructions=steps), *self.plan.chains[1:])
        values = tuple(self._value(number, held) for number, held in enumerate(self.plan.values))
        return replace(self.plan, values=values, chains=chains), self.copies

    def _fetch(self, number: int, place: str, values: Values) -> Any:
        return fetched(self.model, self.plan, values, number, place)

    def _delegate(self, at: int, call: program.DelegateCall, place: str) -> None:
        number = call.delegate_index
        blob = self.blobs.get(number)
        if blob is None:
            raise GraphError(place, "not a Vulkan delegate", got=self.plan.delegates[number].id)
        ids, need = blob.graph.input_ids, len(blob.graph.input_ids) + len(blob.graph.output_ids)
        if len(call.args) != need:
            raise GraphError(place, "wrong number of arguments", got=len(call.args), need=need)
        given = [self._fetch(argument, place, self.values) for argument in call.args[: len(ids)]]
        where = f"{self.model.path}: delegate {number}"
        copy, outputs = at_shapes(blob, self.model.graphs[number], given, where)
        copy, kept = without_numbers(copy, ids)
        if self.copies.setdefault(number, copy) != copy:
            raise GraphError(place, "calls a delegate again, at other shapes", need="one shape in a run")
        self.calls[at] = replace(call, args=(*(call.args[n] for n in kept), *call.args[len(ids) :]))
        self.values |= zip(call.args[len(ids) :], outputs, strict=True)

    def _value(self, number: int, held: program.EValue) -> program.EValue:
        if number not in self.values:
            return held
        found = self.values[number]
        if isinstance(held, program.Tensor):
            return replace(held, sizes=tuple(np.shape(found)), shape_dynamism=0)
        return Int(int(found)) if isinstance(held, Int) else held


def without_numbers(blob: Blob, ids: Sequence[int]) -> tuple[Blob, list[int]]:
    """A blob that takes tensors alone, and the places of these among its inputs: numbers are written into a copy."""
    kept = [place for place, number in enumerate(ids) if _is_tensor(blob, number)]
    return replace(blob, graph=replace(blob.graph, input_ids=tuple(ids[place] for place in kept))), kept

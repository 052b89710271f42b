"""The instructions of a program: calls of delegates and of plain kernels between them, and moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from refsim import aten
from refsim.core.dtypes import BY_PROGRAM_CODE
from refsim.core.errors import GraphError
from refsim.exec.executor import Executor, Pending, session_of, started
from refsim.exec.prepared import Compute, Delegate, Fetch, Instruction, PreparedModel, Shapes, Values
from refsim.formats.pte import schema as program
from refsim.formats.pte.read import VULKAN_ID, Pte
from refsim.graph.graph import Graph
from refsim.graph.interpreter import Observer


class LoadedModel(Protocol):
    """What a model has of its file."""

    @property
    def path(self) -> str: ...
    @property
    def graphs(self) -> Mapping[int, Graph]: ...
    @property
    def container(self) -> Pte | None: ...
    @property
    def plan(self) -> program.Plan | None: ...


def dtype_of(tensor: program.Tensor, where: str) -> np.dtype[Any]:
    row = BY_PROGRAM_CODE[tensor.scalar_type]
    if not row.computed:
        known = ", ".join(row.program[1] for row in BY_PROGRAM_CODE.values() if row.program and row.computed)
        raise GraphError(where, "tensor of an unsupported dtype", got=tensor.dtype_name, need=known)
    return row.numpy


def one_chain(plan: program.Plan, where: str) -> None:
    """GraphError for a plan of several chains, or of none."""
    if len(plan.chains) != 1:
        raise GraphError(where, "more than one chain", got=len(plan.chains), need=1)


def prepared_plan(
    model: LoadedModel,
    plan: program.Plan,
    shapes: Shapes,
    executor: Executor,
    observe: Observer | None = None,
) -> PreparedModel:
    """The instructions of a plan, each with what it reads found out. ``observe`` is told of every run."""
    where = f"{model.path}: {plan.name}"
    # what runs have by now, and what of it is surely an array
    written, arrays = set(plan.inputs), set(plan.inputs)
    one_chain(plan, where)
    made: list[Instruction] = []
    for at, instruction in enumerate(plan.chains[0].instructions):
        place = f"{where}: instruction {at}"
        if isinstance(instruction, program.DelegateCall):
            graph = _delegate_of(model, plan, instruction, place)
            count = len(graph.inputs)
            reads = [_array_fetch(model, plan, number, arrays, place) for number in instruction.args[:count]]
            number, writes = instruction.delegate_index, instruction.args[count:]
            made.append(delegate(graph, number, executor, observe, reads, writes))
            written |= set(instruction.args[count:])
            arrays |= set(instruction.args[count:])
        elif isinstance(instruction, program.KernelCall):
            kernel = PlainKernel(plan, instruction, place, executor)
            fetches = [_fetch(model, plan, number, written, place) for number in kernel.given]
            made.append(partial(kernel.run, fetches))
            written |= set(kernel.outputs)
            arrays = arrays - set(kernel.outputs) | kernel.arrays
        elif isinstance(instruction, program.MoveCall):
            fetch = _fetch(model, plan, instruction.move_from, written, place)
            made.append(partial(_move, fetch, instruction.move_to))
            written.add(instruction.move_to)
            arrays.discard(instruction.move_to)
        elif isinstance(instruction, program.JumpFalseCall):
            raise GraphError(place, "control flow is not supported", got="JumpFalseCall")
    outputs = [_array_fetch(model, plan, number, arrays, where) for number in plan.outputs]
    return PreparedModel(model.path, shapes, plan.inputs, made, outputs, _whole(plan, made))


def _whole(plan: program.Plan, made: Sequence[Instruction]) -> Compute | None:
    """What runs a plan that is one call of a delegate, with the inputs and outputs in the same order."""
    if len(made) != 1 or not isinstance(call := made[0], Delegate):
        return None
    (only,) = (one for one in plan.chains[0].instructions if isinstance(one, program.DelegateCall))
    return call.compute if tuple(only.args) == (*plan.inputs, *plan.outputs) else None


def _move(fetch: Fetch, to: int, values: Values) -> None:
    values[to] = fetch(values)


def _fetch(model: LoadedModel, plan: program.Plan, number: int, written: Set[int], place: str) -> Fetch:
    """What fetches a value in a run in which at most these have been written."""
    value = plan.values[number]
    lists = isinstance(value, program.TensorList | program.OptionalTensorList)
    lists = lists or (isinstance(value, program.IntIdList) and not written.isdisjoint(value.items))
    if number in written or lists or (isinstance(value, program.Tensor) and not value.is_constant):
        return lambda values: fetched(model, plan, values, number, place)
    constant = fetched(model, plan, {}, number, place)
    return lambda values: constant


def _array_fetch(model: LoadedModel, plan: program.Plan, number: int, arrays: Set[int], place: str) -> Fetch:
    """The same for a value that must be a tensor, or a number that stands for one; these are arrays."""
    if number in arrays:
        return itemgetter(number)
    return lambda values: _array(model, plan, values, number, place)


def delegate(
    graph: Graph,
    number: int,
    executor: Executor,
    observe: Observer | None,
    reads: Sequence[Fetch],
    writes: Sequence[int],
) -> Delegate:
    """The call of a delegate, with its session made ready. LimitError as `session_of`."""
    session = session_of(graph, executor, number, observe)

    def start(arrays: Sequence[np.ndarray]) -> Pending:
        return started(session, graph, arrays, number, observe)

    def compute(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return session.run(arrays, number)

    def watched(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return start(arrays).finish()

    return Delegate(compute if observe is None else watched, start, tuple(reads), tuple(writes))


def _delegate_of(
    model: LoadedModel, plan: program.Plan, instruction: program.DelegateCall, place: str
) -> Graph:
    number = instruction.delegate_index
    if number not in model.graphs:
        raise GraphError(place, "not a Vulkan delegate", got=plan.delegates[number].id, need=VULKAN_ID)
    graph = model.graphs[number]
    need = len(graph.inputs) + len(graph.outputs)
    if len(instruction.args) != need:
        raise GraphError(place, "wrong number of arguments", got=len(instruction.args), need=need)
    return graph


class PlainKernel:
    """A plain kernel. Its arguments are followed by its outputs, and by its result: the output again, or a list.

    A kernel that writes a list of tensors, as a split, is given that list as its one output. One that writes into an
    argument, or moves nothing, is of the overload ``default`` and has no outputs but what it returns.
    """

    def __init__(
        self,
        plan: program.Plan,
        instruction: program.KernelCall,
        place: str,
        executor: Executor | None = None,
    ) -> None:
        operator = plan.operators[instruction.op_index]
        ids = instruction.args
        returned = plan.values[ids[-1]] if ids else None
        self.outputs = returned.items if isinstance(returned, program.TensorList) else ids[-1:]
        apart = 1 if len(ids) > 1 and plan.values[ids[-2]] == returned else len(self.outputs)
        written = 0 if operator.overload == "default" else apart
        self.given = ids[: len(ids) - 1 - written]
        self._where = f"{place} {operator}"
        self._operator = aten.find(str(operator), self._where)
        self._faster = None if executor is None else executor.plain(str(operator))
        held = [plan.values[number] for number in self.outputs]
        #: Outputs that are arrays in any run; a list may be given fewer than it has places.
        self.arrays = {n for n in ids[-1:] if isinstance(returned, program.Tensor)}
        self._dtypes = [dtype_of(h, place) if isinstance(h, program.Tensor) else None for h in held]

    def run(self, fetches: Sequence[Fetch], values: Values) -> None:
        """Results are in the dtype of the tensor that a kernel writes: `arange.out` has it from there only."""
        args = [fetch(values) for fetch in fetches]
        made = None if self._faster is None else self._faster(*args)
        results = self._operator.run(args, self._where) if made is None else (made,)
        for number, dtype, result in zip(self.outputs, self._dtypes, results, strict=False):
            values[number] = result if dtype is None else np.asarray(result, dtype)


def _array(
    model: LoadedModel, plan: program.Plan, values: Mapping[int, Any], number: int, place: str
) -> np.ndarray:
    """A value that must be a tensor, or a number that stands for one."""
    value = fetched(model, plan, values, number, place)
    if not isinstance(value, np.ndarray | int | float):
        raise GraphError(place, "not a tensor", got=f"value {number}, {type(value).__name__}")
    return np.asarray(value)


def fetched(
    model: LoadedModel, plan: program.Plan, values: Mapping[int, Any], number: int, place: str
) -> Any:
    """A value of a run: what was written, else what the plan says."""
    if number in values:
        return values[number]
    value = plan.values[number]
    if isinstance(value, program.TensorList | program.OptionalTensorList):
        return tuple(None if i < 0 else fetched(model, plan, values, i, place) for i in value.items)
    if isinstance(value, program.IntIdList):  # a run may compute some
        return tuple(fetched(model, plan, values, i, place) for i in value.items)
    if not isinstance(value, program.Tensor):
        return plan.literal(number)
    assert model.container is not None
    data = model.container.tensor_data(value) if value.is_constant else None
    if data is None:
        shared = _in_same_memory(plan, values, value)
        if shared is None:
            raise GraphError(place, "reads a value that nothing wrote", got=f"value {number}")
        return shared
    shape = [value.sizes[d] for d in value.dim_order]
    array = np.frombuffer(data, dtype_of(value, place)).reshape(shape)
    return array.transpose(np.argsort(value.dim_order))


def _in_same_memory(plan: program.Plan, values: Mapping[int, Any], view: program.Tensor) -> np.ndarray | None:
    """What was written last where a tensor lies that nothing writes: a view, whose kernel ExecuTorch leaves out."""
    for number in reversed(list(values)):
        other = plan.values[number]
        if not isinstance(other, program.Tensor) or view.allocation is None:
            continue
        if other.allocation == view.allocation and isinstance(held := values[number], np.ndarray):
            same = held.size == np.prod(view.sizes, dtype=np.int64) and other.scalar_type == view.scalar_type
            return np.array(held, order="C").reshape(view.sizes) if same else None
    return None

"""Model: a file that can be run: a .pte with its delegates and the plain kernels between them, or one delegate."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from os import PathLike, fspath
from typing import Any

import numpy as np

from refsim import aten
from refsim.core import size_limit
from refsim.core.dtypes import BY_PROGRAM_CODE
from refsim.core.errors import FormatError, GraphError, ParameterError, ShapeError
from refsim.core.folder_write import current
from refsim.core.rng import Rng
from refsim.exec.executor import Executor, start_graph
from refsim.exec.factory import executor_named
from refsim.formats.file import read_file
from refsim.formats.pte import schema as program
from refsim.formats.pte.read import VULKAN_ID, Pte, kind_of, read_pte
from refsim.formats.vkgraph.read import read_blob
from refsim.graph.build import build
from refsim.graph.graph import Graph, Node
from refsim.graph.interpreter import Event, Observer
from refsim.ops.base.spec import Target

#: The program in a folder that `refsim lower` wrote.
LOWERED = "model.pte"


@dataclass(frozen=True)
class Model:
    """A loaded file: its delegates' graphs by number, and the plan that calls them (None for a bare delegate)."""

    path: str
    graphs: Mapping[int, Graph]
    plan: program.Plan | None = None
    container: Pte | None = field(default=None, compare=False)
    _runners: dict[str, Executor] = field(default_factory=dict, compare=False, repr=False)

    def nodes(self) -> Iterator[tuple[int, Node]]:
        """(delegate number, node) in execution order."""
        for number, graph in self.graphs.items():
            for node in graph.nodes:
                yield number, node

    def input_shapes(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of every input."""
        if self.plan is None:
            (graph,) = self.graphs.values()
            return [(graph.tensors[i].shape, graph.tensors[i].dtype) for i in graph.inputs]
        shapes = []
        for number, value in enumerate(self.plan.values[i] for i in self.plan.inputs):
            if not isinstance(value, program.Tensor):
                raise GraphError(
                    f"{self.path}: input {number}", "not a tensor", got=type(value).__name__, need="a tensor"
                )
            shapes.append((value.sizes, _dtype(value, self.path)))
        return shapes

    def random_inputs(self, seed: int) -> list[np.ndarray]:
        """Inputs uniform in [-1, 1). LimitError if they are larger than files may ask for."""
        wanted = self.input_shapes()
        drawn = sum(prod(shape) * dtype.itemsize for shape, dtype in wanted)
        size_limit.check(f"{self.path}: random inputs", drawn)
        rng = Rng(seed)
        return [rng.uniform(-1.0, 1.0, shape).astype(dtype) for shape, dtype in wanted]

    def run(
        self,
        inputs: Sequence[np.ndarray],
        executor: str | Executor = "cpu",
        observe: Observer | Callable[[Event], None] | None = None,
    ) -> list[np.ndarray]:
        """Run the model on these input arrays and return the output arrays, in the file's order.

        ``observe`` is called after each node of a delegate, with its buffers. An `Observer` says which buffers it
        wants; executors may then compute other nodes together in one step. Raises ShapeError for inputs that do not
        fit, and UnknownOperatorError for a float operator without an implementation.
        """
        runner = self._named(executor) if isinstance(executor, str) else executor
        if observe is not None and not isinstance(observe, Observer):
            observe = Observer(observe)
        return Submitted(self._steps(self._check(inputs), runner, observe)).finish()

    def submit(self, inputs: Sequence[np.ndarray], executor: str | Executor = "cpu") -> Submitted:
        """Begin a run, and return at once if the executor can keep it in flight; `Submitted.finish` gives the outputs.

        A device gets work for the next inputs while the host still prepares others, or reads outputs. Executors that
        cannot do this compute here. Raises as `run` does.
        """
        runner = self._named(executor) if isinstance(executor, str) else executor
        return Submitted(self._steps(self._check(inputs), runner, None))

    def run_many(
        self, many: Iterable[Sequence[np.ndarray]], executor: str | Executor = "cpu", in_flight: int = 8
    ) -> Iterator[list[np.ndarray]]:
        """The outputs for each of many inputs, in their order, with up to ``in_flight`` runs begun and not ended.

        Each run in flight needs memory of its own for all values. The outputs are those of `run`, byte for byte.
        """
        if in_flight < 1:
            raise ParameterError("run_many", "in_flight is out of range", got=in_flight, need=">= 1")
        runner = self._named(executor) if isinstance(executor, str) else executor
        waiting: deque[Submitted] = deque()
        for inputs in many:
            if len(waiting) == in_flight:
                yield _first(waiting)
            waiting.append(self.submit(inputs, runner))
        while waiting:
            yield _first(waiting)

    def _steps(
        self, arrays: Sequence[np.ndarray], executor: Executor, observe: Observer | None
    ) -> Generator[None, None, list[np.ndarray]]:
        """A run, which stands still after each delegate's beginning."""
        if self.plan is not None:
            return (yield from _run_plan(self, self.plan, arrays, executor, observe))
        ((number, graph),) = self.graphs.items()
        pending = start_graph(graph, arrays, executor, number, observe)
        yield
        return pending.finish()

    def _named(self, name: str) -> Executor:
        """An executor by name. The CPU's executors stay with the model and keep what they have prepacked."""
        if not name.startswith("cpu"):
            return executor_named(name)
        if name not in self._runners:
            self._runners[name] = executor_named(name)
        return self._runners[name]

    def _check(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        wanted = self.input_shapes()
        if len(inputs) != len(wanted):
            raise ShapeError(self.path, "wrong number of inputs", got=len(inputs), need=len(wanted))
        for number, (array, (shape, dtype)) in enumerate(zip(inputs, wanted, strict=True)):
            if tuple(array.shape) != tuple(shape) or array.dtype != dtype:
                raise ShapeError(
                    f"{self.path}: input {number}",
                    "does not fit",
                    got=f"{array.dtype} {list(array.shape)}",
                    need=f"{dtype} {list(shape)}",
                )
        return [np.asarray(array, order="C") for array in inputs]


class Submitted:
    """A run that has begun: its first delegate is on its way."""

    def __init__(self, steps: Generator[None, None, list[np.ndarray]]) -> None:
        self._steps = steps
        self._outputs: list[np.ndarray] | None = None
        self._failed: Exception | None = None
        self.advance()

    @property
    def ended(self) -> bool:
        return self._outputs is not None

    def advance(self) -> None:
        """Wait for the delegate that is on its way, and begin the next."""
        if self._failed is not None:
            raise self._failed
        try:
            next(self._steps)
        except StopIteration as end:
            self._outputs = end.value
        except Exception as error:
            self._failed = error
            raise

    def finish(self) -> list[np.ndarray]:
        """The outputs, in the file's order."""
        while self._outputs is None:
            self.advance()
        return self._outputs


def _first(waiting: deque[Submitted]) -> list[np.ndarray]:
    """The outputs of the first run; meanwhile the others begin their next delegates."""
    while not waiting[0].ended:
        for one in waiting:
            if not one.ended:
                one.advance()
    return waiting.popleft().finish()


def load(path: str | PathLike[str], target: Target | None = None) -> Model:
    """Read a .pte file, a delegate blob, or a folder that `refsim lower` wrote.

    Raises FormatError, LimitError or GraphError; never anything else.
    """
    if os.path.isdir(path) and (lowered := current(path, LOWERED)).is_file():
        path = lowered
    name = fspath(path)
    data = read_file(path, suffix=".pte")
    kind = kind_of(data)
    if kind == "blob":
        return Model(name, {0: build(read_blob(data, name), name, target)})
    if kind != "pte":
        got = bytes(data[:8]).hex(" ") or "no bytes"
        need = "a .pte, which refsim lower makes of a .pt2" if name.endswith(".pt2") else None
        raise FormatError(name, "neither a .pte file nor a delegate blob", got=got, need=need)
    return built(read_pte(data, name), target)


def built(container: Pte, target: Target | None = None) -> Model:
    """The model of a program that has been read; raises as `load` does."""
    name, plan = container.where, container.plan()
    graphs = {
        number: build(blob, f"{name}: delegate {number}", target) for number, blob in container.blobs(plan)
    }
    return Model(name, graphs, plan, container)


# --- the plan around the delegates -----------------------------------------------------------------------


def _dtype(tensor: program.Tensor, where: str) -> np.dtype[Any]:
    row = BY_PROGRAM_CODE[tensor.scalar_type]
    if not row.computed:
        known = ", ".join(row.program[1] for row in BY_PROGRAM_CODE.values() if row.program and row.computed)
        raise GraphError(where, "tensor of an unsupported dtype", got=tensor.dtype_name, need=known)
    return row.numpy


def _run_plan(
    model: Model,
    plan: program.Plan,
    inputs: Sequence[np.ndarray],
    executor: Executor,
    observe: Observer | None,
) -> Generator[None, None, list[np.ndarray]]:
    values: dict[int, Any] = dict(zip(plan.inputs, inputs, strict=True))
    where = f"{model.path}: {plan.name}"
    if len(plan.chains) != 1:
        raise GraphError(where, "more than one chain", got=len(plan.chains), need=1)
    instructions = plan.chains[0].instructions
    for at, instruction in enumerate(instructions):
        place = f"{where}: instruction {at}"
        if isinstance(instruction, program.DelegateCall):
            yield from _call_delegate(model, plan, instruction, values, executor, observe, place)
        elif isinstance(instruction, program.KernelCall):
            _call_kernel(model, plan, instruction, values, place)
        elif isinstance(instruction, program.MoveCall):
            values[instruction.move_to] = _value(model, plan, values, instruction.move_from, place)
        elif isinstance(instruction, program.JumpFalseCall):
            raise GraphError(place, "control flow is not supported", got="JumpFalseCall")
    return [_array(model, plan, values, number, where) for number in plan.outputs]


def _call_delegate(
    model: Model,
    plan: program.Plan,
    instruction: program.DelegateCall,
    values: dict[int, Any],
    executor: Executor,
    observe: Observer | None,
    place: str,
) -> Generator[None, None, None]:
    number = instruction.delegate_index
    if number not in model.graphs:
        raise GraphError(place, "not a Vulkan delegate", got=plan.delegates[number].id, need=VULKAN_ID)
    graph = model.graphs[number]
    count = len(graph.inputs)
    if len(instruction.args) != count + len(graph.outputs):
        raise GraphError(
            place, "wrong number of arguments", got=len(instruction.args), need=count + len(graph.outputs)
        )
    arrays = [_array(model, plan, values, a, place) for a in instruction.args[:count]]
    pending = start_graph(graph, arrays, executor, number, observe)
    yield
    values.update(zip(instruction.args[count:], pending.finish(), strict=True))


def _call_kernel(
    model: Model, plan: program.Plan, instruction: program.KernelCall, values: dict[int, Any], place: str
) -> None:
    """Run a plain kernel. Its arguments are followed by its outputs, and by its result: the output again, or a list.

    A kernel that writes a list of tensors, as a split, is given that list as its one output. One that writes into an
    argument, or moves nothing, is of the overload ``default`` and has no outputs but what it returns.
    """
    operator = plan.operators[instruction.op_index]
    name = str(operator)
    ids = instruction.args
    returned = plan.values[ids[-1]] if ids else None
    outputs = returned.items if isinstance(returned, program.TensorList) else ids[-1:]
    apart = 1 if len(ids) > 1 and plan.values[ids[-2]] == returned else len(outputs)
    written = 0 if operator.overload == "default" else apart
    given = ids[: len(ids) - 1 - written]
    args = [_value(model, plan, values, number, place) for number in given]
    results = aten.find(name, f"{place} {name}").run(args, f"{place} {name}")
    for number, result in zip(outputs, results, strict=False):
        values[number] = _written(plan.values[number], result, place)


def _written(held: program.EValue, result: np.ndarray, place: str) -> np.ndarray:
    """A result in the dtype of the tensor that a kernel writes: `arange.out` has it from there only."""
    return np.asarray(result, _dtype(held, place)) if isinstance(held, program.Tensor) else result


def _array(
    model: Model, plan: program.Plan, values: Mapping[int, Any], number: int, place: str
) -> np.ndarray:
    """A value that must be a tensor, or a number that stands for one."""
    value = _value(model, plan, values, number, place)
    if not isinstance(value, np.ndarray | int | float):
        raise GraphError(place, "not a tensor", got=f"value {number}, {type(value).__name__}")
    return np.asarray(value)


def _value(model: Model, plan: program.Plan, values: Mapping[int, Any], number: int, place: str) -> Any:
    if number in values:
        return values[number]
    value = plan.values[number]
    if isinstance(value, program.TensorList | program.OptionalTensorList):
        return tuple(None if i < 0 else _value(model, plan, values, i, place) for i in value.items)
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
    array = np.frombuffer(data, _dtype(value, place)).reshape(shape)
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

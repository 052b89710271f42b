"""Model: a file that can be run: a .pte with its delegates and the plain kernels between them, or one delegate."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from operator import itemgetter
from os import PathLike, fspath
from typing import Any

import numpy as np

from refsim.core import size_limit
from refsim.core.counted import counted
from refsim.core.errors import GraphError, ParameterError, ShapeError
from refsim.core.folder_write import current
from refsim.core.rng import Rng
from refsim.exec import shapes
from refsim.exec.executor import Executor
from refsim.exec.factory import executor_named
from refsim.exec.instructions import delegate, dtype_of, prepared_plan
from refsim.exec.one_process import OneProcess
from refsim.exec.prepared import Fetch, PreparedModel
from refsim.formats.file import read_file
from refsim.formats.pte import schema as program
from refsim.formats.pte.read import Pte, kind_of, read_pte, unknown
from refsim.formats.vkgraph.read import Blob, read_blob
from refsim.graph.flat import built_graph
from refsim.graph.graph import Graph, Node
from refsim.graph.interpreter import Event, Observer
from refsim.graph.shapes import Number, at_bound, at_shapes, numbers, zeros
from refsim.ops.base.target import Target

#: The program in a folder that `refsim lower` wrote.
LOWERED = "model.pte"
#: Static copies that a model keeps, each for other shapes.
MOST_COPIES = 16


@dataclass(frozen=True)
class Model:
    """A loaded file: its delegates' graphs by number, and the plan that calls them (None for a bare delegate)."""

    path: str
    graphs: Mapping[int, Graph]
    plan: program.Plan | None = None
    container: Pte | None = field(default=None, compare=False)
    blobs: Mapping[int, Blob] = field(default_factory=dict, compare=False, repr=False)
    #: the model of the file, of which this is the static copy for other shapes
    bound: Model | None = field(default=None, compare=False, repr=False)
    _runners: dict[str, Executor] = field(default_factory=dict, compare=False, repr=False)
    #: what was made ready last, by its executor, and by what a caller named where inputs' shapes say all
    _last: dict[Executor, PreparedModel] = field(default_factory=dict, init=False, compare=False, repr=False)
    _quick: dict[str | Executor, PreparedModel] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    _copies: dict[shapes.Key, Model] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __repr__(self) -> str:
        count = sum(len(graph.nodes) for graph in self.graphs.values())
        inputs = ", ".join(f"in{number} {row}" for number, row in enumerate(self.border))
        held = f"{counted(len(self.graphs), 'delegate')}, {counted(count, 'operator')}"
        return f"Model({self.path!r}, {held}, {inputs or 'no inputs'})"

    def nodes(self) -> Iterator[tuple[int, Node]]:
        """(delegate number, node) in execution order."""
        for number, graph in self.graphs.items():
            for node in graph.nodes:
                yield number, node

    @cached_property
    def border(self) -> list[shapes.InputBorder]:
        """The inputs, with what runs may change about their shapes."""
        return shapes.border_of(self.plan, self.blobs, self.input_shapes())

    def at(self, inputs: Sequence[np.ndarray]) -> Model:
        """The static copy of the model for the shapes of these inputs; the model itself where these are its own.

        A copy has no SymInts, and the layouts and kernels that were chosen at the bound (refsim/graph/shapes.py).
        Raises ShapeError for inputs beyond the bound, and ShapeError or GraphError, which name the operator, where
        sizes do not fit.
        """
        if self.bound is not None:
            return self.bound.at(inputs)
        shapes.check(self.path, self.border, inputs)
        key = shapes.key(self.border, inputs)
        if key == tuple(row.sizes for row in self.border):
            return self
        if (held := self._copies.pop(key, None)) is None:
            held = self._copy(inputs)
            while len(self._copies) >= MOST_COPIES:
                del self._copies[next(iter(self._copies))]
        self._copies[key] = held  # the latest stand last
        return held

    def static(self, inputs: Sequence[np.ndarray]) -> Model:
        """As `at`, but of a dynamic model the bound is a copy too: a program without dynamic dims and SymInts."""
        found = self.at(inputs)
        return found._copy(inputs) if found.bound is None and found.is_dynamic else found

    @property
    def is_dynamic(self) -> bool:
        """Whether runs may have other shapes than the file's."""
        return self.bound is None and any(row.dynamic and row.sizes for row in self.border)

    def numbers(self, delegate: int) -> list[Number]:
        """The SymInts of a delegate, with what they are at the model's shapes."""
        blob = (self.bound or self).blobs.get(delegate)
        if blob is None:
            return []
        copy = at_bound(blob, self.path) if self.bound is None else self.blobs[delegate]
        return numbers(blob, copy)

    def delegate_at(self, number: int, given: Sequence[np.ndarray]) -> tuple[Graph, list[int]]:
        """A delegate at the shapes of its own inputs, and which of these it takes: SymInts are written into it."""
        root = self.bound or self
        place = _place(self.path, self.plan, number)
        copy, _ = at_shapes(root.blobs[number], root.graphs[number], given, place)
        copy, kept = shapes.without_numbers(copy, root.blobs[number].graph.input_ids)
        return built_graph(copy, place, root.graphs[number].target), kept

    def _copy(self, inputs: Sequence[np.ndarray]) -> Model:
        given = [
            array if row.numbers else zeros(array.shape, array.dtype)
            for row, array in zip(self.border, inputs, strict=True)
        ]
        plan, blobs = shapes.at(self, self.blobs, given, self.path)
        target = next(iter(self.graphs.values())).target if self.graphs else None
        graphs = {
            number: built_graph(blob, _place(self.path, plan, number), target, of=self.graphs[number])
            for number, blob in blobs.items()
        }
        container = self.container
        if container is not None and plan is not None:
            plans = tuple(plan if other is self.plan else other for other in container.program.plans)
            program_ = replace(container.program, plans=plans)
            container = replace(container, program=program_, held=blobs)
        return Model(self.path, graphs, plan, container, blobs, self, self._runners)

    def input_shapes(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and dtype of every input, in the file's order; of a dynamic one, the bound. A whole number is int64
        without dims. GraphError if one is neither."""
        if self.plan is None:
            (graph,) = self.graphs.values()
            return [(graph.tensors[i].shape, graph.tensors[i].dtype) for i in graph.inputs]
        found: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        for number, value in enumerate(self.plan.values[i] for i in self.plan.inputs):
            if isinstance(value, program.Int):
                found.append(((), np.dtype(np.int64)))
                continue
            if not isinstance(value, program.Tensor):
                raise GraphError(
                    f"{self.path}: input {number}", "not a tensor", got=type(value).__name__, need="a tensor"
                )
            found.append((value.sizes, dtype_of(value, self.path)))
        return found

    def random_inputs(self, seed: int) -> list[np.ndarray]:
        """Inputs uniform in [-1, 1), then converted to each input's dtype: integers become 0, truth values True.

        LimitError if they are larger than files may ask for.
        """
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

        ``inputs`` have the shapes and dtypes of `input_shapes`. Arrays are logical: four dims are NCHW. Floats are real
        values, int8 are quantized ones. An array alone stands for a single input; torch tensors are taken too.
        ``observe`` is called after each node of a delegate, with its buffers. An `Observer` says which buffers it
        wants; executors may then compute other nodes together in one step. Raises ShapeError for inputs that do not
        fit, and UnknownOperatorError for a float operator without an implementation.
        """
        if type(inputs) is not list:
            inputs = self._given(inputs)
        if type(executor) is not str:
            executor = self._runner(executor)
        if observe is None and (ready := self._quick.get(executor)) is not None and ready.fits(inputs):
            return ready.compute(inputs)  # a small network takes no longer than what stands below
        inputs = self._given(inputs)
        runner = self._runner(executor)
        if (model := self.at(inputs)) is not self:
            return model.run(inputs, runner, observe)
        if observe is None and runner.keeps_sessions:
            made = self._ready(runner)
            if not any(row.numbers for row in (self.bound or self).border):
                self._quick[executor] = made
            return made.run(inputs)
        if observe is not None and not isinstance(observe, Observer):
            observe = Observer(observe)
        return self._prepared(runner, observe).run(inputs)

    def prepare(self, executor: str | Executor = "cpu") -> PreparedModel:
        """The model made ready on an executor: its `run` gives what `run` gives, with less work around the kernels.

        Raises as `run` does, except for inputs.
        """
        runner = self._runner(executor)
        if self.is_dynamic:
            return PreparedShapes(self, runner)
        return self._prepared(runner)

    def _prepared(self, runner: Executor, observe: Observer | None = None) -> PreparedModel:
        """The model made ready for its own shapes, as its runtime runs them; ``observe`` is told of every run."""
        if any(not row.meant for graph in self.graphs.values() for _, row in graph.misshaped()):
            return self.as_meant(OneProcess(self, runner, alone=True), observe)
        return self.as_meant(runner, observe)

    def as_meant(self, runner: Executor, observe: Observer | None = None) -> PreparedModel:
        """The model made ready for its own shapes, where operators compute what they mean."""
        wanted = self.input_shapes()
        if self.plan is not None:
            return prepared_plan(self, self.plan, wanted, runner, observe)
        ((number, graph),) = self.graphs.items()
        reads = [itemgetter(value) for value in graph.inputs]
        call = delegate(graph, number, runner, observe, reads, graph.outputs)
        outputs: list[Fetch] = [itemgetter(value) for value in graph.outputs]
        return PreparedModel(self.path, wanted, graph.inputs, [call], outputs, call.compute)

    def _ready(self, runner: Executor) -> PreparedModel:
        """The same; what was made for the last executor is kept."""
        if (made := self._last.get(runner)) is None:
            made = self._prepared(runner)
            self._last.clear()
            self._quick.clear()
            self._last[runner] = made
        return made

    def submit(self, inputs: Sequence[np.ndarray], executor: str | Executor = "cpu") -> Submitted:
        """Begin a run, and return at once if the executor can keep it in flight; `Submitted.finish` gives the outputs.

        A device gets work for the next inputs while the host still prepares others, or reads outputs. Executors that
        cannot do this compute here. Raises as `run` does.
        """
        inputs = self._given(inputs)
        runner = self._runner(executor)
        return Submitted(self.at(inputs)._prepared(runner).steps(inputs))

    def run_many(
        self, many: Iterable[Sequence[np.ndarray]], executor: str | Executor = "cpu", in_flight: int = 8
    ) -> Iterator[list[np.ndarray]]:
        """The outputs for each of many inputs, in their order, with up to ``in_flight`` runs begun and not ended.

        Each run in flight needs memory of its own for all values. The outputs are those of `run`, byte for byte.
        """
        if in_flight < 1:
            raise ParameterError("run_many", "in_flight is out of range", got=in_flight, need=">= 1")
        runner = self._runner(executor)
        waiting: deque[Submitted] = deque()
        for inputs in many:
            if len(waiting) == in_flight:
                yield _first(waiting)
            waiting.append(self.submit(inputs, runner))
        while waiting:
            yield _first(waiting)

    def _runner(self, given: str | Executor) -> Executor:
        """An executor, or that of a name. The CPU's executors stay with the model and keep what they have prepacked."""
        if hasattr(given, "dtype"):
            need = "all inputs in one list, then the executor"
            raise ParameterError(
                self.path, "an array, where an executor is wanted", got=_kind(given), need=need
            )
        if not isinstance(given, str):
            return given
        name = given
        if not name.startswith("cpu"):
            return executor_named(name)
        if name not in self._runners:
            self._runners[name] = executor_named(name)
        return self._runners[name]

    def _given(self, inputs: Any) -> Sequence[np.ndarray]:
        """What a caller gave as arrays: an array alone stands for a single input, a torch tensor for its array."""
        wanted = len(self.border)
        if hasattr(inputs, "dtype"):  # one array, or one tensor
            if wanted != 1:
                need = f"[{', '.join(f'in{number}' for number in range(wanted))}]"
                raise ShapeError(self.path, "one array, where a list is wanted", got=_kind(inputs), need=need)
            inputs = [inputs]
        if isinstance(inputs, Mapping):
            need = "a list in this order: " + ", ".join(f"in{number}" for number in range(wanted))
            raise ShapeError(self.path, "inputs by name", got=", ".join(map(str, inputs)), need=need)
        if isinstance(inputs, str) or not isinstance(inputs, Iterable):
            need = "a list of arrays"
            raise ShapeError(self.path, "inputs that are no arrays", got=_kind(inputs), need=need)
        return [self._array(number, one) for number, one in enumerate(inputs)]

    def _array(self, number: int, given: Any) -> np.ndarray:
        if isinstance(given, np.ndarray):
            return given
        if hasattr(given, "detach"):
            with suppress(TypeError, NotImplementedError):  # bfloat16, which NumPy lacks; no data
                return np.asarray(given.detach().cpu().numpy())
        row = self.border[number] if number < len(self.border) else "no such input"
        need = f"np.asarray(..., np.{row.dtype})" if isinstance(row, shapes.InputBorder) else row
        raise ShapeError(f"{self.path}: input {number}", "is no array", got=_kind(given), need=need)


class PreparedShapes(PreparedModel):
    """A dynamic model made ready: each of the shapes that come is prepared once, and kept as long as its copy."""

    def __init__(self, model: Model, runner: Executor) -> None:
        self._model, self._runner = model, runner
        self._made: dict[tuple[tuple[int, ...], ...], PreparedModel] = {}
        self._by_numbers = any(row.numbers for row in model.border)
        if not self._by_numbers:
            model._ready(runner)  # the bound: what follows shares its memory

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        if self._by_numbers:
            return self._model.at(inputs)._ready(self._runner).run(inputs)
        shapes = tuple(array.shape for array in inputs)
        if (made := self._made.get(shapes)) is None:
            made = self._model.at(inputs)._ready(self._runner)
            while len(self._made) >= MOST_COPIES:
                del self._made[next(iter(self._made))]
            self._made[shapes] = made
        return made.run(inputs)


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


def load(path: str | PathLike[str], target: Target | None = None, runs: bool = True) -> Model:
    """Read a .pte file, a delegate blob, or a folder that `refsim lower` wrote.

    ``runs``: it will be run; without it, also a file that only ExecuTorch's runtime runs is read. Raises FormatError,
    LimitError or GraphError; never anything else.

    >>> refsim.load("tests/data/models/mixed_ops.pte")
    Model('tests/data/models/mixed_ops.pte', 2 delegates, 14 operators, in0 float32 [1, 3, 32, 32])
    """
    if os.path.isdir(path) and (lowered := current(path, LOWERED)).is_file():
        path = lowered
    name = fspath(path)
    data = read_file(path, suffix=".pte")
    kind = kind_of(data)
    if kind == "blob":
        blob = read_blob(data, name)
        return Model(name, {0: built_graph(blob, name, target, runs)}, blobs={0: blob})
    if kind != "pte":
        raise unknown(data, name)
    return built(read_pte(data, name), target, runs)


def built(container: Pte, target: Target | None = None, runs: bool = True) -> Model:
    """The model of a program that has been read; raises as `load` does."""
    name, plan = container.where, container.plan()
    blobs = dict(container.blobs(plan))
    graphs = {
        number: built_graph(
            shapes.without_numbers(blob, blob.graph.input_ids)[0], _place(name, plan, number), target, runs
        )
        for number, blob in blobs.items()
    }
    return Model(name, graphs, plan, container, blobs)


def _place(path: str, plan: program.Plan | None, number: int) -> str:
    """How errors name a delegate."""
    return path if plan is None else f"{path}: delegate {number}"


def _kind(given: object) -> str:
    """``float64 [1, 8]`` of an array or a tensor; else its type."""
    if hasattr(given, "dtype") and hasattr(given, "shape"):
        return f"{given.dtype} {list(given.shape)}"
    return type(given).__name__

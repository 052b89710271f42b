"""Run a model on executors: times of every step, and the buffers that are dumped or compared with recorded bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import prod
from typing import Annotated

import numpy as np

from refsim.core import choices
from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds
from refsim.core.errors import ParameterError
from refsim.core.folder_write import FolderWriter, writing
from refsim.core.layout import layout
from refsim.core.locate import at_byte
from refsim.core.meanings import (
    CellKind,
    ComparedBytes,
    DelegateNumber,
    DifferentBytes,
    DtypeName,
    NodeNumber,
    OperatorName,
    SizeInBytes,
)
from refsim.core.plain import Column
from refsim.device.choose import expression
from refsim.device.dumped import dumped
from refsim.device.exchanged import key, pair
from refsim.exec.executor import Executor, Source
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.exec.trace import unwatched
from refsim.formats import dumps
from refsim.formats.run_identity import RunIdentity, identity
from refsim.graph.describe import NodeOutput, kernels
from refsim.graph.graph import Node
from refsim.graph.interpreter import Event, Observer


@dataclass(frozen=True)
class FirstByte:
    """The first byte that differs."""

    byte: Annotated[int, "Its number in the buffer."]
    index: Annotated[Sequence[int], "The element; in padding beyond the shape."]
    kind: CellKind
    got: Annotated[int, "The byte of the run."]
    need: Annotated[int, "The byte that was recorded."]


@dataclass(frozen=True)
class Check:
    """A buffer against a recorded one."""

    compared: ComparedBytes
    different: DifferentBytes
    first: Annotated[FirstByte | None, "The first byte that differs; null if none does."] = None
    unfit: Annotated[str, "Why nothing was compared: it is of another shape or layout; else empty."] = ""

    def __str__(self) -> str:
        if self.unfit:
            return self.unfit
        if self.first is None:
            return "same"
        place = self.first
        return (
            f"different {self.different} of {self.compared}, first byte {place.byte} "
            f"at {','.join(map(str, place.index))}: got {place.got}, need {place.need}"
        )


@dataclass(frozen=True)
class OutputRow(NodeOutput):
    """One output of one executed node.

    The time of a step is at the first output of the first of its nodes.
    """

    kernels: Annotated[str, "The kernels, or the library that ran a float operator."]
    shape: Annotated[tuple[int, ...], "The sizes, outermost dim first."]
    layout: Annotated[str | None, "The layout; null for a tensor that has none."]
    dtype: DtypeName
    bytes: SizeInBytes
    ms: Annotated[dict[str, float], "Milliseconds, by executor."] = field(default_factory=dict)
    steps: Annotated[
        dict[str, list[int]], "By executor: the nodes that it computed in one step with this one."
    ] = field(default_factory=dict)
    golden: Annotated[dict[str, Check], "By executor: the buffer against the recorded one."] = field(
        default_factory=dict
    )
    sources: Annotated[
        dict[str, Source], "By executor that runs kernels of another build: where they came from."
    ] = field(default_factory=dict)
    on_host: Annotated[
        dict[str, str], "By executor of a device: why the host computed the operator, where it did."
    ] = field(default_factory=dict)
    known: Annotated[list[str], "The defects that upstream's kernel is known to have here."] = field(
        default_factory=list
    )

    def cells(self) -> tuple[object, ...]:
        shape = "x".join(map(str, self.shape))
        short = str(layout(self.layout)) if self.layout else self.dtype
        return (self.delegate, self.node, self.operator, self.kernels, self.value, shape, short, self.bytes)

    def time(self, executor: str) -> float | str:
        """The cell of the column of times."""
        first = self.steps[executor][0]
        return self.ms[executor] if self.node == first else f"with {first}"

    @property
    def is_int8(self) -> bool:
        """Whether the output is a packed int8 buffer, which a comparison must not leave out."""
        return self.layout is not None and self.dtype == "int8"


@dataclass(frozen=True)
class Misshaped:
    """A node that ExecuTorch's runtime does not resize."""

    delegate: Annotated[DelegateNumber, Column(drop=1)]
    node: Annotated[NodeNumber, Column()]
    operator: Annotated[OperatorName, Column()]
    what: Annotated[str, "What happens, in words.", Column()]


@dataclass
class Execution:
    """What a run of all executors gave; ``results`` by executor, of a run that nobody watches."""

    nodes: Annotated[list[OutputRow], "The outputs of all operators, in the order of execution."]
    results: dict[str, list[np.ndarray]]
    dumped: Annotated[list[str], "Buffers that were saved."]
    golden_without_buffer: Annotated[list[str], "Recorded names that are not in this run."]
    unwatched: Annotated[
        dict[str, list[str]],
        "By executor: outputs of a run that nobody watches that are not those of the run whose buffers were kept.",
    ] = field(default_factory=dict)
    #: what ran, and the values whose buffers it was asked for, by delegate
    runners: dict[str, Executor] = field(default_factory=dict)
    watched: dict[int, frozenset[int]] = field(default_factory=dict)
    #: two values of which the recorded buffers are each other's
    exchanged: tuple[str, str] | None = None

    @property
    def executors(self) -> Annotated[list[str], "The executors, in order."]:
        return list(self.results)

    @property
    def different(self) -> int:
        """Buffers that differ from the recorded ones."""
        return sum(any(check.different for check in row.golden.values()) for row in self.nodes)

    @property
    def needed(self) -> list[str]:
        """The int8 buffers of the run, which a comparison must not leave out."""
        return [row.value for row in self.nodes if row.is_int8]

    @property
    def compared(self) -> frozenset[str]:
        """The buffers of which every executor's bytes were compared with recorded ones."""
        return frozenset(
            row.value
            for row in self.nodes
            if all(name in row.golden and row.golden[name].compared for name in self.results)
        )


def execute(
    model: Model,
    inputs: Sequence[np.ndarray],
    executors: Sequence[str],
    *,
    recorded: dumps.Recorded | None = None,
    dump_regex: str | None = None,
    dump_folder: str | None = None,
    repeat: int = 1,
    threads: int = 1,
    seed: int | None = None,
    advance: Callable[[int], None] = lambda count: None,
) -> Execution:
    """Run on each executor in turn. Dumps come from the first; times are the shortest of ``repeat`` runs.

    Where buffers are kept, each executor runs once more for the outputs, as it does where nobody watches.
    ``seed``: what the inputs were drawn from, which dumps say. ``advance`` is called with how many operators ran.
    """
    pattern = None if dump_regex is None else expression("--dump", dump_regex)
    if len(set(executors)) != len(executors):
        raise ParameterError(
            "executors", "one is named twice", got=",".join(executors), need="distinct names"
        )
    # all of them exist before the first runs
    runners = {name: executor_named(name, threads) for name in executors}
    dumping = {
        dumps.value_name(delegate, value)
        for delegate, node in model.nodes()
        for value in node.outputs
        if dump_folder and pattern and pattern.search(_names(delegate, value, node))
    }
    if dump_folder and dump_regex is not None and not dumping:
        raise _no_match(model, dump_regex)
    seen = _Watching(recorded, dumping, identity(model.path, inputs, seed) if dumping else None)
    result = Execution([], {}, seen.dumped, [], runners=runners)
    with ExitStack() as stack:
        writer = stack.enter_context(writing(dump_folder)) if dump_folder else None
        for name, runner in runners.items():

            def tell(event: Event, name: str = name, writer: FolderWriter | None = writer) -> None:
                advance(len(event.nodes))
                seen.step(event, name, writer)

            observer = Observer(tell, seen.wants)
            for _ in range(repeat):
                outputs = model.run(inputs, runner, observer)
            kept = any(observer.watched(number, graph) for number, graph in model.graphs.items())
            if kept and (again := unwatched(model, inputs, runner, outputs)) is not None:
                outputs, result.unwatched[name] = again
            result.results[name] = outputs
            if runner.foreign:
                _add_sources(seen.rows, model, name, runner)
            result.watched = {
                number: observer.watched(number, graph) for number, graph in model.graphs.items()
            }
            writer = None  # of the first executor alone
    result.nodes = list(seen.rows.values())
    result.exchanged = next(
        filter(None, (pair(want, seen.got[name]) for name, want in seen.want.items())), None
    )
    if recorded is not None:
        result.golden_without_buffer = sorted(set(recorded.entries) - set(seen.rows))
    return result


class _Watching:
    """What the steps of all runs show: a row for each output, its bytes compared with recorded ones, and dumped.

    ``dumping``: the names of the buffers to dump; ``run``: what their sidecars say of the run.
    """

    def __init__(self, recorded: dumps.Recorded | None, dumping: Set[str], run: RunIdentity | None) -> None:
        self.recorded, self.dumping, self.run = recorded, dumping, run
        self.rows: dict[str, OutputRow] = {}
        self.dumped: list[str] = []
        #: executor -> value -> what it gave there, and what was recorded, of values that differ
        self.want: dict[str, dict[str, Hashable]] = {}
        self.got: dict[str, dict[str, Hashable]] = {}

    def wants(self, delegate: int, value: int) -> bool:
        name = dumps.value_name(delegate, value)
        return name in self.dumping or (self.recorded is not None and name in self.recorded)

    def step(self, event: Event, executor: str, writer: FolderWriter | None) -> None:
        """``writer``: where this executor's buffers are dumped; None if they are not."""
        _add_times(self.rows, event, executor)
        for node in event.nodes:
            for value in node.outputs:
                row, held = self.rows[dumps.value_name(event.delegate, value)], event.outputs.get(value)
                if isinstance(held, PackedBuffer):
                    self._compare(row, node, held, executor)
                if held is not None and writer is not None and row.value in self.dumping:
                    self._dump(row, node, held, writer)

    def _compare(self, row: OutputRow, node: Node, held: PackedBuffer, executor: str) -> None:
        before = row.golden.get(executor)
        if self.recorded is None or row.value not in self.recorded or (before and before.different):
            return  # of a repeated run one wrong run is enough
        if unfit := self.recorded.unfit(row.value, held.desc):
            row.golden[executor] = Check(0, 0, None, unfit)
            return
        there = dumped(self.recorded, row.value, held)
        row.golden[executor] = check(node, held, there.raw)
        if row.golden[executor].different:
            self.want.setdefault(executor, {})[row.value] = key(held)
            self.got.setdefault(executor, {})[row.value] = key(there)

    def _dump(
        self, row: OutputRow, node: Node, held: PackedBuffer | np.ndarray, writer: FolderWriter
    ) -> None:
        params = node.call.params if node.call else None
        dumps.write(writer, dumps.sidecar(row.value, held, node.name, node.number, params, self.run), held)
        if row.value not in self.dumped:
            self.dumped.append(row.value)


def _names(delegate: int, value: int, node: Node) -> str:
    """What --dump looks at: the output, and its operator as it is serialized and as tables show it."""
    return f"{dumps.value_name(delegate, value)} {node.name} {node.operator}"


def _add_sources(rows: dict[str, OutputRow], model: Model, name: str, executor: Executor) -> None:
    """Where the kernels of each operator came from, and the defects that they are known for."""
    for delegate, node in model.nodes():
        call = model.graphs[delegate].asked(node, executor.flat)
        if call is not None:
            row = rows[dumps.value_name(delegate, node.outputs[0])]
            row.sources[name] = executor.source(call)
            row.known[:] = [defect.name for defect in call.defects]


def _add_times(rows: dict[str, OutputRow], event: Event, executor: str) -> None:
    """A row for every output of a step; its time goes to the first."""
    seconds = event.seconds
    for node in event.nodes:
        for value in node.outputs:
            name = dumps.value_name(event.delegate, value)
            row = rows.setdefault(name, _row(event, node, value))
            row.ms[executor] = min(seconds * 1e3, row.ms.get(executor, math.inf))
            row.steps[executor] = [member.number for member in event.nodes]
            if event.on_host and node is event.node:
                row.on_host[executor] = event.on_host
            seconds = 0.0


def check(node: Node, held: PackedBuffer, recorded: np.ndarray) -> Check:
    """Compare the bytes that a device defines: values, and the padding that the operator writes there."""
    if node.call is not None:
        compared = node.call.device_defined()
    elif held.desc.is_int8:
        compared = byte_kinds(held.desc) == ByteKind.VALUE
    else:
        compared = np.ones(held.desc.nbytes, bool)
    wrong = np.flatnonzero((held.raw != recorded) & compared)
    first = None
    if wrong.size:
        at = int(wrong[0])
        place = at_byte(held.desc, at)
        view = np.int8 if held.desc.is_int8 else np.uint8
        got, need = (int(raw[at].view(view)) for raw in (held.raw, recorded))
        first = FirstByte(at, place.index, place.kind.label, got, need)
    return Check(int(compared.sum()), int(wrong.size), first)


def _row(event: Event, node: Node, value: int) -> OutputRow:
    tensor = event.graph.tensors[value]
    desc = tensor.desc
    return OutputRow(
        delegate=event.delegate,
        node=node.number,
        operator=node.operator,
        kernels=kernels(node),
        value=dumps.value_name(event.delegate, value),
        shape=desc.shape if desc else tensor.shape,
        layout=desc.layout.name if desc else None,
        dtype=str(tensor.dtype),
        bytes=desc.nbytes if desc else prod(tensor.shape) * tensor.dtype.itemsize,
    )


def misshaped(model: Model) -> list[Misshaped]:
    """The operators whose output ET-VK gives another shape than the run has here."""
    return [
        Misshaped(number, node.number, node.operator, row.note)
        for number, graph in model.graphs.items()
        for node, row in graph.misshaped()
    ]


def _no_match(model: Model, regex: str) -> ParameterError:
    """--dump would save nothing."""
    found = [
        (dumps.value_name(number, value), node) for number, node in model.nodes() for value in node.outputs
    ]
    known = dict.fromkeys([name for name, _ in found] + [node.operator for _, node in found])
    example = f" such as '{found[-1][0]} {found[-1][1].name}'" if found else ""
    need = f"a regular expression that finds a name and its operator{example}{choices.meant(regex, known)}"
    return ParameterError("--dump", "matches no buffer of the run", got=repr(regex), need=need)

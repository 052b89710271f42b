"""A whole graph on the device: constants uploaded once, pipelines made once, dispatches recorded once.

What runs, and in which order, says refsim_gpu.plan. All that the device does in one turn is one submission: what comes
in is copied to it, dispatches follow, ordered where one reads or overwrites what another writes or reads, and what the
host needs is copied back. refsim's build of Kompute has a barrier for that (`Device.order`). A plain Kompute has none
between two dispatches, but one before a download and one after it; there, a download of what was written is the order.

Only what the host needs comes back: what a node of the host or an output of the graph takes, and what is watched. Other
values share memory when their lives do not overlap, but not with a plain Kompute.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from refsim.core import doing
from refsim.core.buffer import GUARD_WORDS, PackedBuffer
from refsim.core.errors import ShapeError
from refsim.core.layout import WIDTH_PACKED
from refsim.core.tensor import TensorDesc
from refsim.graph.graph import Graph, Node, refs
from refsim.graph.interpreter import Observer, Runner, logical, run_node, stored
from refsim_gpu.kompute import Device
from refsim_gpu.pipelines import Pipelines, check_guards, guarded_words, output_memory, take_output
from refsim_gpu.plan import Plan, Turn

Values = dict[int, PackedBuffer | np.ndarray]
Constants = dict[Hashable, Any]

#: A free tensor is taken for a smaller value, but not for one that is so many times as small.
MOST_WASTE = 4


class Order:
    """The operations of a sequence, with an order between those that touch the same tensors."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.operations: list[Any] = []
        self._written: dict[int, Any] = {}
        self._read: set[int] = set()

    def dispatch(self, algorithm: Any, inputs: Sequence[Any], output: Any) -> int:
        """Add a dispatch, behind an order if it needs one; its place in `operations`."""
        if id(output) in self._read or any(id(tensor) in self._written for tensor in (*inputs, output)):
            self.settle()
        self.operations.append(self.device.unordered(algorithm))
        self._written[id(output)] = output
        self._read |= {id(tensor) for tensor in inputs}
        return len(self.operations) - 1

    def settle(self) -> None:
        """Everything so far ends before what follows begins."""
        if self._written:
            self.operations.append(self.device.order(list(self._written.values())))
        self._written.clear()
        self._read.clear()


class Pool:
    """Tensors for values that the host never sees; ``shared``: one is used again once its value is dead."""

    def __init__(self, device: Device, shared: bool) -> None:
        self.device, self.shared = device, shared
        self._free: list[Any] = []

    def tensor(self, out: PackedBuffer, own: bool) -> Any:
        """Memory for a value and its guard words; ``own``: nobody else's, before or after."""
        memory = output_memory(out)
        fitting = [] if own else [t for t in self._free if memory.size <= t.size() < MOST_WASTE * memory.size]
        if not fitting:
            return self.device.tensor(memory)
        best = min(fitting, key=lambda tensor: tensor.size())
        self._free = [tensor for tensor in self._free if tensor is not best]
        return best

    def release(self, tensor: Any) -> None:
        """The value of a tensor is dead."""
        if self.shared:
            self._free.append(tensor)


class Tensors:
    """The memory of everything that a plan names: constants, and values in tensors that share."""

    def __init__(self, pipelines: Pipelines, plan: Plan, constants: Constants) -> None:
        self.device, self.plan, self.constants = pipelines.device, plan, constants
        self._pool = Pool(self.device, shared=self.device.layer is not None)
        self.held: dict[Hashable, Any] = {}
        #: Tensors that were made here, to be uploaded.
        self.fresh: list[Any] = []
        jobs = [job for turn in plan.turns for job in turn.jobs]
        self._last = {name: number for number, job in enumerate(jobs) for name in (job.output, *job.inputs)}
        self._own = {value for turn in plan.turns for value in turn.fetched}
        self._number = 0

    def constant(self, name: Hashable) -> Any:
        """The device holds it from here on, the host need not."""
        if name not in self.constants:
            if name in self.plan.words:
                words = self.plan.words[name]
            else:
                node, argument = name  # type: ignore[misc]
                words = self.plan.prepared[node].call.words(argument)
            self.constants[name] = self.device.tensor(guarded_words(words))
            self.fresh.append(self.constants[name])
        return self.constants[name]

    def of(self, name: Hashable, desc: TensorDesc | None = None) -> Any:
        """The tensor of a value that was made before, or is made by a dispatch: with ``desc``."""
        if name in self.held:
            return self.held[name]
        if desc is None:
            return self.constant(name)
        own = name in self._own or not self._pool.shared
        tensor = self.held[name] = self._pool.tensor(PackedBuffer(desc), own)
        self.fresh.append(tensor)
        return tensor

    def input(self, value: int) -> Any:
        """The tensor of a value that comes from the host, for itself alone."""
        if value not in self.held:
            memory = output_memory(PackedBuffer(self.plan.descs[value]))
            self.held[value] = self.device.tensor(memory)
            self._own.add(value)
            self.fresh.append(self.held[value])
        return self.held[value]

    def done(self, names: Sequence[Hashable]) -> None:
        """A dispatch has been recorded that touched these; those that no other needs are dead."""
        for name in dict.fromkeys(names):
            if name in self.held and name not in self._own and self._last[name] == self._number:
                self._pool.release(self.held.pop(name))
        self._number += 1

    def upload(self) -> None:
        """Bring what was made here to the device."""
        device = self.device
        fresh = list({id(tensor): tensor for tensor in self.fresh}.values())
        if fresh:
            device.run(device.recorded(device.kp.OpTensorSyncDevice(fresh)))
        self.fresh.clear()


class Segment:
    """What the device does in a turn, recorded: once, and once more with times if somebody asks for them."""

    def __init__(self, pipelines: Pipelines, plan: Plan, turn: Turn, tensors: Tensors) -> None:
        self.pipelines, self.turn = pipelines, turn
        device = pipelines.device
        made = {job.output for job in turn.jobs}
        order = Order(device)
        self.uploads: dict[int, Any] = {}  # value id -> tensor, for values that come from the host
        self._keep: list[Any] = []
        places: list[int] = []
        for job in turn.jobs:
            for name in job.inputs:
                if isinstance(name, int) and name not in made and name not in tensors.held:
                    self.uploads[name] = tensors.input(name)
            inputs = [tensors.of(name) for name in job.inputs]
            output = tensors.of(job.output, job.launch.out)
            algorithm = pipelines.algorithm(job.launch, [*inputs, output])
            places.append(order.dispatch(algorithm, inputs, output))
            self._keep.append(algorithm)
            tensors.done((*job.inputs, job.output))
        order.settle()
        self.outputs = {value: (plan.descs[value], tensors.held[value]) for value in turn.fetched}
        kp = device.kp
        first = (
            [kp.OpTensorSyncDevice(list(self.uploads.values())), *device.uploaded()] if self.uploads else []
        )
        back = device.fetched([tensor for _, tensor in self.outputs.values()])
        self._operations = [*first, *order.operations, *back]
        self._places = [len(first) + 1 + place for place in places]
        self._timed: Any = None
        self._sequence = device.recorded(*self._operations)
        self.where = f"{turn.jobs[0].node}" + (f" to {turn.jobs[-1].node}" if len(turn.jobs) > 1 else "")
        self.writes = {name: tensor.data() for name, tensor in self.uploads.items()}
        self.reads = {value: tensor.data() for value, (_, tensor) in self.outputs.items()}
        self.makers = {job.output: job.node for job in turn.jobs}

    def run(self) -> None:
        """Compute what was uploaded."""
        doing.working(self.where)
        self.pipelines.device.run(self._sequence, where=self.where)

    def run_timed(self) -> dict[int, float]:
        """The same; the seconds of each node, by its number."""
        device = self.pipelines.device
        if self._timed is None:
            self._timed = device.recorded(*self._operations, timestamps=True)
        doing.working(self.where)
        device.run(self._timed, where=self.where)
        ticks = np.array(self._timed.get_timestamps(), np.float64)
        took = np.diff(ticks) * device.info.timestamp_ns * 1e-9
        found: dict[int, float] = defaultdict(float)
        for job, place in zip(self.turn.jobs, self._places, strict=True):
            found[job.node.number] += float(took[place])
        return found

    def check(self, value: int) -> np.ndarray:
        """The words of a value that came back, guard words included; GuardError if those are not as they were."""
        desc, _ = self.outputs[value]
        data = self.reads[value]
        check_guards(desc, data, f"{self.pipelines.name}: {self.makers[value]}")
        return data


class GraphSession:
    """A graph on one device; what the device does not compute runs on the host between its turns.

    ``watched`` values come back. ``constants`` are what earlier sessions of the graph uploaded.
    """

    def __init__(
        self, pipelines: Pipelines, graph: Graph, runner: Runner, watched: Set[int], constants: Constants
    ) -> None:
        self.graph, self.runner = graph, runner
        self.plan = Plan(graph, watched, pipelines.supports)
        tensors = Tensors(pipelines, self.plan, constants)
        self.turns = [
            (turn, Segment(pipelines, self.plan, turn, tensors) if turn.jobs else None)
            for turn in self.plan.turns
        ]
        tensors.upload()
        self._held: Values = {}
        for value, array in self.plan.constants.items():
            folded = value in self.plan.folded
            self._held[value] = stored(graph, value, array, graph.where) if folded else array
        read = {value for turn in self.plan.turns for node in turn.host for value in _reads(node)}
        #: Inputs that the host reads too.
        self._also = [value for value in graph.inputs if value in read or value in graph.outputs]

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        """Outputs as logical arrays; `observe` is told of each step when all is done."""
        graph = self.graph
        if len(inputs) != len(graph.inputs):
            raise ShapeError(graph.where, "wrong number of inputs", got=len(inputs), need=len(graph.inputs))
        given = dict(zip(graph.inputs, inputs, strict=True))
        values: Values = dict(self._held)
        for value in self._also:
            values[value] = stored(graph, value, given[value], graph.where)
        took: dict[int, float] = {}
        arrays: dict[int, np.ndarray] = {}
        for turn, segment in self.turns:
            if segment is not None:
                for value, memory in segment.writes.items():
                    self._put(memory, value, given.get(value), values)
                if observe is None:
                    segment.run()
                else:
                    took |= segment.run_timed()
                for value in segment.outputs:
                    self._get(segment, value, values, arrays)
            for node in turn.host:
                begin = time.perf_counter()
                values |= run_node(graph, node, values, self.runner)
                took[node.number] = time.perf_counter() - begin
        if observe is not None:
            self._report(observe, number, values, took)
        return [arrays[v] if v in arrays else logical(graph, values, v) for v in graph.outputs]

    def _put(self, memory: np.ndarray, value: int, array: np.ndarray | None, values: Values) -> None:
        """A value into the memory that is copied to the device."""
        graph, desc = self.graph, self.plan.descs[value]
        if array is not None and desc.layout is WIDTH_PACKED:
            if tuple(array.shape) != graph.tensors[value].shape:
                stored(graph, value, array, graph.where)  # raises
            inner = memory[GUARD_WORDS : GUARD_WORDS + desc.words].view(desc.dtype)
            np.copyto(inner.reshape(array.shape), array, casting="unsafe")
            return
        held = stored(graph, value, array, graph.where) if array is not None else values[value]
        assert isinstance(held, PackedBuffer)
        memory[: held.memory.size] = held.memory.view(np.uint32)

    def _get(self, segment: Segment, value: int, values: Values, arrays: dict[int, np.ndarray]) -> None:
        """A value out of the memory that came back."""
        desc, tensor = self.plan.descs[value], self.graph.tensors[value]
        data = segment.check(value)
        if desc != tensor.desc:  # nobody watches it: it is an output, in logical order
            inner = data[GUARD_WORDS : GUARD_WORDS + desc.words].view(desc.dtype)
            arrays[value] = np.array(inner).reshape(tensor.shape)
            return
        buffer = PackedBuffer(desc)
        take_output(buffer, data)
        values[value] = buffer

    def _report(self, observe: Observer, number: int, values: Values, took: Mapping[int, float]) -> None:
        """Each node that ran, with those before it that it computes as well, in the graph's order."""
        graph = self.graph
        for node in graph.nodes:
            if node.number in took or self.plan.folded.keys() & set(node.outputs):
                nodes = (*self.plan.skipped.get(node.number, ()), node)
                held = {value: values[value] for value in node.outputs if value in values}
                observe.report(number, graph, nodes, held, took.get(node.number, 0.0))


def _reads(node: Node) -> set[int]:
    return {*node.inputs.values(), *refs(node.args)}

"""A whole graph on the device: weights uploaded once, pipelines made once, dispatches recorded once.

Consecutive q8ta nodes are one sequence. In it, dispatches are ordered where one reads or overwrites what another writes
or reads. refsim's build of Kompute has a barrier for that (`Device.order`). A plain Kompute has none between two
dispatches, but one before a download and one after it; there, a download of what was written is the order.

Only what the host needs comes back: what a float operator or an output of the graph takes, and what is watched. Other
values share memory when their lives do not overlap, but not with a plain Kompute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np

from refsim.core import doing
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ShapeError
from refsim.graph.graph import Graph, Node, refs
from refsim.graph.interpreter import Observer, Runner, logical, run_node, stored
from refsim_gpu.kompute import Device
from refsim_gpu.pipelines import Pipelines, guarded_words, output_memory, take_output

Values = dict[int, PackedBuffer | np.ndarray]
Constants = dict[tuple[int, str], Any]

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


class Segment:
    """Consecutive q8ta nodes, recorded as one sequence. ``fetched`` are the values that come back."""

    def __init__(
        self, pipelines: Pipelines, nodes: Sequence[Node], fetched: Set[int], constants: Constants
    ) -> None:
        self.pipelines = pipelines
        self.nodes = nodes
        device, kp = pipelines.device, pipelines.device.kp
        self.outputs: dict[int, tuple[PackedBuffer, Any]] = {}  # value id -> description, tensor
        self.uploads: dict[int, Any] = {}  # value id -> tensor, for values that come from outside
        self._keep: list[Any] = []
        self._dispatches: list[list[int]] = []  # per node: which operations are its dispatches
        fresh = []
        order, pool = Order(device), Pool(device, shared=device.layer is not None)
        last = {value: number for number, node in enumerate(nodes) for value in node.inputs.values()}
        for number, node in enumerate(nodes):
            assert node.prepared is not None
            call = node.prepared.call
            buffers = {name: self._input(value, node, name) for name, value in node.inputs.items()}
            # the device holds them from here on, the host need not
            for name in node.prepared.constants:
                if (node.number, name) not in constants:
                    constants[node.number, name] = device.tensor(guarded_words(call.words(name)))
                    fresh.append(constants[node.number, name])
                buffers[name] = constants[node.number, name]
            places = []
            (value,) = node.outputs
            for step in node.prepared.dispatches:
                out = PackedBuffer(step.launch.out)
                final = step is node.prepared.dispatches[-1]
                tensor = pool.tensor(out, own=not pool.shared or (final and value in fetched))
                inputs = [buffers[n] for n in step.inputs]
                algorithm = pipelines.algorithm(step.launch, [*inputs, tensor])
                places.append(order.dispatch(algorithm, inputs, tensor))
                buffers[step.output] = tensor
                self._keep.append(algorithm)
                fresh.append(tensor)
            self.outputs[value] = (out, tensor)
            self._dispatches.append(places)
            for step in node.prepared.dispatches[:-1]:
                pool.release(buffers[step.output])
            dead = {v for v in node.inputs.values() if last[v] == number and v in self.outputs}
            for value in dead - fetched:
                pool.release(self.outputs[value][1])
        device.run(device.recorded(kp.OpTensorSyncDevice(list({id(t): t for t in fresh}.values()))))
        order.settle()
        self.fetched = [value for node in nodes for value in node.outputs if value in fetched]
        first = [kp.OpTensorSyncDevice(list(self.uploads.values())), *device.uploaded()]
        self._dispatches = [[len(first) + 1 + place for place in places] for places in self._dispatches]
        back = device.fetched([self.outputs[value][1] for value in self.fetched])
        self.sequence = device.recorded(*first, *order.operations, *back, timestamps=True)

    def _input(self, value: int, node: Node, name: str) -> Any:
        if value in self.outputs:
            return self.outputs[value][1]
        if value not in self.uploads:
            assert node.call is not None
            desc = node.call.descs[name]
            self.uploads[value] = self.pipelines.device.tensor(output_memory(PackedBuffer(desc)))
        return self.uploads[value]

    def run(self, values: Mapping[int, PackedBuffer | np.ndarray]) -> tuple[Values, list[float]]:
        """The outputs that come back, and the seconds that each node took on the device."""
        for value, tensor in self.uploads.items():
            held = values[value]
            assert isinstance(held, PackedBuffer)
            tensor.data()[: held.memory.size] = held.memory.view(np.uint32)
        last = f" to {self.nodes[-1]}" if len(self.nodes) > 1 else ""
        doing.working(f"{self.nodes[0]}{last}")
        self.pipelines.device.run(self.sequence, where=str(self.nodes[0]))
        results: Values = {}
        writers = {node.outputs[0]: node for node in self.nodes}
        for value in self.fetched:
            described, tensor = self.outputs[value]
            buffer = PackedBuffer(described.desc)
            take_output(buffer, tensor.data())
            buffer.check_guards(f"{self.pipelines.name}: {writers[value]}")
            results[value] = buffer
        ticks = np.array(self.sequence.get_timestamps(), np.float64)
        took = np.diff(ticks) * self.pipelines.device.info.timestamp_ns * 1e-9
        return results, [float(sum(took[place] for place in places)) for places in self._dispatches]


class GraphSession:
    """A graph on one device; float operators run on the host between the segments.

    ``watched`` values come back. ``constants`` are what earlier sessions of the graph uploaded.
    """

    def __init__(
        self, pipelines: Pipelines, graph: Graph, runner: Runner, watched: Set[int], constants: Constants
    ) -> None:
        self.graph = graph
        self.runner = runner
        self.parts: list[Segment | Node] = []
        # where nothing else orders the dispatches, everything comes back anyway
        every = {value for node in graph.nodes for value in node.outputs}
        fetched = every if pipelines.device.layer is None else watched | set(graph.outputs)
        runs: list[list[Node]] = [[]]
        for node in graph.nodes:
            if node.prepared is None:
                fetched |= {*refs(node.args), *node.inputs.values()}
                runs += [[node], []]
            else:
                runs[-1].append(node)
        makers = {value: number for number, run in enumerate(runs) for node in run for value in node.outputs}
        for number, run in enumerate(runs):
            fetched |= {v for node in run for v in node.inputs.values() if makers.get(v, number) != number}
        for run in filter(None, runs):
            whole = run[0].prepared is not None
            self.parts.append(Segment(pipelines, run, fetched, constants) if whole else run[0])

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        """Outputs as logical arrays; `observe` is told of each node after its segment."""
        graph = self.graph
        if len(inputs) != len(graph.inputs):
            raise ShapeError(graph.where, "wrong number of inputs", got=len(inputs), need=len(graph.inputs))
        values: Values = {t.id: t.data for t in graph.tensors.values() if t.data is not None}
        for value, array in zip(graph.inputs, inputs, strict=True):
            values[value] = stored(graph, value, array, graph.where)
        for part in self.parts:
            if isinstance(part, Node):
                outputs = run_node(graph, part, values, self.runner)
                values |= outputs
                if observe is not None:
                    observe.report(number, graph, (part,), outputs, 0.0)
                continue
            results, seconds = part.run(values)
            values |= results
            for node, took in zip(part.nodes, seconds, strict=True):
                if observe is not None:
                    held = {value: results[value] for value in node.outputs if value in results}
                    observe.report(number, graph, (node,), held, took)
        return [logical(graph, values, value) for value in graph.outputs]

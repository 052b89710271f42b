"""A whole graph on the device: weights uploaded once, pipelines made once, dispatches recorded once.

Kompute 0.9 puts no barrier between two dispatches of a sequence, but one before a download and one after it. So each
dispatch is followed by the download of what it wrote; that orders the chain, and gives the host every buffer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from refsim.core import doing
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ShapeError
from refsim.graph.graph import Graph, Node
from refsim.graph.interpreter import Observer, Runner, logical, run_node, stored
from refsim_gpu.pipelines import Pipelines, guarded_words, output_memory, take_output

Values = dict[int, PackedBuffer | np.ndarray]


class Segment:
    """Consecutive q8ta nodes, recorded as one sequence."""

    def __init__(self, pipelines: Pipelines, nodes: Sequence[Node]) -> None:
        self.pipelines = pipelines
        self.nodes = nodes
        device, kp = pipelines.device, pipelines.device.kp
        self.outputs: dict[int, tuple[PackedBuffer, Any]] = {}  # value id -> description, tensor
        self.uploads: dict[int, Any] = {}  # value id -> tensor, for values that come from outside
        self._keep: list[Any] = []
        operations: list[Any] = []
        self._dispatches: list[list[int]] = []  # per node: which operations are its dispatches
        for node in nodes:
            assert node.prepared is not None
            call = node.prepared.call
            buffers = {name: self._input(value, node, name) for name, value in node.inputs.items()}
            # the device holds them from here on, the host need not
            buffers |= {n: device.tensor(guarded_words(call.words(n))) for n in node.prepared.constants}
            places = []
            for step in node.prepared.dispatches:
                out = PackedBuffer(step.launch.out)
                tensor = device.tensor(output_memory(out))
                algorithm = pipelines.algorithm(step.launch, [*(buffers[n] for n in step.inputs), tensor])
                places.append(1 + len(operations))
                operations += [device.dispatch(algorithm), kp.OpTensorSyncLocal([tensor])]
                buffers[step.output] = tensor
                self._keep += [algorithm, tensor]
            self.outputs[node.outputs[0]] = (out, tensor)
            self._keep += list(buffers.values())
            self._dispatches.append(places)
        device.run(device.recorded(kp.OpTensorSyncDevice(list({id(t): t for t in self._fresh()}.values()))))
        first = kp.OpTensorSyncDevice(list(self.uploads.values()))
        self.sequence = device.recorded(first, *operations, timestamps=True)

    def _fresh(self) -> list[Any]:
        return [item for item in self._keep if hasattr(item, "data_type")]

    def _input(self, value: int, node: Node, name: str) -> Any:
        if value in self.outputs:
            return self.outputs[value][1]
        if value not in self.uploads:
            assert node.call is not None
            desc = node.call.descs[name]
            self.uploads[value] = self.pipelines.device.tensor(output_memory(PackedBuffer(desc)))
        return self.uploads[value]

    def run(self, values: Mapping[int, PackedBuffer | np.ndarray]) -> tuple[Values, list[float]]:
        """The nodes' outputs, and the seconds that each took on the device."""
        for value, tensor in self.uploads.items():
            held = values[value]
            assert isinstance(held, PackedBuffer)
            tensor.data()[: held.memory.size] = held.memory.view(np.uint32)
        last = f" to {self.nodes[-1]}" if len(self.nodes) > 1 else ""
        doing.working(f"{self.nodes[0]}{last}")
        self.pipelines.device.run(self.sequence, where=str(self.nodes[0]))
        results: Values = {}
        for node in self.nodes:
            described, tensor = self.outputs[node.outputs[0]]
            buffer = PackedBuffer(described.desc)
            take_output(buffer, tensor.data())
            buffer.check_guards(f"{self.pipelines.name}: {node}")
            results[node.outputs[0]] = buffer
        ticks = np.array(self.sequence.get_timestamps(), np.float64)
        took = np.diff(ticks) * self.pipelines.device.info.timestamp_ns * 1e-9
        return results, [float(sum(took[place] for place in places)) for places in self._dispatches]


class GraphSession:
    """A graph on one device; float operators run on the host between the segments."""

    def __init__(self, pipelines: Pipelines, graph: Graph, runner: Runner) -> None:
        self.graph = graph
        self.runner = runner
        self.parts: list[Segment | Node] = []
        pending: list[Node] = []
        for node in (*graph.nodes, None):
            if node is not None and node.prepared is not None:
                pending.append(node)
                continue
            if pending:
                self.parts.append(Segment(pipelines, pending))
                pending = []
            if node is not None:
                self.parts.append(node)

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
                    (value,) = node.outputs
                    observe.report(number, graph, (node,), {value: results[value]}, took)
        return [logical(graph, values, value) for value in graph.outputs]

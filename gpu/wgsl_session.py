"""A flat graph on WGSL kernels: its tensors stay on the device, and all kernels between two of the host's steps are one
command buffer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from refsim.aten.bridge import takes_prefix
from refsim.core.buffer import PackedBuffer, raw_of
from refsim.core.errors import GuardError, UnknownOperatorError
from refsim.graph.graph import Graph, Node
from refsim.graph.interpreter import Observer, logical, results, stored
from refsim.ops.base.module_call import ModuleDispatch
from refsim.ops.base.spec import Call
from refsim_gpu import wgsl_floats
from refsim_gpu.wgpu_device import Bound, Step, WgpuDevice, filled, overwritten

Held = PackedBuffer | np.ndarray


class Kernels(Protocol):
    """What makes a call's steps: the executor of a folder."""

    device: WgpuDevice

    def dispatches(self, call: Call) -> list[ModuleDispatch]:
        """UnknownOperatorError if no kernel takes the call."""
        ...

    def step(self, one: ModuleDispatch, buffers: Mapping[str, Any]) -> Step: ...


class FlatSession:
    """A graph made ready: a buffer for each value that a kernel touches, and the steps of all kernels."""

    def __init__(self, executor: Kernels, graph: Graph) -> None:
        self.executor, self.graph, self.device = executor, graph, executor.device
        self.buffers: dict[int, Any] = {}
        self.fills: dict[int, Any] = {}
        self.why: dict[int, str] = {}
        self.work = [self._work(node) for node in graph.nodes]

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        graph = self.graph
        graph.check_count(inputs)
        host: dict[int, Held] = {row.id: row.data for row in graph.tensors.values() if row.data is not None}
        for value, array in zip(graph.inputs, inputs, strict=True):
            host[value] = stored(graph, value, array, graph.where)
        fresh = {value for value in graph.inputs if value in self.buffers}  # not on the device yet
        wanted = set(graph.outputs) | (observe.watched(number, graph) if observe is not None else set())
        for batch in self._batches():
            begin, why = time.perf_counter(), self.why.get(batch[0].number, "")
            if self.work[batch[0].number] is None:
                (node,) = batch
                self._fetch([value for value in node.reads if value not in host], host)
                for value, array in results(graph, node, host).items():
                    host[value] = stored(graph, value, array, f"{graph.where}: {node}")
                    fresh |= {value} & self.buffers.keys()
            else:
                for value in fresh:
                    self.device.write(self.buffers[value], raw_of(host[value]))
                fresh.clear()
                made = [value for node in batch for value in node.outputs]
                self._dispatch(batch, [value for value in made if value in wanted], host)
            if observe is not None:
                outputs = {value: host[value] for node in batch for value in node.outputs if value in host}
                observe.report(number, graph, tuple(batch), outputs, time.perf_counter() - begin, why)
        self._fetch([value for value in graph.outputs if value not in host], host)
        return [logical(graph, host, value) for value in graph.outputs]

    # --- making ready --------------------------------------------------------------------------------------

    def _work(self, node: Node) -> list[Any] | None:
        """The device's steps of a node: dispatches, or a copy; None if the host computes it."""
        call = self.graph.asked(node, flat=True)
        if call is not None:
            try:
                steps = self.executor.dispatches(call)
            except UnknownOperatorError as error:
                self.why[node.number] = str(error)
                return None
            names = {name: self._buffer(id) for name, id in self.graph.inputs_of(node).items()}
            names["out"] = self._buffer(node.outputs[0])
            return [self.executor.step(one, names) for one in steps]
        if node.is_float and takes_prefix(node.name):
            source, (value,) = node.reads[0], node.outputs
            a, b = self.graph.tensors[source], self.graph.tensors[value]
            if (
                a.data is None
                and a.desc is not None
                and b.desc is not None
                and a.nbytes == b.nbytes
                and a.dtype == b.dtype
            ):
                return [(self._buffer(source), self._buffer(value), b.nbytes)]
        if (own := wgsl_floats.kernel(self.graph, node)) is not None:
            bound = [
                Bound(self._buffer(value), self.graph.tensors[value].nbytes)
                for value in (node.outputs[0], *own.reads)
            ]
            constants = {"wg_size": wgsl_floats.LOCAL}
            return [self.device.step(own.source, constants, bound, (own.groups, 1, 1))]
        self.why[node.number] = "the folder has no kernel for it"
        return None

    def _buffer(self, value: int) -> Any:
        """The buffer of a value, with guard words behind it; a constant's has its bytes."""
        if value not in self.buffers:
            tensor = self.graph.tensors[value]
            if tensor.data is not None:
                self.buffers[value] = self.device.upload(tensor.data)
            else:
                words = -(-tensor.nbytes // 4)
                self.buffers[value] = self.device.output(words)
                self.fills[value] = self.device.upload(filled(words))
        return self.buffers[value]

    # --- running -------------------------------------------------------------------------------------------

    def _batches(self) -> list[list[Node]]:
        """Nodes that run as one: neighbours on the device, or a single one on the host."""
        found: list[list[Node]] = []
        for node in self.graph.nodes:
            on_device = self.work[node.number] is not None
            if found and on_device and self.work[found[-1][-1].number] is not None:
                found[-1].append(node)
            else:
                found.append([node])
        return found

    def _dispatch(self, batch: list[Node], wanted: list[int], host: dict[int, Held]) -> None:
        """One command buffer: outputs are filled, kernels run, guard words and wanted values come back."""
        made = [value for node in batch for value in node.outputs]
        work: list[Step | tuple[Any, Any, int]] = [
            (self.fills[value], self.buffers[value], self.buffers[value].size) for value in made
        ]
        for node in batch:
            work += self.work[node.number] or []
        memory = self.device.run(work, [(self.buffers[value], self.buffers[value].size) for value in made])
        for node in batch:
            for value in node.outputs:
                raw = memory[made.index(value)]
                beyond = overwritten(raw)
                if beyond is not None:
                    where = f"{self.graph.where}: {node}"
                    raise GuardError(where, f"wrote behind value {value}", got=f"a write to word {beyond}")
                if value in wanted:
                    host[value] = self._held(value, raw)

    def _fetch(self, values: Sequence[int], host: dict[int, Held]) -> None:
        there = [value for value in values if value in self.buffers]
        found = self.device.run([], [(self.buffers[value], self.buffers[value].size) for value in there])
        for value, raw in zip(there, found, strict=True):
            host[value] = self._held(value, raw)

    def _held(self, value: int, raw: np.ndarray) -> Held:
        tensor = self.graph.tensors[value]
        if tensor.desc is not None:
            desc = tensor.desc
            return PackedBuffer.from_raw(raw[: desc.nbytes], desc.shape, desc.layout, desc.dtype)
        return raw[: tensor.nbytes].view(tensor.dtype).reshape(tensor.shape)

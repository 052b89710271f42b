"""A whole graph on the device: constants uploaded once, pipelines made once, dispatches recorded once.

refsim_gpu.plan says what runs, and in which order. All that the device does in one turn is one submission. What comes
in is copied to the device. Dispatches follow, ordered where one reads or overwrites what another writes or reads. Then
what the host needs is copied back: what its nodes and the graph's outputs take, and what is watched.

Several runs may be in flight, each in memory of its own (refsim_gpu.run_memory).
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence, Set
from typing import Any

import numpy as np

from refsim.core.buffer import GUARD_WORDS, PackedBuffer
from refsim.core.errors import GraphError
from refsim.core.layout import WIDTH_PACKED
from refsim.graph.graph import Graph
from refsim.graph.interpreter import Observer, Runner, logical, run_node, stored
from refsim_gpu.kompute import Device
from refsim_gpu.pipelines import Pipelines, check_guards, take_output
from refsim_gpu.plan import Plan, Turn
from refsim_gpu.run_memory import Blocks, Lane, Lanes, Part, RunMemory, upload

Values = dict[int, PackedBuffer | np.ndarray]
Constants = dict[Hashable, Any]


class Shared:
    """What the sessions of a program have in common, whatever shapes they are for: constants, and memory for runs."""

    def __init__(self, device: Device) -> None:
        self.uploaded: dict[bytes, Part] = {}
        self.lanes = Lanes(device)


class GraphSession:
    """A graph on one device; what the device does not compute runs on the host between its turns.

    ``watched`` values come back. ``constants`` are what earlier sessions of the graph uploaded.
    """

    def __init__(
        self,
        pipelines: Pipelines,
        graph: Graph,
        runner: Runner,
        watched: Set[int],
        constants: Constants,
        shared: Shared | None = None,
    ) -> None:
        self.graph, self.runner, self.pipelines = graph, runner, pipelines
        self.plan = Plan(graph, watched, pipelines.supports, pipelines.chosen)
        self._constants = constants
        self._shared = shared or Shared(pipelines.device)
        upload(pipelines.device, self.plan, constants, self._shared.uploaded)
        self._blocks = Blocks(self.plan)
        #: The memories of no run, by their lanes.
        self._made: dict[Lane, RunMemory] = {}
        self.release(self._memory())
        self.held: Values = {}
        for value, array in self.plan.constants.items():
            folded = value in self.plan.folded
            self.held[value] = stored(graph, value, array, graph.where) if folded else array
        read = {value for turn in self.plan.turns for node in turn.host for value in node.reads}
        #: Inputs that the host reads too.
        self.also = [value for value in graph.inputs if value in read or value in graph.outputs]
        #: Outputs that nobody else sees: they come back in logical order, as arrays.
        self.alone = {
            value
            for value in set(graph.outputs) - watched - read
            if (desc := self.plan.descs.get(value))
            and desc.layout is WIDTH_PACKED
            and not desc.is_int8
            and graph.tensors[value].desc is not None
        }
        #: What each turn does on the device, in words; nothing if that is nothing.
        self.where = [_where(turn) for turn in self.plan.turns]
        self.makers = {job.output: job.node for turn in self.plan.turns for job in turn.jobs}

    def _memory(self) -> RunMemory:
        """Memory for a run that begins."""
        lane = self._shared.lanes.take(self._blocks.nbytes)
        memory = self._made.pop(lane, None)
        if memory is None:
            memory = RunMemory(self.pipelines, self.plan, self._constants, self._blocks, lane)
        memory.claim()
        return memory

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        """Outputs as logical arrays; `observe` is told of each step when all is done."""
        return self.start(inputs, number, observe).finish()

    def start(self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None) -> Run:
        """A run that has begun: its first turn is submitted. Others may begin before it ends."""
        graph = self.graph
        graph.check_count(inputs)
        return Run(self, self._memory(), inputs, number, observe)

    def release(self, memory: RunMemory) -> None:
        """A run has ended, and well: what failed may leave guard words behind that are not as they were."""
        self._made[memory.lane] = memory
        self._shared.lanes.give(memory.lane)


class Run:
    """One run of a session, in memory of its own."""

    def __init__(
        self,
        session: GraphSession,
        memory: RunMemory,
        inputs: Sequence[np.ndarray],
        number: int,
        observe: Observer | None,
    ) -> None:
        self.session, self.memory, self.number, self.observe = session, memory, number, observe
        graph = session.graph
        self._given = dict(zip(graph.inputs, inputs, strict=True))
        self._values: Values = dict(session.held)
        for value in session.also:
            self._values[value] = stored(graph, value, self._given[value], graph.where)
        self._took: dict[int, float] = {}
        self._arrays: dict[int, np.ndarray] = {}
        self._put: set[int] = set()
        for value, array in self._given.items():
            if value in memory.writes:
                self._write(value, array)
        self._begin(0)

    def finish(self) -> list[np.ndarray]:
        """The graph's outputs as logical arrays. GuardError if a kernel wrote outside of what comes back."""
        session, graph = self.session, self.session.graph
        for turn in range(len(session.plan.turns)):
            if turn:
                self._begin(turn)
            self._end(turn)
        session.release(self.memory)
        if self.observe is not None:
            self._report(self.observe)
        return [
            self._arrays[v] if v in self._arrays else logical(graph, self._values, v) for v in graph.outputs
        ]

    def _begin(self, turn: int) -> None:
        """Give the device what the host has made, and submit."""
        if turn >= len(self.session.where) or not (where := self.session.where[turn]):
            return
        for value in self.memory.writes.keys() - self._put:
            if value in self._values:
                self._write(value, None)
        self.memory.start(turn, self.observe is not None, where)

    def _end(self, turn: int) -> None:
        """Wait, take what comes back, and run the host's nodes."""
        session, work = self.session, self.session.plan.turns[turn]
        if where := session.where[turn]:
            self.memory.wait(turn, where)
            if self.observe is not None:
                tick = session.pipelines.device.info.timestamp_ns * 1e-9
                for job, ticks in zip(work.jobs, self.memory.ticks(turn), strict=True):
                    self._took[job.node.number] = self._took.get(job.node.number, 0.0) + ticks * tick
            for value in work.fetched:
                self._read(value)
        for node in work.host:
            begin = time.perf_counter()
            self._values |= run_node(session.graph, node, self._values, session.runner)
            self._took[node.number] = time.perf_counter() - begin

    def _write(self, value: int, array: np.ndarray | None) -> None:
        """A value into the memory that is copied to the device; None: what the host has made."""
        graph, desc, words = self.session.graph, self.session.plan.descs[value], self.memory.writes[value]
        self._put.add(value)
        self._check(value, array)
        if graph.tensors[value].desc is None:
            given = np.asarray(
                self._values[value] if array is None else stored(graph, value, array, graph.where)
            )
            words[:] = given.astype(np.int32).reshape(-1).view(np.uint32)
            return
        if array is not None and desc.layout is WIDTH_PACKED and array.shape == graph.tensors[value].shape:
            np.copyto(words.view(desc.dtype).reshape(array.shape), array, casting="unsafe")
            return
        held = self._values[value] if array is None else stored(graph, value, array, graph.where)
        assert isinstance(held, PackedBuffer)
        if held.desc != desc:
            held = PackedBuffer.pack(held.unpack(), desc.layout, dtype=desc.dtype)
        words[:] = held.words.view(np.uint32)

    def _read(self, value: int) -> None:
        """A value out of the memory that came back."""
        session = self.session
        desc, tensor, data = session.plan.descs[value], session.graph.tensors[value], self.memory.reads[value]
        check_guards(desc, data, f"{session.pipelines.name}: {session.makers[value]}")
        if value in session.alone or tensor.desc is None:
            inner = data[GUARD_WORDS : GUARD_WORDS + desc.words].view(desc.dtype)
            array = np.array(inner).reshape(tensor.shape).astype(tensor.dtype, copy=False)
            if tensor.desc is None:
                self._values[value] = array
                self._check(value, array)
            else:
                self._arrays[value] = array
            return
        buffer = PackedBuffer(desc)
        take_output(buffer, data)
        self._values[value] = buffer
        self._check(value, None)

    def _check(self, value: int, array: np.ndarray | None) -> None:
        """GraphError if a kernel chose an element that is not there; it read another one in its stead."""
        graph = self.session.graph
        for node, length in self.session.plan.places.get(value, ()):
            places = logical(graph, self._values, value) if array is None else array
            wrong = places[(places < -length) | (places >= length)]
            if wrong.size:
                need = f"{-length} to {length - 1}"
                raise GraphError(
                    f"{graph.where}: {node}", "an index is out of range", got=int(wrong[0]), need=need
                )

    def _report(self, observe: Observer) -> None:
        """Each node that ran, with those before it that it computes as well, in the graph's order."""
        graph, plan = self.session.graph, self.session.plan
        for node in graph.nodes:
            if node.number in self._took or plan.folded.keys() & set(node.outputs):
                nodes = (*plan.skipped.get(node.number, ()), node)
                held = {value: self._values[value] for value in node.outputs if value in self._values}
                took, why = self._took.get(node.number, 0.0), plan.why_host.get(node.number, "")
                observe.report(self.number, graph, nodes, held, took, why)


def _where(turn: Turn) -> str:
    if not turn.jobs:
        return ""
    first, last = turn.jobs[0].node, turn.jobs[-1].node
    return f"{first}" + (f" to {last}" if last is not first else "")

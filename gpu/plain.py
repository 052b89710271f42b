"""A plan on a plain Kompute: a tensor for each value, which comes back wherever an order is needed.

Kompute has no barrier between two dispatches, but one before a download and one after it; there, a download of what was
written is the order. Nothing shares memory, and one run follows another.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from typing import Any

from refsim.core import doing
from refsim.core.buffer import GUARD_WORDS, PackedBuffer
from refsim_gpu.kompute import Device
from refsim_gpu.pipelines import Pipelines, guarded_words, output_memory
from refsim_gpu.plan import Plan, Turn

Constants = dict[Hashable, Any]


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
        self.operations.append(self.device.dispatch(algorithm))
        self._written[id(output)] = output
        self._read |= {id(tensor) for tensor in inputs}
        return len(self.operations) - 1

    def settle(self) -> None:
        """Everything so far ends before what follows begins."""
        if self._written:
            self.operations.append(self.device.kp.OpTensorSyncLocal(list(self._written.values())))
        self._written.clear()
        self._read.clear()


class Segment:
    """What the device does in a turn, recorded."""

    def __init__(self, pipelines: Pipelines, turn: Turn, memory: PlainRunMemory) -> None:
        self.device, kp = pipelines.device, pipelines.device.kp
        order = Order(self.device)
        uploads: dict[Hashable, Any] = {}
        places = []
        for job in turn.jobs:
            uploads |= {name: memory.input(name) for name in job.inputs if memory.is_given(name)}
            inputs = [
                memory.tensors[name] if name in memory.tensors else memory.constant(name)
                for name in job.inputs
            ]
            output = memory.output(job.output, PackedBuffer(job.launch.out))
            algorithm = pipelines.algorithm(job.launch, [*inputs, output])
            places.append(order.dispatch(algorithm, inputs, output))
        order.settle()
        first = [kp.OpTensorSyncDevice(list(uploads.values()))] if uploads else []
        self._operations = [*first, *order.operations]
        self._places = [len(first) + place for place in places]
        self._sequence = self.device.recorded(*self._operations)
        self._single: list[Any] = []
        self._took: list[float] = []

    def run(self, timed: bool, where: str) -> None:
        """All at once; or, to be timed, one after another: Kompute's own timestamps are no valid use of Vulkan."""
        if not timed:
            self.device.run(self._sequence, where=where)
            return
        self._single = self._single or [self.device.recorded(operation) for operation in self._operations]
        self._took = []
        for sequence in self._single:
            begin = time.perf_counter()
            self.device.run(sequence, where=where)
            self._took.append(time.perf_counter() - begin)

    def ticks(self) -> list[float]:
        """Of each job of the turn, in the last timed run, by the host's clock: with its submission."""
        tick = self.device.info.timestamp_ns * 1e-9
        return [self._took[place] / tick for place in self._places]


class PlainRunMemory:
    """Memory for one run of a plan, and everything recorded; as `refsim_gpu.run_memory.RunMemory`."""

    def __init__(self, pipelines: Pipelines, plan: Plan, constants: Constants) -> None:
        self._device, self._plan, self._constants = pipelines.device, plan, constants
        self._made = {job.output for turn in plan.turns for job in turn.jobs}
        self._fresh: list[Any] = []
        self._written: dict[Hashable, Any] = {}
        self.tensors: dict[Hashable, Any] = {}
        self._segments = [Segment(pipelines, turn, self) if turn.jobs else None for turn in plan.turns]
        if self._fresh:
            self._device.run(self._device.recorded(self._device.kp.OpTensorSyncDevice(self._fresh)))
        fetched = [value for turn in plan.turns for value in turn.fetched]
        #: The words of what the host gives, by value; and of what comes back, guard words included.
        self.writes = {
            value: tensor.data()[GUARD_WORDS : GUARD_WORDS + plan.descs[value].words]  # type: ignore[index]
            for value, tensor in self._written.items()
        }
        self.reads = {value: self.tensors[value].data() for value in fetched}
        self._where = ""

    def is_given(self, name: Hashable) -> bool:
        """Whether a value comes from the host, and no turn has asked for it yet."""
        return isinstance(name, int) and name not in self._made and name not in self.tensors

    def input(self, value: Any) -> Any:
        tensor = self.output(value, PackedBuffer(self._plan.descs[value]))
        self._written[value] = tensor
        return tensor

    def output(self, name: Hashable, buffer: PackedBuffer) -> Any:
        """The tensor of a value."""
        if name not in self.tensors:
            self.tensors[name] = self._device.tensor(output_memory(buffer))
            self._fresh.append(self.tensors[name])
        return self.tensors[name]

    def constant(self, name: Hashable) -> Any:
        if name not in self._constants:
            self._constants[name] = self._device.tensor(guarded_words(self._plan.constant(name)))
            self._fresh.append(self._constants[name])
        return self._constants[name]

    def start(self, turn: int, timed: bool, where: str) -> None:
        """Compute a turn."""
        doing.working(where)
        segment = self._segments[turn]
        assert segment is not None
        segment.run(timed, where)

    def wait(self, turn: int, where: str) -> None:
        """It is done."""

    def ticks(self, turn: int) -> list[float]:
        segment = self._segments[turn]
        assert segment is not None
        return segment.ticks()

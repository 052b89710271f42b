"""A plan in memory of the layer's: one block of the device's for all values, which share it, and recordings over it.

A `RunMemory` is what one run needs for itself. Several runs are in flight at once, and share constants. Words that come
in or go back lie between guard words, for themselves alone. Between other values' words may lie what other values left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from refsim.core import doing
from refsim.core.buffer import GUARD, GUARD_WORDS
from refsim.core.lifetimes import Claim, Lifetime, places
from refsim_gpu.kompute import Device
from refsim_gpu.pipelines import Pipelines, guarded_words, padded_push
from refsim_gpu.plan import Job, Plan

#: Places of blocks are multiples of so many bytes: more than a device may ask of what is bound.
ALIGN = 256
GUARD_BYTES = 4 * GUARD_WORDS

#: A part of a memory as the layer takes it: memory, place and size in bytes.
Part = tuple[Any, int, int]
Operation = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Block:
    """Where a value lies with its guard words, in bytes, and how many words it has."""

    at: int
    words: int

    @property
    def nbytes(self) -> int:
        return block_bytes(self.words)


def block_bytes(words: int) -> int:
    """Bytes of so many words, padded to a multiple of four, between guard words."""
    return 2 * GUARD_BYTES + -(-words // 4) * 16


class Order:
    """Operations of a recording, with an order between those that touch the same bytes."""

    def __init__(self, order: Callable[[], Any]) -> None:
        self._order = order
        self.operations: list[Operation] = []
        self._written: list[Part] = []
        self._read: list[Part] = []

    def add(self, operation: Operation, reads: Iterable[Part], writes: Iterable[Part]) -> int:
        """Add an operation, behind an order if it needs one; its place in `operations`."""
        reads, writes = list(reads), list(writes)
        if meet(writes, self._read) or meet([*reads, *writes], self._written):
            self.settle()
        self.operations.append(operation)
        self._written += writes
        self._read += reads
        return len(self.operations) - 1

    def settle(self) -> None:
        """Everything so far ends before what follows begins."""
        if self._written or self._read:
            self.operations.append(("record", (self._order(),)))
        self._written.clear()
        self._read.clear()


def meet(some: Iterable[Part], others: Sequence[Part]) -> bool:
    """Whether a part of the one lies in a part of the other."""
    return any(
        memory is other and at < begin + size and begin < at + nbytes
        for memory, at, nbytes in some
        for other, begin, size in others
    )


def recorded(device: Device, operations: Sequence[Operation], timed: bool) -> Any:
    """A recording of operations."""
    recording = device.sequence(len(operations) if timed else 0)
    for name, arguments in operations:
        device.kp_call("recording", getattr(recording, name), *arguments)
    return recording


class Blocks:
    """Where the values of a plan lie: those that live at the same time apart."""

    def __init__(self, plan: Plan) -> None:
        jobs = [job for turn in plan.turns for job in turn.jobs]
        made = {job.output: job.launch.out.words for job in jobs}
        last: dict[Hashable, int] = {}
        first: dict[Hashable, int] = {}
        for number, job in enumerate(jobs):
            for name in (*job.inputs, job.output):
                first.setdefault(name, number)
                last[name] = number
        #: Values that the host gives, each with the turn that it is needed for, and those that come back.
        self.given: dict[int, int] = {}
        for number, turn in enumerate(plan.turns):
            for job in turn.jobs:
                for name in job.inputs:
                    if isinstance(name, int) and name not in made:
                        self.given.setdefault(name, number)
        self.fetched = [value for turn in plan.turns for value in turn.fetched]
        sizes = {name: plan.descs[name].words for name in self.given} | made
        own = {*self.given, *self.fetched}
        names = list(sizes)
        wanted = [
            Claim(
                number,
                -(-block_bytes(sizes[name]) // ALIGN) * ALIGN,
                Lifetime(-1, len(jobs)) if name in own else Lifetime(first[name], last[name]),
            )
            for number, name in enumerate(names)
        ]
        found = places(wanted)
        self.of = {name: Block(found[n].offset, sizes[name]) for n, name in enumerate(names)}
        self.nbytes = max((place.end for place in found.values()), default=ALIGN)
        self.own = own


def staged(names: Iterable[int], sizes: Callable[[int], int]) -> tuple[dict[int, int], int]:
    """The place of each of some values one behind the other, in bytes, and the size of all."""
    at, found = 0, {}
    for name in names:
        found[name] = at
        at += -(-sizes(name) // ALIGN) * ALIGN
    return found, max(at, ALIGN)


class Lane:
    """Memory on the device for one run at a time. Sessions of one program, each for other shapes, take turns in it."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self.memory, self.nbytes = device.memory(nbytes), nbytes
        #: Whose guard words lie in it.
        self.owner: RunMemory | None = None


class Lanes:
    """The lanes of a program: as many as it has runs in flight."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._free: list[Lane] = []

    def take(self, nbytes: int) -> Lane:
        """A free lane of so many bytes, or a new one. The bound comes first and needs the most."""
        for at, lane in enumerate(self._free):
            if lane.nbytes >= nbytes:
                return self._free.pop(at)
        return Lane(self._device, nbytes)

    def give(self, lane: Lane) -> None:
        """A run in a lane has ended."""
        self._free.insert(0, lane)


class RunMemory:
    """Memory for one run of a plan, and everything recorded over it."""

    def __init__(
        self, pipelines: Pipelines, plan: Plan, constants: dict[Hashable, Part], blocks: Blocks, lane: Lane
    ) -> None:
        self._device, self._plan, self._blocks, self._constants = pipelines.device, plan, blocks, constants
        device = pipelines.device
        of = blocks.of
        self.lane, self._memory = lane, lane.memory
        up, up_bytes = staged(blocks.given, lambda value: 4 * of[value].words)
        down, down_bytes = staged(blocks.fetched, lambda value: of[value].nbytes)
        self._up, self._down = device.memory(up_bytes, "HOST_WRITES"), device.memory(down_bytes, "HOST_READS")
        written, read = self._up.words(), self._down.words()
        #: The words of what the host gives, by value; and of what comes back, guard words included.
        self.writes = {v: written[at // 4 : at // 4 + of[v].words] for v, at in up.items()}
        self.reads = {v: read[at // 4 : (at + of[v].nbytes) // 4] for v, at in down.items()}
        self._guards: Any = None
        self._cleared()
        self._turns: list[tuple[list[Operation], list[int]]] = []
        for number, turn in enumerate(plan.turns):
            order = Order(device.layer.Barrier)
            for value, at in up.items():
                if blocks.given[value] == number:
                    inner = of[value].at + GUARD_BYTES
                    size = 4 * of[value].words
                    source, target = (self._up, at, size), (self._memory, inner, size)
                    order.add(("copy", (source, self._memory, inner)), [source], [target])
            steps = [self._dispatched(pipelines, order, job) for job in turn.jobs]
            for value in turn.fetched:
                block = self._part(of[value])
                order.add(("copy", (block, self._down, down[value])), [block], [])
            self._turns.append((order.operations, steps))
        self._plain: list[Any] = [None] * len(plan.turns)
        self._timed: list[Any] = [None] * len(plan.turns)
        self._running: list[Any] = [None] * len(plan.turns)

    def _part(self, block: Block) -> Part:
        return (self._memory, block.at, block.nbytes)

    def _cleared(self) -> None:
        """Zeros everywhere, guard words around what is checked."""
        order = Order(self._device.layer.Barrier)
        whole = (self._memory, 0, self._blocks.nbytes)
        order.add(("fill", (whole, 0)), [], [whole])
        order.settle()
        self._device.run(recorded(self._device, order.operations, False))
        self.claim()

    def claim(self) -> None:
        """Put the guard words where this run checks them, if another session has had the lane.

        What comes back has zeros where no kernel writes, as at first.
        """
        if self.lane.owner is self:
            return
        if self._guards is None:
            order = Order(self._device.layer.Barrier)
            for name in self._blocks.own:
                block = self._blocks.of[name]
                end = block.at + GUARD_BYTES + 4 * block.words
                for part in ((self._memory, block.at, GUARD_BYTES), (self._memory, end, GUARD_BYTES)):
                    order.add(("fill", (part, int(GUARD) & 0xFFFFFFFF)), [], [part])
                if name in self._blocks.fetched:
                    part = (self._memory, block.at + GUARD_BYTES, end - block.at - GUARD_BYTES)
                    order.add(("fill", (part, 0)), [], [part])
            self._guards = recorded(self._device, order.operations, False)
        self._device.run(self._guards)
        self.lane.owner = self

    def _dispatched(self, pipelines: Pipelines, order: Order, job: Job) -> int:
        inputs = [
            self._part(self._blocks.of[name]) if name in self._blocks.of else self._constants[name]
            for name in job.inputs
        ]
        output = self._part(self._blocks.of[job.output])
        pipeline = pipelines.pipeline(job.launch, len(inputs) + 1)
        arguments = (pipeline, [*inputs, output], padded_push(job.launch), job.launch.grid)
        return order.add(("dispatch", arguments), inputs, [output])

    def start(self, turn: int, timed: bool, where: str) -> None:
        """Submit a turn."""
        kept = self._timed if timed else self._plain
        if kept[turn] is None:
            kept[turn] = recorded(self._device, self._turns[turn][0], timed)
        doing.working(where)
        self._device.kp_call(where, kept[turn].submit)
        self._running[turn] = kept[turn]

    def wait(self, turn: int, where: str) -> None:
        """Until it is done; DeviceError if the device was lost."""
        doing.working(where)
        self._device.kp_call(where, self._running[turn].wait)

    def ticks(self, turn: int) -> list[float]:
        """Of each job of a turn that was timed."""
        took = np.diff(np.array(self._timed[turn].get_timestamps(), np.float64))
        return [float(took[place]) for place in self._turns[turn][1]]


def upload(
    device: Device, plan: Plan, constants: dict[Hashable, Part], uploaded: dict[bytes, Part] | None = None
) -> None:
    """Bring the constants of a plan to the device that are not there yet, in one memory.

    ``uploaded``: what the program's sessions for other shapes have there, by the digest of its words.
    """
    known = {} if uploaded is None else uploaded
    made = {job.output for turn in plan.turns for job in turn.jobs}
    names = dict.fromkeys(
        name
        for turn in plan.turns
        for job in turn.jobs
        for name in job.inputs
        if not isinstance(name, int) and name not in made and name not in constants
    )
    words = {name: guarded_words(plan.constant(name)) for name in names}
    digests = {name: sha256(np.ascontiguousarray(held)).digest() for name, held in words.items()}
    there = {name: known[digest] for name, digest in digests.items() if digest in known}
    constants |= there
    words = {name: held for name, held in words.items() if name not in there}
    if not words:
        return
    size = sum(-(-held.nbytes // ALIGN) * ALIGN for held in words.values())
    memory, staging = device.memory(size), device.memory(size, "HOST_WRITES")
    to, at = staging.words(), 0
    for name, held in words.items():
        to[at // 4 : at // 4 + held.size] = held
        constants[name] = known[digests[name]] = (memory, at, held.nbytes)
        at += -(-held.nbytes // ALIGN) * ALIGN
    device.run(recorded(device, [("copy", ((staging, 0, size), memory, 0))], False))
    staging.destroy()


__all__ = ["Blocks", "Lane", "Lanes", "Order", "Part", "RunMemory", "recorded", "upload"]

"""Single calls on the layer: all steps of several in one submission, in memory that is kept from call to call.

Every buffer lies between guard words of its own, and nothing is shared, so each step's output is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refsim.core import doing
from refsim.core.buffer import GUARD_WORDS, PackedBuffer
from refsim.core.errors import GuardError
from refsim.core.launch import Launch
from refsim_gpu.pipelines import GUARD_WORD, Pipelines, check_guards, padded_push, take_output
from refsim_gpu.run_memory import ALIGN, Order, Part, block_bytes, recorded

#: Memory that is kept between calls, in bytes; larger calls get memory for themselves.
KEPT = 64 << 20


@dataclass
class Steps:
    """The dispatches of a call over named buffers: the words that are given, then each launch."""

    where: str
    words: dict[str, np.ndarray]
    launches: list[tuple[Launch, tuple[str, ...], str]] = field(default_factory=list)


def blocks(call: Steps) -> tuple[dict[str, tuple[int, int]], int]:
    """Where each buffer begins, in bytes, and its words; and where the last one ends."""
    words = {name: held.size for name, held in call.words.items()}
    words |= {output: launch.out.words for launch, _, output in call.launches}
    places, at = {}, 0
    for name, count in words.items():
        places[name] = (at, count)
        at += -(-block_bytes(count) // ALIGN) * ALIGN
    return places, at


def nbytes(call: Steps) -> int:
    """Bytes of all buffers of a call with their guard words."""
    return blocks(call)[1]


@dataclass
class _Memories:
    """As much of the device, and of what the host writes and reads."""

    device: Any
    up: Any
    down: Any


class Calls:
    """Runs calls on one device."""

    def __init__(self, pipelines: Pipelines) -> None:
        self.pipelines, self.device = pipelines, pipelines.device
        self._kept: _Memories | None = None

    def run(self, calls: Sequence[Steps]) -> list[PackedBuffer | GuardError]:
        """The output of each call; or, if a step wrote outside of its buffer, the error, which holds the output.

        DeviceError if the device was lost, and for a launch over its limits.
        """
        laid = [blocks(call) for call in calls]
        size = max(ALIGN, sum(end for _, end in laid))
        memories, at = self._memories(size), 0
        up = memories.up.words()
        order = Order(self.device.layer.Barrier)
        source, target = (memories.up, 0, size), (memories.device, 0, size)
        order.add(("copy", (source, memories.device, 0)), [source], [target])
        fetched: list[tuple[Part, int]] = []
        for call, (places, end) in zip(calls, laid, strict=True):
            region = up[at // 4 : (at + end) // 4]
            region[:] = GUARD_WORD
            parts: dict[str, Part] = {}
            for name, (begin, words) in places.items():
                inner = region[begin // 4 + GUARD_WORDS : begin // 4 + GUARD_WORDS + words]
                given = call.words.get(name)
                inner[:] = 0 if given is None else given.view(np.uint32)
                parts[name] = (memories.device, at + begin, block_bytes(words))
            for launch, inputs, output in call.launches:
                read = [parts[name] for name in inputs]
                pipeline = self.pipelines.pipeline(launch, len(read) + 1)
                arguments = (pipeline, [*read, parts[output]], padded_push(launch), launch.grid)
                order.add(("dispatch", arguments), read, [parts[output]])
                fetched.append((parts[output], at + places[output][0]))
            at += end
        for part, to in fetched:
            order.add(("copy", (part, memories.down, to)), [part], [])
        doing.working(calls[0].where)
        recording = recorded(self.device, order.operations, False)
        self.device.run(recording, where=calls[0].where)
        recording.destroy()
        found, at = list[PackedBuffer | GuardError](), 0
        down = memories.down.words()
        for call, (places, end) in zip(calls, laid, strict=True):
            found.append(self._taken(call, places, down[at // 4 : (at + end) // 4]))
            at += end
        return found

    def _memories(self, size: int) -> _Memories:
        if self._kept is not None and self._kept.device.bytes() >= size:
            return self._kept
        if size <= KEPT:
            size = min(KEPT, max(1 << 20, 2 * size))
        device = self.device
        found = _Memories(
            device.memory(size), device.memory(size, "HOST_WRITES"), device.memory(size, "HOST_READS")
        )
        if size <= KEPT:
            self._kept = found
        return found

    def _taken(
        self, call: Steps, places: dict[str, tuple[int, int]], data: np.ndarray
    ) -> PackedBuffer | GuardError:
        """The last output; what follows a step that wrote outside is computed all the same, so that it can be seen."""
        broken: GuardError | None = None
        for launch, _, output in call.launches:
            begin = places[output][0] // 4
            block = data[begin : begin + block_bytes(places[output][1]) // 4]
            try:
                check_guards(launch.out, block, f"{self.pipelines.name}: {launch.shader}")
            except GuardError as error:
                broken = broken or error
        buffer = PackedBuffer(launch.out)
        take_output(buffer, block)
        if broken is None:
            return buffer
        broken.buffer = buffer
        return broken

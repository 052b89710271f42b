"""Change a program: other delegate blobs, and more outputs of delegates. All the rest stays as it is.

`single_delegate` makes a new program around one blob.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from refsim.core.dtypes import BY_NAME
from refsim.core.errors import GraphError
from refsim.formats.flatbuffer.encode import ALIGNMENT
from refsim.formats.limits import check_ids
from refsim.formats.pte.read import VULKAN_ID, Pte
from refsim.formats.pte.schema import (
    DELEGATE_SEGMENT,
    SCALAR_TYPES,
    Allocation,
    Chain,
    Delegate,
    DelegateCall,
    DelegateData,
    EValue,
    Plan,
    Program,
    SegmentOffsets,
    Tensor,
)
from refsim.formats.pte.write import write_pte
from refsim.formats.vkgraph.write import write_blob

ARENA = 1  # 0 is reserved by the format

#: Dtype by name, and sizes, outermost first.
Described = tuple[str, tuple[int, ...]]


class ProgramEditor:
    """A program whose delegates are rewritten; `write` gives the file.

    Ids of values are those of the program as it was given; a new value is added behind the others.
    """

    def __init__(self, pte: Pte) -> None:
        self.pte = pte
        self.plan = pte.plan()
        self.where = f"{pte.where}: {self.plan.name}"
        if lost := pte.unread():
            raise GraphError(pte.where, "has fields that would be lost in another file", got=", ".join(lost))
        if len(self.plan.chains) != 1:
            raise GraphError(self.where, "more than one chain", got=len(self.plan.chains), need=1)
        self._values: list[EValue] = list(self.plan.values)
        self._outputs: list[int] = list(self.plan.outputs)
        self._arenas = list(self.plan.arena_sizes) + [0] * (2 - len(self.plan.arena_sizes))
        self._arguments: dict[int, list[int]] = {}
        self._blobs = {
            number: write_blob(blob.graph, blob.constants.raw, f"{self.where}: delegate {number}")
            for number, blob in pte.held.items()
        }

    def call_of(self, delegate: int) -> tuple[int, DelegateCall]:
        """The instruction that calls a delegate, and its number; GraphError unless there is exactly one."""
        found = [
            (number, step)
            for number, step in enumerate(self.plan.chains[0].instructions)
            if isinstance(step, DelegateCall) and step.delegate_index == delegate
        ]
        if len(found) != 1:
            raise GraphError(
                f"{self.where}: delegate {delegate}", "is not called once", got=f"{len(found)} calls", need=1
            )
        return found[0]

    def set_blob(self, delegate: int, blob: bytes) -> None:
        """Give a delegate another blob; named data that it refers to stays where it is."""
        check_ids(f"{self.where}: delegate", (delegate,), len(self.plan.delegates))
        self._blobs[delegate] = blob

    def output(self, delegate: int, dtype: str, sizes: tuple[int, ...]) -> int:
        """Append an output that a delegate gives, behind its own outputs and the program's; its place among those.

        Its tensor lies behind everything else in the arena, which grows: no other tensor shares its memory.
        """
        self.call_of(delegate)
        number = len(self._values)
        tensor, self._arenas[ARENA] = planned(dtype, sizes, self._arenas[ARENA])
        self._values.append(tensor)
        self._arguments.setdefault(delegate, []).append(number)
        self._outputs.append(number)
        return len(self._outputs) - 1

    def write(self) -> bytes:
        """The .pte file."""
        segments: list[memoryview | bytes] = list(self.pte.segments)
        delegates = list(self.plan.delegates)
        for number, blob in self._blobs.items():
            delegates[number] = replace(delegates[number], processed=self._place(number, segments, blob))
        steps = list(self.plan.chains[0].instructions)
        for number, added in self._arguments.items():
            at, call = self.call_of(number)
            steps[at] = replace(call, args=(*call.args, *added))
        plan = replace(
            self.plan,
            values=tuple(self._values),
            outputs=tuple(self._outputs),
            chains=(replace(self.plan.chains[0], instructions=tuple(steps)),),
            delegates=tuple(delegates),
            arena_sizes=tuple(self._arenas),
        )
        program = self.pte.program
        plans = tuple(plan if other is self.plan else other for other in program.plans)
        constants = program.constant_segment
        if constants is None and not program.constant_buffers:
            constants = no_constants(segments)
        return write_pte(replace(program, plans=plans, constant_segment=constants), segments)

    def _place(self, number: int, segments: list[memoryview | bytes], blob: bytes) -> DelegateData:
        """The segment of a blob: the delegate's own, or a new one if others use that, or if it had none."""
        held = self.plan.delegates[number].processed
        users = [
            data
            for plan in self.pte.program.plans
            for delegate in plan.delegates
            if (data := delegate.processed) is not None and data == held
        ]
        if held is not None and held.location == DELEGATE_SEGMENT and len(users) == 1:
            segments[held.index] = blob
            return held
        segments.append(blob)
        return DelegateData(DELEGATE_SEGMENT, len(segments) - 1)


def planned(dtype: str, sizes: tuple[int, ...], arena: int) -> tuple[Tensor, int]:
    """A tensor that begins at the end of an arena of so many bytes, and the bytes of the arena with it."""
    row = BY_NAME.get(dtype)
    if row is None or row.program is None or not row.computed:
        raise GraphError("output", "a dtype that no plan holds", got=dtype)
    tensor = Tensor(row.program[0], tuple(sizes), tuple(range(len(sizes))))
    place, arena = placed(tensor, arena)
    return replace(tensor, allocation=place), arena


def placed(tensor: Tensor, arena: int) -> tuple[Allocation, int]:
    """A place for a tensor at the end of an arena of so many bytes, and the bytes of the arena with it."""
    offset = arena + -arena % ALIGNMENT
    nbytes = prod(tensor.sizes) * SCALAR_TYPES[tensor.scalar_type][1]
    return Allocation(ARENA, offset & 0xFFFFFFFF, offset >> 32), offset + nbytes + -nbytes % ALIGNMENT


def no_constants(segments: list[memoryview | bytes]) -> SegmentOffsets:
    """The constant segment of a program without constants: empty, appended to ``segments``.

    The runtime refuses a program that has neither this nor constant buffers.
    """
    segments.append(b"")
    return SegmentOffsets(len(segments) - 1, (0,))


def single_delegate(blob: bytes, inputs: Sequence[Described], outputs: Sequence[Described]) -> bytes:
    """A .pte whose only instruction calls one Vulkan delegate, with these inputs and outputs in the blob's order.

    Equal arguments give equal bytes.
    """
    values: list[EValue] = []
    arena = 0
    for dtype, sizes in (*inputs, *outputs):
        tensor, arena = planned(dtype, sizes, arena)
        values.append(tensor)
    ids = tuple(range(len(values)))
    segments: list[memoryview | bytes] = [blob]
    plan = Plan(
        "forward",
        tuple(values),
        ids[: len(inputs)],
        ids[len(inputs) :],
        (Chain((), (), (DelegateCall(0, ids),)),),
        (),
        (Delegate(VULKAN_ID, DelegateData(DELEGATE_SEGMENT, 0)),),
        (0, arena),
    )
    return write_pte(Program(0, (plan,), constant_segment=no_constants(segments)), segments)

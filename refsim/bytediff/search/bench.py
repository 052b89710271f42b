"""A call as steps of plain Python: single work items run with an edit, or all of them, and the words they write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import index
from typing import Any

import numpy as np

from refsim.bytediff.invocations import work_items
from refsim.bytediff.search.device import DeviceEdit, Loaded
from refsim.bytediff.search.schema import Entry, KernelEdit, KernelSchema, schema_of
from refsim.core.buffer import GUARD, OUTSIDE, with_outside
from refsim.core.launch import Launch, Triple
from refsim.core.push import PushWords, Words
from refsim.ops.base.arg import Kind
from refsim.ops.base.registry import kernel_of
from refsim.ops.base.spec import Call, KernelSpec


class ReadWords(tuple[Any, ...]):
    """``length`` words of an input, with what lies outside of it as `with_outside` has it. No edit writes there."""

    length: int
    #: Results are kept by these words as well (`Copy.kept`): the hash of a tuple looks at each of them.
    __hash__ = object.__hash__
    __eq__ = object.__eq__

    @classmethod
    def of(cls, words: np.ndarray, guards: int = 0) -> ReadWords:
        made = cls(with_outside(words, guards).tolist())
        made.length = len(words)
        return made

    @property
    def size(self) -> int:
        """What a kernel takes for the size."""
        return len(self)


class Out(dict[int, Any]):
    """The words that were written."""

    size = 0


@dataclass
class Step:
    """One dispatch of a call: its launch, and the names of the buffers that it reads and writes."""

    call: Call
    inputs: tuple[str, ...]
    output: str
    lacking: bool = False

    def __post_init__(self) -> None:
        self.launch: Launch = self.call.dispatches()[0].launch
        self.spec = tuple(np.array(self.launch.spec, np.uint32).astype(np.int64).tolist())
        self.push = tuple(np.array(self.launch.push, np.uint32).view(np.int32).tolist())

    @property
    def kernel(self) -> KernelSpec:
        return kernel_of(self.launch.shader)

    @cached_property
    def pushed(self) -> dict[str, int]:
        """The push words by name."""
        return dict(zip(self.kernel.push.names, self.push, strict=True))

    @cached_property
    def specialized(self) -> dict[str, int]:
        """The specialization words by name."""
        return dict(zip(self.kernel.spec.names, self.spec, strict=True))

    @property
    def schema(self) -> KernelSchema:
        rule = self.call.target.rule
        out_scale = 0.0 if rule is None else self.call.params.out_scale
        return schema_of(self.launch.shader, rule, out_scale, self.lacking)

    def reached(self, device: DeviceEdit | None) -> Triple:
        """How many work items there are as (z, y, x), the order in which kernels count."""
        x, y, z = self.launch.reached
        return (z, y, x) if device is None or device.reached is None else device.reached


def steps_of(call: Call, names: Mapping[str, str] | None = None, output: str = "out") -> Iterator[Step]:
    """The dispatches of a call, those of a composite operator's parts."""
    given = names or {}
    if call.op.expand is None:
        read = [a.name for a in call.op.args if a.kind in (Kind.INPUT, Kind.CONST)]
        yield Step(call, tuple(given.get(name, name) for name in read), output)
        return
    for part in call.op.expand(call):
        inner = {name: given.get(at, at) for name, at in part.inputs.items()}
        yield from steps_of(part.call, inner, output if part.output == "out" else part.output)


class Produced(list[Any]):
    """The words of an intermediate buffer, each made when it is read, by the work item that writes it."""

    def __init__(self, bench: Bench, step: Step, depth: int) -> None:
        super().__init__()
        self.bench, self.step, self.depth = bench, step, depth
        self.length = step.launch.out.words
        self.size = self.length + OUTSIDE
        #: The words that were made by the kernels as they are now, and those that the right ones made.
        self.held, self.right = dict[int, int](), dict[int, int]()
        self.items = work_items(step.launch)

    def __getitem__(self, at: Any) -> Any:
        at = index(at)  # a float is none, though a word may be held there
        if not 0 <= at < self.length:
            return int(GUARD) if -self.bench.guards <= at < self.length + self.bench.guards else 0
        if at not in self.held:
            x, y, z = self.items[:, at].tolist()
            out = self.bench.stores(self.depth, (z, y, x))
            self.held.update(out)
            if at not in self.held:  # another item may write it now, unless none runs there
                self.bench.missed |= self.bench.device is None or not self.bench.device.fewer
                if self.held is self.right:
                    return 0
                self.held[at] = 0
        return self.held[at]


@dataclass
class Bench:
    """A call with its input words, so many ``guards`` around each; ``steps`` in order, the last writes the output.

    ``lacking``: the kernels are wrong, and their edits are what may make them right.
    """

    call: Call
    inputs: Mapping[str, np.ndarray]
    guards: int = 0
    lacking: bool = False
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.steps = [replace(step, lacking=self.lacking) for step in steps_of(self.call)]
        self.arrays: dict[str, np.ndarray] = dict(self.inputs)
        for step in self.steps:
            for name, arg in zip(step.inputs, _read(step.call), strict=True):
                if arg.kind is Kind.CONST:
                    self.arrays.setdefault(name, step.call.words(name))
        self.words = {name: ReadWords.of(array, self.guards) for name, array in self.arrays.items()}
        self.produced: dict[str, Produced] = {}
        #: About how many steps of loops all items of the last step take, and whether an intermediate word was missing.
        self.cost, self.missed = 0, False
        #: What the kernels are launched with otherwise, if anything, and its words by step.
        self.device: DeviceEdit | None = None
        self.changed: dict[tuple[int, DeviceEdit], tuple[Sequence[int], Sequence[int]]] = {}
        #: The first step that is edited, or the last one.
        self.first = len(self.steps) - 1

    def read(self, name: str, words: np.ndarray) -> ReadWords:
        """The words of a buffer as plain Python reads them."""
        return self.words[name] if words is self.arrays.get(name) else ReadWords.of(words, self.guards)

    def choose(
        self,
        number: int,
        edit: KernelEdit | None = None,
        entry: Entry | None = None,
        device: DeviceEdit | None = None,
        also: KernelEdit | None = None,
    ) -> None:
        """Edit the kernel of one step, or what kernels are launched with; without an edit all is right again."""
        self.steps[number].schema.select(edit, entry, also)
        self.device, self.changed = device, {}
        schema = self.steps[number].schema
        altered = [at for at, step in enumerate(self.steps) if edit is not None and step.schema is schema]
        altered += [] if device is None else [device.only or 0]
        self.first = min(altered, default=len(self.steps) - 1)
        if not self.produced:
            self.produced = {step.output: Produced(self, step, at) for at, step in enumerate(self.steps[:-1])}
        self.forget()

    def launched(self, number: int, device: DeviceEdit | None) -> tuple[Sequence[int], Sequence[int]]:
        """Specialization and push words of a step."""
        step = self.steps[number]
        if device is None or not device.holds(number) or not (device.push or device.spec):
            return step.spec, step.push
        if (number, device) not in self.changed:
            rows = step.kernel
            spec, push = (
                _changed(rows.spec, step.spec, device.spec),
                _changed(rows.push, step.push, device.push),
            )
            self.changed[number, device] = tuple(spec), tuple(push)
        return self.changed[number, device]

    def forget(self, every: bool = False) -> None:
        """Let intermediate words be made again, by the kernels as they are now; those before any edit, or all."""
        self.missed = False
        for produced in self.produced.values():
            produced.held = {} if every or produced.depth >= self.first else produced.right

    def stores(self, number: int, item: Triple) -> Out:
        """What one work item of a step writes: word -> value."""
        step = self.steps[number]
        out = Out()
        out.size = step.launch.out.words
        given: list[Any] = [
            self.produced[name] if name in self.produced else self.words[name] for name in step.inputs
        ]
        spec, push = self.launched(number, self.device)
        if self.device is not None and self.device.holds(number):
            if any(at >= size for at, size in zip(item, step.reached(self.device), strict=True)):
                return out
            read = self.device.read
            given = [
                Loaded(words, read[name]) if name in read else words
                for name, words in zip(step.inputs, given, strict=True)
            ]
        step.schema.run([item], spec, push, *given, out)
        return out


def _changed(row: Words, held: Sequence[int], changes: Mapping[str, int]) -> Iterator[int]:
    """Words, some of which are others, as int32 or as they are."""
    for name, word in zip(row.names, held, strict=True):
        other = changes.get(name, word)
        signed = name in changes and isinstance(row, PushWords)
        yield (other + (1 << 31) & 0xFFFFFFFF) - (1 << 31) if signed else other


def _read(call: Call) -> list[Any]:
    return [arg for arg in call.op.args if arg.kind in (Kind.INPUT, Kind.CONST)]

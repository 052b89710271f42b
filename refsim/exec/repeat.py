"""Does a model give the same bytes every time? Runs it many times and keeps digests of the buffers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from refsim.core.buffer import PackedBuffer, raw_of
from refsim.core.errors import DeviceError
from refsim.exec.executor import Executor
from refsim.exec.model import Model
from refsim.formats.dumps import value_name
from refsim.graph.graph import Graph, Node
from refsim.graph.interpreter import Event, Observer, stored
from refsim.ops.base.binding import BoundCase, bound_of

Held = PackedBuffer | np.ndarray

DIGEST = 16  # bytes that are kept of each buffer and run
EXAMPLES = 8  # distinct contents that are kept of the first buffer that differs


@dataclass
class Buffer:
    """One buffer in all runs. ``value`` is its id in the delegate, or the number of the output.

    ``node`` is None for an input of a delegate and an output of the model."""

    name: str
    delegate: int | None
    value: int
    node: Node | None
    operator: str
    nbytes: int
    digests: bytearray = field(default_factory=bytearray, repr=False)

    def digest(self, run: int) -> bytes:
        return bytes(self.digests[run * DIGEST : (run + 1) * DIGEST])

    @property
    def results(self) -> dict[bytes, list[int]]:
        """Digest -> the runs that gave it; the most common first."""
        return _grouped([self.digest(run) for run in range(len(self.digests) // DIGEST)])


@dataclass(frozen=True)
class Example:
    """One content of the first buffer that differs, and the runs (from 0) that gave it."""

    held: Held
    runs: tuple[int, ...]


@dataclass(frozen=True)
class Repeated:
    """What many runs gave.

    ``results`` are the runs by what they gave in all buffers, ``by_outputs`` by the model's outputs alone; the most
    common first. ``first`` is the first buffer in execution order in which runs differ, or an output if only outputs
    do; ``examples`` are its contents. ``bound`` is the call that wrote it, with the inputs that it had in all runs;
    None if a float operator wrote it.
    """

    runs: int
    buffers: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    results: tuple[tuple[int, ...], ...]
    by_outputs: tuple[tuple[int, ...], ...]
    first: Buffer | None
    examples: tuple[Example, ...]
    bound: BoundCase | None

    @property
    def same(self) -> bool:
        return len(self.results) == 1


def repeat(
    model: Model,
    inputs: Sequence[np.ndarray],
    executor: Executor,
    runs: int,
    tell: Callable[[], None] = lambda: None,
) -> Repeated:
    """Run a model this many times (at least 1) on the same inputs, and say where the runs part.

    Every buffer is observed, so each operator is a step of its own. In memory stay the buffers of the first run, a
    digest of each buffer of all others, and at most `EXAMPLES` contents of one buffer. ``tell`` is called after each
    run. Raises as `Model.run` does.
    """
    record = _Record(model)
    for run in range(runs):
        record.place = 0
        try:
            record.end(model.run(inputs, executor, Observer(record.see, enter=record.enter)))
        except DeviceError as error:
            where = f"run {run + 1} of {runs}: {error.where}"
            raise DeviceError(where, error.what, got=error.got, need=error.need) from error.__cause__ or error
        tell()
    return record.result(runs)


class _Record:
    """Digests of all runs so far, and the contents of the first buffer that differs."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.buffers: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self.first: int | None = None
        self.examples: dict[bytes, Held] = {}
        self.place = 0  # in the current run
        self.held: list[Held] = []  # what the first run gave, as far as the first buffer that differs

    def enter(self, delegate: int, graph: Graph, arrays: Sequence[np.ndarray]) -> None:
        """A delegate is called with these inputs."""
        for value, array in zip(graph.inputs, arrays, strict=True):
            self._add(delegate, None, "input of a delegate", value, stored(graph, value, array, graph.where))

    def see(self, event: Event) -> None:
        """A step has run."""
        for node in event.nodes:
            for value in node.outputs:
                if value in event.outputs:
                    self._add(event.delegate, node, node.operator, value, event.outputs[value])

    def end(self, arrays: Sequence[np.ndarray]) -> None:
        """A run has ended with these outputs."""
        for number, array in enumerate(arrays):
            if number == len(self.outputs):
                self.outputs.append(
                    Buffer(f"out{number}", None, number, None, "output of the model", array.nbytes)
                )
            self.outputs[number].digests += _digest(array)

    def _add(self, delegate: int, node: Node | None, operator: str, value: int, held: Held) -> None:
        at, digest = self.place, _digest(held)
        self.place += 1
        if at == len(self.buffers):
            name = value_name(delegate, value)
            self.buffers.append(Buffer(name, delegate, value, node, operator, raw_of(held).nbytes))
            self.held.append(_copied(held))
        self.buffers[at].digests += digest
        usual = self.buffers[at].digest(0)
        if digest != usual and (self.first is None or at < self.first):
            self.first, self.examples = at, {usual: self.held[at]}
            del self.held[at + 1 :]
        if at == self.first and digest not in self.examples and len(self.examples) < EXAMPLES:
            self.examples[digest] = _copied(held)

    def result(self, runs: int) -> Repeated:
        parted = (b for b in self.outputs if len(b.results) > 1)
        first = next(parted, None) if self.first is None else self.buffers[self.first]
        kept = [] if first is None else [(d, m) for d, m in first.results.items() if d in self.examples]
        return Repeated(
            runs,
            tuple(self.buffers),
            tuple(self.outputs),
            _distinct((*self.buffers, *self.outputs), runs),
            _distinct(self.outputs, runs),
            first,
            tuple(Example(self.examples[digest], tuple(members)) for digest, members in kept),
            self._bound(),
        )

    def _bound(self) -> BoundCase | None:
        """The call of the first buffer that differs. All runs gave it the inputs of the first run."""
        node = None if self.first is None else self.buffers[self.first].node
        if self.first is None or node is None or node.call is None:
            return None
        delegate = self.buffers[self.first].delegate
        assert delegate is not None
        graph = self.model.graphs[delegate]
        values: dict[int, Held | None] = {value: tensor.data for value, tensor in graph.tensors.items()}
        for buffer, held in zip(self.buffers[: self.first], self.held, strict=False):
            if buffer.delegate == delegate:  # of a delegate that is called twice, the later call counts
                values[buffer.value] = held
        inputs = {}
        for name, value in node.inputs.items():
            given = values[value]
            assert given is not None
            packed = stored(graph, value, given, graph.where) if isinstance(given, np.ndarray) else given
            assert isinstance(packed, PackedBuffer)
            inputs[name] = packed
        return bound_of(node.call, inputs)


def _distinct(buffers: Sequence[Buffer], runs: int) -> tuple[tuple[int, ...], ...]:
    """The runs by what they gave in all of these buffers."""
    whole = [hashlib.blake2b(b"".join(b.digest(run) for b in buffers)).digest() for run in range(runs)]
    return tuple(tuple(members) for members in _grouped(whole).values())


def _grouped(digests: Sequence[bytes]) -> dict[bytes, list[int]]:
    groups: dict[bytes, list[int]] = {}
    for run, digest in enumerate(digests):
        groups.setdefault(digest, []).append(run)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def _digest(held: Held) -> bytes:
    return hashlib.blake2b(raw_of(held).tobytes(), digest_size=DIGEST).digest()


def _copied(held: Held) -> Held:
    """An executor may write the next run into the same memory."""
    if not isinstance(held, PackedBuffer):
        return held.copy()
    return PackedBuffer.from_raw(held.raw, held.desc.shape, held.desc.layout, held.desc.dtype)

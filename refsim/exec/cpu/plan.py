"""A whole graph, prepacked: native jobs back to back in one block of memory, NumPy only for float operators.

Which steps those are, and how the values between them lie, says refsim.exec.cpu.schedule. A plan can be observed: the
same jobs run in the same native calls, each step is timed, and the buffers of watched values are copied out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from functools import cached_property, partial
from typing import Any

import numpy as np

from refsim.core import doing, lifetimes
from refsim.core.buffer import GUARD, GUARD_WORDS, PackedBuffer
from refsim.core.errors import GuardError
from refsim.core.layout import WIDTH_PACKED
from refsim.core.lifetimes import ALIGN, Claim, Lifetime
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu.elementwise import prepack as elementwise
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.job import Job, Relocation
from refsim.exec.cpu.schedule import Options, Schedule, constant_bytes
from refsim.exec.cpu.step import PlanStep, value_name
from refsim.exec.cpu.stopwatch import TimedSteps
from refsim.exec.cpu.thread_pool import JobList, scratch_for
from refsim.exec.emulated import EmulatedExecutor
from refsim.exec.plan_rows import PlanMemory, PlannedStep
from refsim.graph.graph import Graph, Node
from refsim.graph.interpreter import NodesInWords, Observer, logical, results, stored


class InputPlace:
    """Where an input goes, as an array, or who reads it where the caller has it until the run is over (``readers``)."""

    def __init__(self, view: np.ndarray, readers: Sequence[Relocation]) -> None:
        self.view, self.shape, self._dtype, self._readers = view, view.shape, view.dtype, readers
        self._own = view.ctypes.data

    def take(self, array: np.ndarray) -> np.ndarray | None:
        """Copy an array of the same shape, or tell the readers where it lies: it must live until they have read."""
        if not self._readers:
            if array.dtype is self._dtype:
                self.view[...] = array  # half the time of copyto, which is stricter with other dtypes
            else:
                np.copyto(self.view, array)
            return None
        whole = array.astype(self._dtype, "C", "same_kind", copy=False)
        self._read_from(whole.ctypes.data)
        return whole

    def give_back(self) -> None:
        """The readers read from here again, as other runs of them expect it."""
        if self._readers:
            self._read_from(self._own)

    def _read_from(self, address: int) -> None:
        for reader in self._readers:
            reader.block[reader.word] = address


#: Where the inputs go, what runs, where the outputs are.
Whole = tuple[list[InputPlace], Callable[[], None], list[np.ndarray]]
#: Inputs of at least so many bytes are read where the caller has them, if their readers allow it, else all threads copy
#: them: for one thread to copy an image of 224 x 224 takes 12 to 50 us, to tell the readers takes 1.
READ_THERE_BYTES = 32 * 1024


class Stretch:
    """Native steps that follow each other: one native call executes all of them."""

    def __init__(
        self, steps: Sequence[PlanStep], threads: int, addresses: dict[str, int], scratch: list[np.ndarray]
    ) -> None:
        self.steps = tuple(steps)
        self._addresses, self._scratch = addresses, scratch
        self._jobs = JobList([job for step in steps for job in step.jobs], threads, addresses, scratch)
        self.threads = self._jobs.threads

    def run(self, graph: Graph) -> None:
        doing.during(self._place(graph), self._jobs.run)

    def ready(self, graph: Graph, before: Sequence[Job] = ()) -> Callable[[], None]:
        """`run`, with as little as possible left to do; other jobs before it."""
        jobs = self._jobs
        if before:
            own = [job for step in self.steps for job in step.jobs]
            names = {r.buffer: 0 for job in before for r in job.relocations} | self._addresses
            jobs = JobList([*before, *own], self.threads, names, self._scratch)
        return partial(doing.during, self._place(graph), jobs.run)

    def readers(self, value: int) -> list[Relocation]:
        """Who reads a value, if none of them reads beyond its end; else none."""
        name = value_name(value)
        jobs = [job for step in self.steps for job in step.jobs]
        readers = [(job, r) for job in jobs for r in job.relocations if r.buffer == name]
        return [r for _, r in readers] if all(name in job.exact for job, _ in readers) else []

    def _place(self, graph: Graph) -> NodesInWords:
        return NodesInWords(graph, (self.steps[0].nodes[0], self.steps[-1].nodes[-1]))

    def run_timed(self, graph: Graph) -> list[float]:
        """The same jobs; the seconds of each step."""
        return doing.during(self._place(graph), self._timed.run)

    @cached_property
    def _timed(self) -> TimedSteps:
        return TimedSteps(self.steps, self.threads, self._addresses, self._scratch)


class SharedBlock:
    """Memory that plans of one program share, each for other shapes, of which one runs at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._block = np.zeros(0, np.uint8)

    def take(self, nbytes: int) -> np.ndarray:
        """So many bytes. The first plan is the bound's and needs most; one that needs more has memory of its own."""
        if not self._block.size:
            self._block = np.zeros(nbytes, np.uint8)
        return self._block if nbytes <= self._block.size else np.zeros(nbytes, np.uint8)


class CpuPlan:
    """A graph on the native executor, made once; `run` is not for two callers at once and locks.

    ``watched`` are the values whose buffers an observer may get, with every byte as the operator alone writes it. They
    have guard words around them, which are checked.
    """

    def __init__(
        self,
        graph: Graph,
        options: Options,
        watched: Set[int] = frozenset(),
        shared: SharedBlock | None = None,
    ) -> None:
        self.graph, self.watched = graph, frozenset(watched)
        # guard words stand around what is watched, and nobody else may write there
        shared = SharedBlock() if shared is None or watched else shared
        self._lock = shared.lock
        schedule = Schedule(graph, options, self.watched)
        self.descs = schedule.descs
        weights = sum(t.data.nbytes for t in graph.tensors.values() if t.data is not None)
        wanted = list(_wanted(schedule))
        values = lifetimes.size(lifetimes.places(wanted).values())
        schedule.fit(options.memory_limit * (weights + lifetimes.live(wanted)) - values)
        self.steps = tuple(schedule.steps)
        # giving up a route changes the buffers between jobs
        wanted = list(_wanted(schedule))
        places = lifetimes.places(wanted)
        size = lifetimes.size(places.values())
        # reads may reach a little beyond the last value
        self._block = shared.take(size + 2 * ALIGN)
        start = -self._block.ctypes.data % ALIGN
        self._bytes = {name: self._block[start + p.offset : start + p.end] for name, p in places.items()}
        self._guarded: dict[int, np.ndarray] = {}
        for value in schedule.pinned & self.descs.keys():
            memory = self._guarded[value] = self._bytes[value_name(value)].view(np.int32)
            memory[:GUARD_WORDS] = memory[-GUARD_WORDS:] = GUARD
            self._bytes[value_name(value)] = memory[GUARD_WORDS:-GUARD_WORDS].view(np.uint8)
        addresses = {name: block.ctypes.data for name, block in self._bytes.items()}
        stretches = [(steps, schedule.threads(steps)) for steps in schedule.stretches()]
        most = max((threads for _, threads in stretches), default=1)
        scratch = scratch_for([job for step in self.steps for job in step.jobs], most)
        self._parts = [
            Stretch(steps, threads, addresses, scratch) if steps[0].is_native else steps[0]
            for steps, threads in stretches
        ]
        self._quick = self._whole()
        self._constants = {t.id: t.data for t in graph.tensors.values() if t.data is not None}
        self._emulated = EmulatedExecutor()
        self.memory = PlanMemory(
            constants=constant_bytes(self.steps),
            values=size,
            scratch=sum(block.nbytes for block in scratch),
            live=lifetimes.live(wanted),
            weights=weights,
        )

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        """The graph's outputs; see `refsim.exec.executor.Session`."""
        graph = self.graph
        if observe is None and self._quick is not None:
            return self._run_whole(*self._quick, inputs)
        graph.check_count(inputs)
        with self._lock:
            held: dict[int, Any] = dict(self._constants)
            for value, array in zip(graph.inputs, inputs, strict=True):
                self._put(held, value, array)
            for part in self._parts:
                if observe is None:
                    part.run(graph) if isinstance(part, Stretch) else self._host(held, part)
                    continue
                for step, seconds in self._timed(held, part):
                    observe.report(number, graph, step.nodes, self._seen(held, step), seconds, by=step.by)
            return [np.array(self._get(held, value)) for value in graph.outputs]

    def _whole(self) -> Whole | None:
        """All that a run needs if it is one native call between arrays that lie in C order."""
        graph = self.graph
        values = {*graph.inputs, *graph.outputs}
        plain = all(v in self.descs and self.descs[v].layout is WIDTH_PACKED for v in values)
        if not plain or len(self._parts) != 1 or not isinstance(self._parts[0], Stretch):
            return None
        if not all(value_name(v) in self._bytes for v in values):
            return None
        views = {
            v: self._bytes[value_name(v)].view(self.descs[v].dtype).reshape(graph.tensors[v].shape)
            for v in values
        }
        part, reads, jobs = self._parts[0], [], []
        for number, v in enumerate(graph.inputs):
            readers, nbytes = [], views[v].nbytes
            if nbytes >= READ_THERE_BYTES:
                readers = [] if v in self.watched | set(graph.outputs) else part.readers(v)
                if not readers and part.threads > 1 and nbytes % 4 == 0:
                    job = elementwise.copied(nbytes, f"input {number}", value_name(v), cpu().isa)
                    readers = list(job.relocations[:1])
                    jobs.append(job)
            reads.append(InputPlace(views[v], readers))
        return reads, part.ready(graph, jobs), [views[v] for v in graph.outputs]

    def _run_whole(
        self,
        reads: list[InputPlace],
        run: Callable[[], None],
        writes: list[np.ndarray],
        inputs: Sequence[np.ndarray],
    ) -> list[np.ndarray]:
        graph = self.graph
        graph.check_count(inputs)
        with self._lock:
            held = []
            try:
                for number, (given, array) in enumerate(zip(reads, inputs, strict=True)):
                    if array.shape != given.shape:
                        graph.check_shape(graph.inputs[number], array.shape)
                    held.append(given.take(array))
                run()
            finally:
                for given in reads:
                    given.give_back()
            return [view.copy() for view in writes]

    def _timed(self, held: dict[int, Any], part: Stretch | PlanStep) -> Iterator[tuple[PlanStep, float]]:
        """Run a part; its steps, and the seconds of each."""
        if isinstance(part, Stretch):
            yield from zip(part.steps, part.run_timed(self.graph), strict=True)
            return
        begin = time.perf_counter()
        self._host(held, part)
        yield part, time.perf_counter() - begin

    def _seen(self, held: dict[int, Any], step: PlanStep) -> dict[int, PackedBuffer | np.ndarray]:
        """The watched values that a step has written, as the graph describes them.

        RawBufferError if a word beside one of them was overwritten.
        """
        seen = {value: self._buffer(held, value) for value in step.writes if value in self.watched}
        for value, buffer in seen.items():
            if isinstance(buffer, PackedBuffer):
                buffer.memory[:] = self._guarded[value]
                try:
                    buffer.check_guards(f"{self.graph.where}: {step.nodes[-1]}")
                except GuardError as error:
                    doing.note(error, f"after {step.kernels or step.route} ran")
                    raise
        return seen

    def _host(self, held: dict[int, Any], step: PlanStep) -> None:
        """A float operator through the bridge, or a q8ta operator through its emulated kernel."""
        (node,) = step.nodes
        doing.during(NodesInWords(self.graph, step.nodes), self._on_host, held, node)

    def _on_host(self, held: dict[int, Any], node: Node) -> None:
        if node.prepared is None:
            for value, array in results(self.graph, node, _Lazy(held, self._get)).items():
                self._put(held, value, array)
            return
        buffers = {name: self._buffer(held, value) for name, value in node.inputs.items()}
        made = self._emulated.run_prepared(node.prepared, buffers)  # type: ignore[arg-type]
        (value,) = node.outputs
        if self.descs[value] == made.desc:
            self._bytes[value_name(value)][:] = made.raw
        else:
            self._put(held, value, made.unpack().reshape(self.graph.tensors[value].shape))

    def _put(self, held: dict[int, Any], value: int, array: np.ndarray) -> None:
        desc = self.descs.get(value)
        tensor = self.graph.tensors[value]
        self.graph.check_shape(value, array.shape)
        if desc is None:
            held[value] = tensor.typed(array)
            return
        place = self._bytes.get(value_name(value))
        if place is None:  # nobody reads it
            return
        if desc.layout is WIDTH_PACKED:
            np.copyto(place.view(desc.dtype).reshape(tensor.shape), tensor.typed(array))
        else:
            shaped = tensor.typed(array).reshape(desc.shape)
            place[:] = PackedBuffer.pack(shaped, desc.layout, dtype=desc.dtype).raw

    def _get(self, held: dict[int, Any], value: int) -> np.ndarray:
        desc = self.descs.get(value)
        if value in held or desc is None:
            return logical(self.graph, held, value)
        place, shape = self._bytes[value_name(value)], self.graph.tensors[value].shape
        if desc.layout is WIDTH_PACKED:
            return place.view(desc.dtype).reshape(shape)
        return PackedBuffer.from_raw(place, desc.shape, desc.layout, desc.dtype).unpack().reshape(shape)

    def _buffer(self, held: dict[int, Any], value: int) -> PackedBuffer | np.ndarray:
        """A copy of a value as the graph describes it: its bytes, where it lies in the graph's layout."""
        desc = self.graph.tensors[value].desc
        if desc is not None and self.descs.get(value) == desc:
            return PackedBuffer.from_raw(self._bytes[value_name(value)], desc.shape, desc.layout, desc.dtype)
        return stored(self.graph, value, self._get(held, value), self.graph.where)

    def rows(self) -> list[PlannedStep]:
        """One row per step, for `refsim inspect --plan`."""
        return [_row(self.graph, self.descs, step) for step in self.steps]


class _Lazy(dict[int, Any]):
    """Values by id, fetched when they are asked for."""

    def __init__(self, held: dict[int, Any], get: Callable[[dict[int, Any], int], np.ndarray]) -> None:
        super().__init__()
        self._held, self._fetch = held, get

    def __missing__(self, value: int) -> np.ndarray:
        return self._fetch(self._held, value)


def _wanted(schedule: Schedule) -> Iterator[Claim[str]]:
    """What each value and each buffer between jobs needs of the block, and when."""
    graph, descs = schedule.graph, schedule.descs
    touched = [(step.reads, step.writes) for step in schedule.steps]
    for value, life in lifetimes.lifetimes(touched, graph.inputs, graph.outputs, schedule.pinned).items():
        if value in descs:
            guards = 8 * GUARD_WORDS if value in schedule.pinned else 0
            yield Claim(value_name(value), descs[value].nbytes + guards, life)
    for number, step in enumerate(schedule.steps):
        for job in step.jobs:
            for name, nbytes in job.temps:
                yield Claim(name, nbytes, Lifetime(number, number))


def _row(graph: Graph, descs: dict[int, TensorDesc], step: PlanStep) -> PlannedStep:
    def text(value: int) -> str:
        return str(descs[value]) if value in descs else str(graph.tensors[value].dtype)

    return PlannedStep(
        nodes=[node.number for node in step.nodes],
        operator=", ".join(n.call.op.name if n.call else n.name for n in step.nodes),
        route=step.route,
        reads=[text(value) for value in step.reads if value in descs],
        writes=[text(value) for value in step.writes],
        tasks=max((job.tasks for job in step.jobs), default=1),
        kernel=", ".join(job.variant for job in step.jobs),
        rejected={} if step.choice is None else dict(step.choice.rejected),
    )

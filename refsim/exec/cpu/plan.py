"""A whole graph, prepacked: native jobs back to back in one block of memory, NumPy only for float operators.

What nobody looks at between the operators may lie as it suits the kernels: float tensors in logical order, tensors that
pack channels in 4C. A dequantize whose only reader is a quantize joins it, also with a clamp or a pooling between.
Whoever observes the nodes gets them one by one instead, each with its own buffers in the graph's layouts; the outputs
are the same bytes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from refsim.core import lifetimes
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import ShapeError
from refsim.core.layout import PACKED_4C, WIDTH_PACKED, C
from refsim.core.lifetimes import ALIGN, Allocation, Lifetime
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu.fusion import chain, join
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.routes import EMULATED, LARGER, choose
from refsim.exec.cpu.step import Step, value_name
from refsim.exec.cpu.thread_pool import JobList
from refsim.graph.graph import Graph, Node, Ref
from refsim.graph.interpreter import Observer, logical, results, run_nodes, stored

if TYPE_CHECKING:
    from refsim.exec.cpu.executor import NativeExecutor


@dataclass(frozen=True)
class Memory:
    """Bytes that a plan holds: prepacked constants, the block of all values, scratch.

    ``weights`` are the constants as the graph stores them, ``live`` the largest set of values that is needed at once.
    """

    constants: int
    values: int
    scratch: int
    live: int
    weights: int

    @property
    def total(self) -> int:
        return self.constants + self.values + self.scratch

    @property
    def ratio(self) -> float:
        """Of the weights and the largest set of values: what no plan can do without."""
        return self.total / max(1, self.weights + self.live)

    def as_dict(self) -> dict[str, int | float]:
        return {**asdict(self), "total": self.total, "ratio": round(self.ratio, 3)}

    def __str__(self) -> str:
        return (
            f"{self.total} bytes: constants {self.constants}, values {self.values}, scratch {self.scratch}; "
            f"{self.ratio:.2f} of weights {self.weights} plus largest live set {self.live}"
        )


class Plan:
    """A graph on the native executor, made once; `run` is not for two callers at once and locks."""

    def __init__(self, graph: Graph, executor: NativeExecutor) -> None:
        self.graph, self.executor = graph, executor
        self._lock = threading.Lock()
        self.descs = _descs(graph, executor)
        steps = list(_steps(graph, self.descs, executor))
        wanted = list(_wanted(graph, steps, self.descs))
        weights = sum(t.data.nbytes for t in graph.tensors.values() if t.data is not None)
        least = weights + lifetimes.live(wanted)
        values = lifetimes.size(lifetimes.places(wanted).values())
        _fit(steps, self.descs, executor, executor.memory_limit * least - values)
        self.steps = tuple(steps)
        # giving up a route changes the buffers between jobs
        wanted = list(_wanted(graph, steps, self.descs))
        places = lifetimes.places(wanted)
        size = lifetimes.size(places.values())
        # reads may reach a little beyond the last value
        self._block = np.zeros(size + 2 * ALIGN, np.uint8)
        start = -self._block.ctypes.data % ALIGN
        self._bytes = {name: self._block[start + p.offset : start + p.end] for name, p in places.items()}
        addresses = {name: block.ctypes.data for name, block in self._bytes.items()}
        self._parts = [
            JobList(
                [job for step in part for job in step.jobs], _threads(part, self.descs, executor), addresses
            )
            if part[0].is_native
            else part[0]
            for part in _parts(self.steps)
        ]
        self._constants = {t.id: t.data for t in graph.tensors.values() if t.data is not None}
        programs = [part for part in self._parts if isinstance(part, JobList)]
        self.memory = Memory(
            constants=_constant_bytes(self.steps),
            values=size,
            scratch=max((program.scratch_bytes for program in programs), default=0),
            live=lifetimes.live(wanted),
            weights=weights,
        )

    def run(
        self, inputs: Sequence[np.ndarray], number: int = 0, observe: Observer | None = None
    ) -> list[np.ndarray]:
        """The graph's outputs; see `refsim.exec.executor.Session`."""
        graph = self.graph
        if observe is not None:
            return run_nodes(graph, inputs, self.executor, number, observe)
        if len(inputs) != len(graph.inputs):
            raise ShapeError(graph.where, "wrong number of inputs", got=len(inputs), need=len(graph.inputs))
        with self._lock:
            held: dict[int, Any] = dict(self._constants)
            for value, array in zip(graph.inputs, inputs, strict=True):
                self._put(held, value, array)
            for part in self._parts:
                if isinstance(part, JobList):
                    part.run()
                else:
                    self._host(held, part)
            return [np.array(self._get(held, value)) for value in graph.outputs]

    def _host(self, held: dict[int, Any], step: Step) -> None:
        """A float operator through the bridge, or a q8ta operator through its emulated kernel."""
        (node,) = step.nodes
        values = _Lazy(held, self._get)
        if node.prepared is None:
            for value, array in results(self.graph, node, values).items():
                self._put(held, value, array)
            return
        buffers = {
            name: stored(self.graph, value, self._get(held, value), str(node))
            for name, value in node.inputs.items()
        }
        made = self.executor.emulated.run_prepared(node.prepared, buffers)  # type: ignore[arg-type]
        self._put(held, node.outputs[0], made.unpack().reshape(self.graph.tensors[node.outputs[0]].shape))

    def _put(self, held: dict[int, Any], value: int, array: np.ndarray) -> None:
        desc = self.descs.get(value)
        tensor = self.graph.tensors[value]
        if tuple(array.shape) != tensor.shape:
            raise ShapeError(
                self.graph.where,
                f"value {value} has the wrong shape",
                got=list(array.shape),
                need=list(tensor.shape),
            )
        if desc is None:
            held[value] = np.ascontiguousarray(array, tensor.dtype)
            return
        place = self._bytes.get(value_name(value))
        if place is None:  # nobody reads it
            return
        if desc.layout is WIDTH_PACKED:
            np.copyto(place.view(np.float32).reshape(tensor.shape), array)
        else:
            shaped = np.asarray(array, tensor.dtype).reshape(desc.shape)
            place[:] = PackedBuffer.pack(shaped, desc.layout).raw

    def _get(self, held: dict[int, Any], value: int) -> np.ndarray:
        desc = self.descs.get(value)
        if value in held or desc is None:
            return logical(self.graph, held, value)
        place, shape = self._bytes[value_name(value)], self.graph.tensors[value].shape
        if desc.layout is WIDTH_PACKED:
            return place.view(np.float32).reshape(shape)
        return PackedBuffer.from_raw(place, desc.shape, desc.layout).unpack().reshape(shape)

    def rows(self) -> list[dict[str, Any]]:
        """One row per step, for `refsim inspect --plan`."""
        return [_row(self.graph, self.descs, step) for step in self.steps]


class _Lazy(dict[int, Any]):
    """Values by id, fetched when they are asked for."""

    def __init__(self, held: dict[int, Any], get: Callable[[dict[int, Any], int], np.ndarray]) -> None:
        super().__init__()
        self._held, self._fetch = held, get

    def __missing__(self, value: int) -> np.ndarray:
        return self._fetch(self._held, value)


# --- steps -------------------------------------------------------------------------------------------------


def _descs(graph: Graph, executor: NativeExecutor) -> dict[int, TensorDesc]:
    """How each value lies in memory."""
    found = {}
    for value, tensor in graph.tensors.items():
        desc = tensor.desc
        if desc is None or tensor.data is not None:
            continue
        if not desc.is_int8:
            found[value] = TensorDesc(desc.shape, WIDTH_PACKED)
        elif desc.layout.inner == C and executor.own_layouts:
            found[value] = TensorDesc(desc.shape, PACKED_4C)
        else:
            found[value] = desc
    return found


def _refs(args: Any) -> Iterator[int]:
    for arg in args:
        if isinstance(arg, Ref):
            yield arg.id
        elif isinstance(arg, tuple):
            yield from _refs(arg)


def _steps(graph: Graph, descs: dict[int, TensorDesc], executor: NativeExecutor) -> Iterator[Step]:
    readers = Counter(value for node in graph.nodes for value in _inputs(node))
    readers.update(graph.outputs)
    reader_of = {value: node for node in graph.nodes for value in _inputs(node)}
    joined: set[int] = set()
    for node in graph.nodes:
        if node.number in joined:
            continue
        found = chain(graph, node, readers, reader_of)
        step = join(found, descs) if found else None
        if step is not None:
            joined |= {member.number for member in step.nodes}
            yield step
        else:
            yield _single(node, descs, executor)


def _inputs(node: Node) -> tuple[int, ...]:
    return tuple(node.inputs.values()) if node.prepared is not None else tuple(_refs(node.args))


def _constants(step: Step) -> list[np.ndarray]:
    """What a step holds: what its jobs point into, or the words that the emulated kernel reads."""
    if step.is_native:
        return [array for job in step.jobs for array in job.owned]
    prepared = step.nodes[0].prepared
    return [prepared.words(name) for name in prepared.constants] if prepared is not None else []


def _constant_bytes(steps: Sequence[Step]) -> int:
    """Bytes that these steps hold beyond what the graph stores, each array once."""
    held = {id(owner): owner.nbytes for step in steps for owner in map(_owner, _constants(step))}
    calls = [node.call for step in steps for node in step.nodes if node.call is not None]
    stored = {id(_owner(value)) for call in calls for value in call.consts.values() if value is not None}
    return sum(nbytes for owner, nbytes in held.items() if owner not in stored)


def _owner(array: np.ndarray) -> np.ndarray:
    """The array that a view is of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _fit(steps: list[Step], descs: dict[int, TensorDesc], executor: NativeExecutor, limit: float) -> None:
    """Replace steps whose constants are in a larger form the largest first, until all fits ``limit`` bytes."""

    def larger() -> list[int]:
        chosen = [n for n, step in enumerate(steps) if step.choice and step.route in LARGER]
        return [n for n in chosen if not steps[n].choice.context.forced]  # type: ignore[union-attr]

    def needed() -> int:
        scratch = max((job.scratch for step in steps for job in step.jobs), default=0)
        return _constant_bytes(steps) + executor.threads * scratch

    while needed() > limit and (candidates := larger()):
        at = max(candidates, key=lambda n: _constant_bytes([steps[n]]))
        reason = f"the plan would hold more than {executor.memory_limit:g} times its weights and live values"
        (node,) = steps[at].nodes
        steps[at] = _single(node, descs, executor, dict.fromkeys(LARGER, reason))


def _single(
    node: Node, descs: dict[int, TensorDesc], executor: NativeExecutor, avoid: Mapping[str, str] | None = None
) -> Step:
    call = node.call
    reads = _inputs(node)
    if call is None:
        return Step((node,), "numpy", reads, node.outputs)
    here = replace(
        call, descs={name: descs[value] for name, value in node.inputs.items()}, out=descs[node.outputs[0]]
    )
    choice = choose(here, executor.threads, executor.force, avoid)
    jobs = choice.jobs() or ()
    names = {name: value_name(value) for name, value in node.inputs.items()} | {
        "out": value_name(node.outputs[0])
    }
    temps = {name: f"{node.number}.{name}" for job in jobs for name, _ in job.temps}
    jobs = tuple(job.renamed(**names, **temps) for job in jobs)
    return Step((node,), choice.route if jobs else EMULATED, reads, node.outputs, jobs, choice)


def _parts(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Runs of native steps; every other one alone."""
    run: list[Step] = []
    for step in steps:
        if step.is_native:
            run.append(step)
            continue
        if run:
            yield run
        run = []
        yield [step]
    if run:
        yield run


#: What waking threads and waiting for them takes, and to read or write an element or a weight, in cycles: estimates.
WAKING, ELEMENT, WEIGHT = 300_000, 0.1, 0.07


def _threads(part: Sequence[Step], descs: dict[int, TensorDesc], executor: NativeExecutor) -> int:
    """As many as the executor has, if the steps take longer than waking them would."""
    return executor.threads if sum(_cycles(step, descs) for step in part) > WAKING else 1


def _cycles(step: Step, descs: dict[int, TensorDesc]) -> float:
    """About how long one thread takes."""
    values = [descs[value] for value in (*step.reads, *step.writes) if value in descs]
    moved = sum(prod(desc.shape) for desc in values) * ELEMENT
    weight = step.choice.context.call.consts.get("weight") if step.choice else None
    if weight is None:
        return moved
    out = values[-1].shape
    # each weight meets every output that is not of another channel
    products = weight.size * prod(out) / out[1 if len(out) == 4 else -1]
    return moved + weight.size * WEIGHT + products / cpu().isa.macs8


# --- memory ------------------------------------------------------------------------------------------------


def _wanted(graph: Graph, steps: Sequence[Step], descs: dict[int, TensorDesc]) -> Iterator[Allocation[str]]:
    """What each value and each buffer between jobs needs of the block, and when."""
    touched = [(step.reads, step.writes) for step in steps]
    for value, life in lifetimes.lifetimes(touched, graph.inputs, graph.outputs).items():
        if value in descs:
            yield Allocation(value_name(value), descs[value].nbytes, life)
    for number, step in enumerate(steps):
        for job in step.jobs:
            for name, nbytes in job.temps:
                yield Allocation(name, nbytes, Lifetime(number, number))


def _row(graph: Graph, descs: dict[int, TensorDesc], step: Step) -> dict[str, Any]:
    def text(value: int) -> str:
        return str(descs[value]) if value in descs else str(graph.tensors[value].dtype)

    return {
        "nodes": [node.number for node in step.nodes],
        "operator": ", ".join(n.call.op.name if n.call else n.name for n in step.nodes),
        "route": step.route,
        "kernel": ", ".join(job.variant for job in step.jobs),
        "reads": [text(value) for value in step.reads if value in descs],
        "writes": [text(value) for value in step.writes],
        "tasks": max((job.tasks for job in step.jobs), default=1),
        "rejected": {} if step.choice is None else dict(step.choice.rejected),
    }

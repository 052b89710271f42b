"""How a whole graph is computed: its steps, the layouts of its values, and how many threads each stretch takes.

What nobody watches between the operators may lie as it suits the kernels: float tensors in logical order, tensors that
pack channels in 4C, those that pack columns (of linear operators) in 4W. A quantize whose bytes follow from the single
bytes of another tensor looks them up in a table; a dequantize, a pooling and a quantize are fused. A watched value has
the bytes that its operator writes alone: it lies in the graph's layout, its operator reads the graph's layouts and is
fused with no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from refsim.core.layout import PACKED_4C, PACKED_4W, WIDTH_PACKED, C, W
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu.fusion import chain, fuse, look_up, pair
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.job import Job
from refsim.exec.cpu.routes import EMULATED, JOINS, LARGER, LUT, choose
from refsim.exec.cpu.step import PlanStep, value_name
from refsim.graph import bytewise
from refsim.graph.graph import Graph, Node, refs
from refsim.ops.base.arg import Kind
from refsim.ops.base.spec import Call


@dataclass(frozen=True)
class Options:
    """How the native executor runs; see `refsim.exec.cpu.executor.NativeExecutor`."""

    threads: int = 1
    force: Mapping[str, str] = field(default_factory=dict)
    own_layouts: bool = True
    memory_limit: float = 1.5
    wake_always: bool = False


@dataclass(frozen=True)
class Then:
    """Nodes that only look bytes up, in a table (int8, 256), and the value that they give."""

    nodes: tuple[Node, ...]
    value: int
    table: np.ndarray


class Schedule:
    """The steps of a graph in order, and how each value lies in memory (``descs``, by value id).

    ``pinned`` are the watched values and those whose padding bytes an operator copies into one. Nothing else may
    share their memory: bytes that no kernel writes stay 0.
    """

    def __init__(self, graph: Graph, options: Options, watched: Set[int] = frozenset()) -> None:
        self.graph, self.options = graph, options
        self.pinned = _pinned(graph, watched)
        self.descs = _descs(graph, options, _as_described(graph, self.pinned))
        self.steps = list(self._steps())

    def fit(self, limit: float) -> None:
        """Give up routes whose constants are in a larger form, the largest first, until all fits ``limit`` bytes."""
        steps = self.steps

        def larger() -> list[int]:
            chosen = [n for n, step in enumerate(steps) if step.choice and step.route in LARGER]
            return [n for n in chosen if not steps[n].choice.context.forced]  # type: ignore[union-attr]

        def needed() -> int:
            scratch = max((job.scratch for step in steps for job in step.jobs), default=0)
            return constant_bytes(steps) + self.options.threads * scratch

        while needed() > limit and (candidates := larger()):
            at = max(candidates, key=lambda n: constant_bytes([steps[n]]))
            reason = f"the plan would hold more than {self.options.memory_limit:g} times its weights and live values"
            steps[at] = self._single(steps[at].nodes[0], dict.fromkeys(LARGER, reason))

    def stretches(self) -> Iterator[list[PlanStep]]:
        """Native steps that follow each other; every other step alone."""
        native: list[PlanStep] = []
        for step in self.steps:
            if step.is_native:
                native.append(step)
                continue
            if native:
                yield native
            native = []
            yield [step]
        if native:
            yield native

    def threads(self, steps: Sequence[PlanStep]) -> int:
        """As many as the executor has, if the steps take longer than waking them would."""
        worth = self.options.wake_always or sum(_cycles(step, self.descs) for step in steps) > WAKING
        return self.options.threads if worth else 1

    def _steps(self) -> Iterator[PlanStep]:
        fused = self._fused()
        looked_up, tables = self._looked_up({value for step in fused.values() for value in step.writes})
        fused |= looked_up
        done = {node.number for step in fused.values() for node in step.nodes}
        self._then = self._joins(looked_up, tables, done)
        joined: set[int] = set()
        for node in self.graph.nodes:
            if node.number in joined:
                continue
            if node.number in fused:
                yield fused[node.number]
            elif node.number not in done:
                step = self._single(node)
                joined |= {other.number for other in step.nodes} - {node.number}
                yield step

    def _joins(
        self, looked_up: Mapping[int, PlanStep], tables: Mapping[int, bytewise.ByteTable], done: Set[int]
    ) -> dict[int, Then]:
        """By a node's number: what is only looked up in a table after it, byte for byte where it lies."""
        graph, found = self.graph, {}
        if not cpu().isa.lookup:
            return {}
        readers, makers = bytewise.readers_of(graph), {v: node for node in graph.nodes for v in node.outputs}
        kept = self.pinned | set(graph.outputs)
        steps_reading = Counter(value for step in looked_up.values() for value in step.reads)
        for node in graph.nodes:
            if node.number in looked_up:
                nodes, value = looked_up[node.number].nodes, node.outputs[0]
                source, table = tables[value].source, tables[value].values
            elif node.number not in done and (alone := self._table_of(node)) is not None:
                nodes, value, source, table = (node,), node.outputs[0], node.inputs["x"], alone
            else:
                continue
            maker, desc = makers.get(source), self.descs.get(source)
            if maker is None or maker.call is None or maker.number in done or source in kept or value in kept:
                continue
            inside = {member.number for member in nodes}
            alike = desc == self.descs[value] and desc is not None and desc.nbytes == prod(desc.shape)
            only = steps_reading[source] <= 1 and all(reader.number in inside for reader in readers[source])
            if alike and only:
                found[maker.number] = Then(nodes, value, table)
        return found

    def _table_of(self, node: Node) -> np.ndarray | None:
        """The table of an operator of one input that takes the route of tables."""
        call = node.call
        if call is None or call.op.affine is None or len(call.op.of_kind(Kind.INPUT)) != 1:
            return None
        choice = choose(self._here(node), self.options.threads, self.options.force)
        if choice.route != LUT:
            return None
        made = choice.context.lut
        return None if isinstance(made, str) or made.shuffle else made.luts

    def _fused(self) -> dict[int, PlanStep]:
        """Nodes that follow each other as one step, by the last one's number."""
        graph = self.graph
        readers = Counter(value for node in graph.nodes for value in _inputs(node))
        readers.update(graph.outputs)
        reader_of = {value: node for node in graph.nodes for value in _inputs(node)}
        chains = (chain(graph, node, self.descs, readers, self.pinned, reader_of) for node in graph.nodes)
        steps = (fuse(found) for found in chains if found is not None)
        fused = {step.nodes[-1].number: step for step in steps if step is not None}
        return fused | self._pairs(fused, readers)

    def _pairs(self, fused: Mapping[int, PlanStep], readers: Counter[int]) -> dict[int, PlanStep]:
        """Sums and products of two tensors as one step, by the last node's number, if no table gives them."""
        graph = self.graph
        makers = {value: node for node in graph.nodes for value in node.outputs}
        matched = (pair(graph, node, self.descs, readers, self.pinned, makers) for node in graph.nodes)
        pairs = [found for found in matched if found is not None]
        known = self._tables({value for step in fused.values() for value in step.writes}) if pairs else {}
        left = (found for found in pairs if not known.keys() & {*found.made, *found.last.outputs})
        steps = (fuse(found) for found in left)
        return {step.nodes[-1].number: step for step in steps if step is not None}

    def _tables(self, made: Set[int]) -> dict[int, bytewise.ByteTable]:
        """The values that follow from single bytes; no chain goes on behind ``made``."""
        constants = {t.id: t.data for t in self.graph.tensors.values() if t.data is not None}
        return bytewise.tables(self.graph, constants, self.pinned | made)

    def _looked_up(self, made: Set[int]) -> tuple[dict[int, PlanStep], dict[int, bytewise.ByteTable]]:
        """Steps that look bytes up, by the last node's number, and all tables that are known, by value.

        ``made``: values that other fused steps write.
        """
        graph = self.graph
        known = self._tables(made)
        makers = {value: node for node in graph.nodes for value in node.outputs}
        jobs: dict[int, tuple[Job, ...]] = {}
        for value, table in known.items():
            if value in self.descs and self.descs[value].is_int8 and value not in made | self.pinned:
                jobs[value] = look_up(table, makers[value], self.descs)
        chosen = {value: known[value] for value in jobs if jobs[value]}
        kept = self.pinned | set(graph.outputs)
        steps = {
            nodes[-1].number: PlanStep(tuple(nodes), LUT, (known[value].source,), (value,), jobs[value])
            for value, nodes in bytewise.steps(graph, chosen, kept).items()
        }
        return steps, known

    def _single(self, node: Node, avoid: Mapping[str, str] | None = None) -> PlanStep:
        """One operator, and the table after it if its kernel can look bytes up.

        ``avoid``: routes that are not wanted, and why.
        """
        reads, writes = _inputs(node), node.outputs
        nodes: tuple[Node, ...] = (node,)
        if node.call is None:
            return PlanStep(nodes, "float", reads, writes)
        choice = choose(self._here(node), self.options.threads, self.options.force, avoid)
        then = self._then.get(node.number)
        if then is not None and choice.route in JOINS:
            choice, nodes, writes = choice.then(then.table), (node, *then.nodes), (then.value,)
        jobs = choice.jobs() or ()
        names = {name: value_name(value) for name, value in node.inputs.items()}
        names["out"] = value_name(writes[0])
        temps = {name: f"{node.number}.{name}" for job in jobs for name, _ in job.temps}
        jobs = tuple(job.renamed(**names, **temps) for job in jobs)
        return PlanStep(nodes, choice.route if jobs else EMULATED, reads, writes, jobs, choice)

    def _here(self, node: Node) -> Call:
        """A node's call on values as they lie here."""
        assert node.call is not None
        return replace(
            node.call,
            descs={name: self.descs[value] for name, value in node.inputs.items()},
            out=self.descs[node.outputs[0]],
        )


# --- layouts -----------------------------------------------------------------------------------------------


def _pinned(graph: Graph, watched: Set[int]) -> frozenset[int]:
    found = set(watched)
    for node in reversed(graph.nodes):
        if node.call is not None and node.call.padding.copied and found & set(node.outputs):
            found |= set(node.inputs.values())
    return frozenset(found)


def _as_described(graph: Graph, pinned: Set[int]) -> set[int]:
    """Values that lie in the graph's layouts: pinned ones, and what their operators read."""
    read = {value for node in graph.nodes if pinned & set(node.outputs) for value in _inputs(node)}
    return read | pinned


def _descs(graph: Graph, options: Options, as_described: Set[int]) -> dict[int, TensorDesc]:
    """How each value lies in memory."""
    found = {}
    for value, tensor in graph.tensors.items():
        desc = tensor.desc
        if desc is None or tensor.data is not None:
            continue
        if value in as_described:
            found[value] = desc
        elif not desc.is_int8:
            found[value] = TensorDesc(desc.shape, WIDTH_PACKED, desc.dtype)
        elif desc.layout.inner == C and options.own_layouts:
            found[value] = TensorDesc(desc.shape, PACKED_4C)
        elif desc.layout.inner == W and options.own_layouts:
            found[value] = TensorDesc(desc.shape, PACKED_4W)
        else:
            found[value] = desc
    return found


def _inputs(node: Node) -> tuple[int, ...]:
    return tuple(node.inputs.values()) if node.prepared is not None else tuple(refs(node.args))


# --- constants ---------------------------------------------------------------------------------------------


def constant_bytes(steps: Sequence[PlanStep]) -> int:
    """Bytes that these steps hold beyond what the graph stores, each array once and without guard words around it."""
    held = {id(_owner(array)): array.nbytes for step in steps for array in _constants(step)}
    calls = [node.call for step in steps for node in step.nodes if node.call is not None]
    stored = {id(_owner(value)) for call in calls for value in call.consts.values() if value is not None}
    return sum(nbytes for owner, nbytes in held.items() if owner not in stored)


def _constants(step: PlanStep) -> list[np.ndarray]:
    """What a step holds: what its jobs point into, or the words that the emulated kernel reads."""
    if step.is_native:
        return [array for job in step.jobs for array in job.owned]
    prepared = step.nodes[0].prepared
    return [prepared.words(name) for name in prepared.constants] if prepared is not None else []


def _owner(array: np.ndarray) -> np.ndarray:
    """The array that a view is of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


# --- threads -----------------------------------------------------------------------------------------------

#: Cycles of waking threads and waiting for them, and of reading or writing an element or a weight: estimates from
#: networks timed by `python -m bench.peers` on an AMD EPYC (Zen 4, 2 cores).
WAKING, ELEMENT, WEIGHT = 300_000, 0.1, 0.07


def _cycles(step: PlanStep, descs: Mapping[int, TensorDesc]) -> float:
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

"""What a device computes of a graph, in which order, and what is left to the host.

A plan begins at the end: only values that are watched, given back, or read by what makes such a value are made. A value
that follows from single bytes of an int8 value is looked up in a table (refsim.graph.bytewise) unless what its operator
reads is there anyway, as it is where everything is watched. A float operator without a kernel runs on the host. Device
and host take turns; each does all it can before the other goes on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from refsim.aten.bridge import find
from refsim.core.errors import RefsimError
from refsim.core.launch import Launch
from refsim.core.layout import WIDTH_PACKED
from refsim.core.tensor import TensorDesc
from refsim.graph.bytewise import BYTES, ByteTable, quantized, readers_of, tables
from refsim.graph.graph import Graph, Node, refs
from refsim.graph.interpreter import results
from refsim.ops.base import elementwise
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.traits import QUANTIZERS, Family
from refsim_gpu import float_kernels
from refsim_gpu.float_site import Number, Site
from refsim_gpu.float_words import ROWS

#: Operators that ask for nothing but the shape of their tensor.
SHAPED = ("full_like", "zeros_like", "ones_like")
#: What a device holds as words of 32 bits, beside floats.
WORDS = (np.dtype(np.bool_), np.dtype(np.int32))
#: Constants larger than this are not computed in advance.
MOST_FOLDED = 1 << 22


@dataclass(frozen=True)
class Job:
    """One dispatch: what it reads and writes by name. A value's name is its id; other names are of constants."""

    launch: Launch
    inputs: tuple[Hashable, ...]
    output: Hashable
    node: Node


@dataclass
class Turn:
    """What the device does in one go, then what the host does; ``fetched`` are the values that come back between."""

    jobs: list[Job] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)
    host: list[Node] = field(default_factory=list)


class Plan:
    """A graph's work on a device. ``watched`` values lie as the graph describes them, and come back.

    ``refuses`` says why a launch cannot run, or None; ``chosen`` picks an operator's kernels. ``skipped`` are the nodes
    that others compute as well, by the number of the node that does; ``why_host`` says why a node runs on the host.
    """

    def __init__(
        self,
        graph: Graph,
        watched: Set[int],
        refuses: Any = lambda launch: None,
        chosen: Callable[[Prepared], Prepared] = lambda prepared: prepared,
    ) -> None:
        self.graph, self.watched, self._refuses = graph, frozenset(watched), refuses
        self._chosen = chosen
        self.constants = {t.id: t.data for t in graph.tensors.values() if t.data is not None}
        #: Values that follow from constants alone.
        self.folded: dict[int, np.ndarray] = {}
        self._fold()
        self._readers = readers_of(graph)
        self._makers = {value: node for node in graph.nodes for value in node.outputs}
        self._tables = tables(graph, self.constants)
        self._clamps = dict(self._byte_maps())
        self.descs = {t.id: t.desc for t in graph.tensors.values() if t.desc is not None}
        for value in self._plain():
            self.descs[value] = TensorDesc(self.descs[value].shape, WIDTH_PACKED)
        self.descs |= {value: desc for value, desc in self._worded() if value not in self.descs}
        #: Words of constants that are no operator's, by name.
        self.words: dict[Hashable, np.ndarray] = {}
        self.prepared: dict[int, Prepared] = {}
        self.why_host: dict[int, str] = {}
        self._jobs: dict[int, list[Job]] = {}
        #: By an operator's number: the later node whose output it makes with bounds of its own, and these.
        self.bounded: dict[int, tuple[Node, tuple[int, int]]] = {}
        self.needed = set(graph.outputs) | self.watched
        for node in reversed(graph.nodes):
            if self.needed & set(node.outputs) and node.number not in self._folded_nodes:
                self.needed |= set(self._computed(node))
        #: Values that choose elements on the device: each node that reads one, and of how many elements it chooses.
        self.places: dict[int, list[tuple[Node, int]]] = {}
        self._note_places()
        self.turns = self._turns()
        self.skipped = self._skipped()

    def constant(self, name: Any) -> np.ndarray:
        """The words of what is no value: a table, a number, or an operator's constant."""
        if name in self.words:
            return self.words[name]
        node, argument, *_ = name
        return self.prepared[node].laid_out(argument)

    # --- constants and layouts ----------------------------------------------------------------------------

    def _fold(self) -> None:
        self._folded_nodes: set[int] = set()
        for node in self.graph.nodes:
            size = sum(self.graph.tensors[value].nbytes for value in node.outputs)
            if not node.is_float or size > MOST_FOLDED:
                continue
            known = self.constants
            if node.name.split(".")[1] in SHAPED and [*refs(node.args)] == [*refs(node.args[:1])]:
                tensor = self.graph.tensors[node.args[0].id]  # only its shape counts
                known = {tensor.id: np.broadcast_to(tensor.dtype.type(0), tensor.shape)}
            if not set(refs(node.args)) <= known.keys():
                continue
            try:
                if find(node.name, str(node)).row is None:
                    continue
                made = results(self.graph, node, known)
            except RefsimError:  # it is raised when the node runs
                continue
            self._folded_nodes.add(node.number)
            self.folded |= made
            self.constants |= made

    def _worded(self) -> Iterator[tuple[int, TensorDesc]]:
        """Truth values and int32 without a layout of their own: a word each, in logical order."""
        for tensor in self.graph.tensors.values():
            if (
                tensor.desc is None
                and tensor.dtype in WORDS
                and tensor.data is None
                and 0 not in tensor.shape
            ):
                try:
                    yield tensor.id, TensorDesc(tensor.shape or (1,), WIDTH_PACKED, "int32")
                except RefsimError:  # too many dims or bytes: the host has it
                    continue

    def _note_places(self) -> None:
        for number, jobs in self._jobs.items():
            for job in jobs:
                length = float_kernels.chosen_among(job.launch)
                if length is not None and isinstance(places := job.inputs[1], int):
                    self.places.setdefault(places, []).append((self.graph.nodes[number], length))

    def _plain(self) -> Iterator[int]:
        """Floats that come in or go out and that nobody watches: they lie as the caller's arrays do."""
        readers, makers = self._readers, self._makers

        def free(node: Node, *families: Family) -> bool:
            return node.is_float or (node.call is not None and node.call.op.family in families)

        for value in {*self.graph.inputs, *self.graph.outputs} - self.watched:
            if value not in self.descs or self.descs[value].dtype != "float32" or value in self.constants:
                continue
            made_free = value not in makers or free(makers[value], Family.DEQUANTIZE)
            if made_free and all(free(node, *QUANTIZERS[:1]) for node in readers[value]):
                yield value

    # --- nodes --------------------------------------------------------------------------------------------

    def _computed(self, node: Node) -> set[int]:
        """The values that a node's outputs are made of; its jobs are noted, or that it has none."""
        read = {*node.inputs.values()} if node.prepared is not None else {*refs(node.args)}
        there = read <= self.watched | self.constants.keys()
        if not there and (found := self._with_bounds(node)) is not None:
            maker, bounds = found
            self.bounded[maker.number] = node, bounds
            return {*maker.outputs}
        if not there and (jobs := self._looked_up(node)):
            self._jobs[node.number] = jobs
            return {job.inputs[0] for job in jobs}  # type: ignore[misc]
        if node.prepared is not None:
            self._jobs[node.number] = list(self._dispatched(node))
            return read
        if node.is_float:
            site = Site(self.graph, node, self.descs, self.constants, frozenset(self.needed))
            made = float_kernels.launches(site)
            refused = (
                made
                if isinstance(made, str)
                else next(filter(None, map(self._refuses, (m[0] for m in made))), None)
            )
            if refused is None:
                self._jobs[node.number] = [
                    Job(launch, tuple(map(self._named, (x.key for x in inputs))), out.key, node)
                    for launch, inputs, out in made
                ]
                return read - self.constants.keys()
            if jobs := self._looked_up(node):
                self._jobs[node.number] = jobs
                return {job.inputs[0] for job in jobs}  # type: ignore[misc]
            self.why_host[node.number] = refused
        else:
            self.why_host[node.number] = "shapes that its kernel does not take"
        return read - self.constants.keys()

    def _with_bounds(self, node: Node) -> tuple[Node, tuple[int, int]] | None:
        """The operator whose own bounds do what this node and all between them do, and these bounds, if they can.

        An operator with bounds gives min(max(q, least), most) of the bytes q that it gives without. Nobody else may see
        the values between, and nobody the padding, which would be the operator's.
        """
        call, (value, *_) = node.call, node.outputs
        table = self._clamps.get(value) or (self._tables.get(value) if _quantizes(node) else None)
        maker = None if table is None else self._makers.get(table.source)
        made = None if maker is None else maker.call
        if call is None or table is None or maker is None or made is None or not made.op.bounded:
            return None
        bounds = int(table.values.min()), int(table.values.max())
        if not np.array_equal(table.values, np.clip(BYTES, *bounds)):
            return None
        layout, seen = self.descs[value].layout, {*self.watched, *self.graph.outputs}
        same_way = not made.op.sync or layout.packed_dim_info == made.out.layout.packed_dim_info
        if layout not in made.op.output.layouts or not same_way or value in seen:
            return None
        if any(reader.call is None or reader.call.padding.copied for reader in self._readers[value]):
            return None
        between = table.source
        while between != value:
            (reader, *others) = self._readers[between]
            if others or between in seen:
                return None
            between = reader.outputs[0]
        return maker, bounds

    def _byte_maps(self) -> Iterator[tuple[int, ByteTable]]:
        """What operators make of each byte that work on the bytes of one tensor, one by one: a relu."""
        for node in self.graph.nodes:
            if node.call is not None and node.call.op.family is Family.ELEMENTWISE and len(node.inputs) == 1:
                (x,) = node.inputs.values()
                yield node.outputs[0], ByteTable(x, quantized(node, BYTES), frozenset([node.number]))

    def _looked_up(self, node: Node) -> list[Job]:
        """The job that looks a node's output up, if that follows from single bytes."""
        (value, *_) = node.outputs
        if value not in self._tables:
            return []
        table, call = self._tables[value], node.call
        if node.is_float and table.values.dtype == np.float32:
            x, out = self.descs[table.source], self.descs[value]
            return [self._lookup(node, values_launch(x, out), table, table.values.view(np.int32))]
        if call is not None and call.op.family is Family.QUANTIZE:
            words = table.values.view(np.uint8).astype(np.int32)
            launch = bytes_launch(self.descs[table.source], self.descs[value], call.padding.lane.value)
            return [self._lookup(node, launch, table, words)]
        return []

    def _lookup(self, node: Node, launch: Launch, table: ByteTable, words: np.ndarray) -> Job:
        name = ("table", node.number)
        self.words[name] = words
        return Job(launch, (table.source, name), node.outputs[0], node)

    def _dispatched(self, node: Node) -> Iterator[Job]:
        """The dispatches of a q8ta operator, of tensors as they lie here."""
        assert node.prepared is not None
        prepared, call = node.prepared, node.prepared.call
        descs = {name: self.descs.get(value, call.descs[name]) for name, value in node.inputs.items()}
        last, bounds = self.bounded.get(node.number, (node, None))
        out = self.descs[last.outputs[0]]
        if last is not node or descs != dict(call.descs) or out != call.out:
            shaped = {name: replace(call.descs[name], layout=desc.layout) for name, desc in descs.items()}
            out = replace(call.out, layout=out.layout)
            prepared = Prepared(replace(call, descs=shaped, out=out, bounds=bounds))
        prepared = self.prepared[node.number] = self._chosen(prepared)
        names: dict[str, Hashable] = dict(node.inputs)
        form = ("bounded",) if last is not node else ()  # another session may have the operator without
        names |= {name: (node.number, name, *form) for name in prepared.constants}
        for step in prepared.dispatches:
            final = step is prepared.dispatches[-1]
            output = last.outputs[0] if final else ("between", node.number, step.output)
            yield Job(step.launch, tuple(names[name] for name in step.inputs), output, node)
            names[step.output] = output

    def _named(self, key: Hashable) -> Hashable:
        """A tensor among a float operator's arguments; the words of a constant are kept under its name."""
        if isinstance(key, Number):
            self.words[key] = np.array([key.value], np.float32).view(np.int32)
        elif key in self.constants:
            name = ("constant", key)
            whole = self.graph.tensors[key].dtype in WORDS  # type: ignore[index]
            data = np.ascontiguousarray(self.constants[key], np.int32 if whole else np.float32)  # type: ignore[index]
            self.words[name] = data.reshape(-1).view(np.int32)
            return name
        return key

    # --- order --------------------------------------------------------------------------------------------

    def _turns(self) -> list[Turn]:
        """Each job as early as the host lets it be, each node of the host as early as the device lets it be."""
        turns: dict[int, Turn] = defaultdict(Turn)
        made: dict[int, int] = {}  # by value: the turn in which the device makes it
        told: dict[int, int] = {}  # by value: the turn in which the host makes it
        brought = self.watched | set(self.graph.outputs) | self.places.keys()
        for node in self.graph.nodes:
            if jobs := self._jobs.get(node.number):
                read = [value for job in jobs for value in job.inputs if isinstance(value, int)]
                turn = max((made.get(v, told.get(v, -1) + 1) for v in read), default=0)
                turns[turn].jobs += jobs
                made |= dict.fromkeys((job.output for job in jobs if isinstance(job.output, int)), turn)
            elif node.number in self.why_host:
                turn = max((made.get(v, told.get(v, 0)) for v in node.reads), default=0)
                turns[turn].host.append(node)
                told |= dict.fromkeys(node.outputs, turn)
                brought |= set(node.reads)
        for value, turn in made.items():
            if value in brought:
                turns[turn].fetched.append(value)
        return [turns[number] for number in range(max(turns, default=-1) + 1)]

    def _skipped(self) -> dict[int, list[Node]]:
        """The nodes that run nowhere but whose result a later node has in it, by that node's number."""
        seen = {*self._jobs, *self.why_host, *self._folded_nodes}
        found: dict[int, list[Node]] = {}

        def walk(node: Node, to: list[Node]) -> None:
            for value in node.reads:
                before = self._makers.get(value)
                if before is not None and before.number not in seen:
                    seen.add(before.number)
                    to.append(before)
                    walk(before, to)

        for number in sorted(self._jobs):
            walk(self.graph.nodes[number], found.setdefault(number, []))
        return {number: sorted(nodes, key=lambda node: node.number) for number, nodes in found.items()}


def _quantizes(node: Node) -> bool:
    return node.call is not None and node.call.op.family is Family.QUANTIZE


# --- launches of what follows from single bytes (refsim.graph.bytewise) ------------------------------------


def bytes_launch(x: TensorDesc, out: TensorDesc, padding: int) -> Launch:
    """A byte for each byte; ``padding`` is what the output's own operator leaves beyond the elements."""
    return _launch("float/bytes", x, out, PADDING=padding)


def values_launch(x: TensorDesc, out: TensorDesc) -> Launch:
    """A float for each byte."""
    return _launch("float/values", x, out)


def _launch(shader: str, x: TensorDesc, out: TensorDesc, **values: object) -> Launch:
    push, spec = ROWS[shader]
    tensors = {"x": x, "out": out}
    size, local, tile = elementwise.tiled(out, [x])
    return Launch(shader, out, spec.pack(tensors), push.pack(tensors, **values), size, local, tile)


__all__ = ["Job", "Plan", "Turn"]

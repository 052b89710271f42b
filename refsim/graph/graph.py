"""A delegate's graph, ready to run: tensors with their layouts, and nodes in the order of execution.

A node is either a q8ta operator, bound and checked as a `Call`, or a float operator that is left to the bridge of
refsim.aten. `refsim.graph.build` makes a graph from a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from refsim.aten import bridge
from refsim.aten.row import Place
from refsim.core.buffer import same_shape
from refsim.core.counted import counted
from refsim.core.errors import GraphError, ShapeError
from refsim.core.layout import Layout, W
from refsim.core.resize import FIXED, Resize
from refsim.core.tensor import TensorDesc
from refsim.ops.base.meaning import Meaning
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call
from refsim.ops.base.target import Target
from refsim.ops.flat.base import FlatMeaning
from refsim.ops.flat.call import of_meaning


@dataclass(frozen=True)
class Node:
    """One operator of a graph.

    ``args`` are the arguments in serialized order without the outputs: tensors and lists of tensors as
    `Ref`, the rest as plain values. ``prepared`` is there for a q8ta operator, None for a float one; ``meaning`` for a
    q8ta operator on shapes that its kernels do not take. GraphError if an output is not the number of a value.
    """

    number: int
    node_id: int
    name: str
    args: tuple[Any, ...]
    outputs: tuple[int, ...]
    prepared: Prepared | None = None
    inputs: dict[str, int] = field(default_factory=dict)  # of a q8ta operator: argument name -> value id
    meaning: Meaning | FlatMeaning | None = None
    # of a q8ta operator: some of its tensors lie in buffers on the device, not in textures
    buffers: bool = False
    # of a q8ta operator: what else is odd about its arguments; of a float one: what upstream gets wrong
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for output in self.outputs:
            if not isinstance(output, int):
                where = f"node {self.number} {self.name}"
                raise GraphError(where, "an output is no value", got=output, need="its number")

    @property
    def reads(self) -> tuple[int, ...]:
        """Ids of the values that it reads, each once: the inputs of its call, then the tensors among its arguments."""
        return tuple(dict.fromkeys((*self.inputs.values(), *refs(self.args))))

    @property
    def is_float(self) -> bool:
        """Whether it is an operator of refsim.aten."""
        return self.prepared is None and self.meaning is None

    @property
    def call(self) -> Call | None:
        return None if self.prepared is None else self.prepared.call

    @property
    def upstream(self) -> str | None:
        """What upstream's kernel is known to get wrong here; None if nothing is."""
        said = [] if self.meaning is None else [self.meaning.upstream or ""]
        if self.call is not None:
            said = [row.note for row in self.call.defects if not (row.textures and self.buffers)]
        return "; ".join(filter(None, (*said, *self.notes))) or None

    @property
    def first_only(self) -> int | None:
        """Where the runtime computes only the first of what lies along the outer dims: how many others there are."""
        held = self.call or self.meaning
        if not isinstance(held, Call | Meaning):
            return None
        rows = held.op.defects_on(held.target)
        return next((row.inner for row in rows if row.inner and not (row.textures and self.buffers)), None)

    @property
    def operator(self) -> str:
        """``q8ta_add``; for a float operator, its name without the parts that are always the same."""
        held = self.call or self.meaning
        return held.op.name if held else self.name.removesuffix(".default")

    def __str__(self) -> str:
        return f"node {self.number} {self.name}"


@dataclass(frozen=True)
class Ref:
    """A tensor argument: the id of the value that holds it."""

    id: int


@dataclass(frozen=True)
class Tensor:
    """A tensor of the graph. ``desc`` describes its buffer; None if it has none.

    It has one if it is int8 in a packed layout, float32 in another layout, or int32 that a kernel reads as indices. A
    tensor without elements has none, such as the two further results of a batch norm.
    """

    id: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    layout: Layout | None
    mem_obj_id: int = -1
    data: np.ndarray | None = None
    # in a buffer on the device, not in a texture; float operators add in another order there
    buffer: bool = False
    index: bool = False  # int32 that a kernel reads as indices

    @property
    def desc(self) -> TensorDesc | None:
        if self.layout is None:
            return None
        dtype = "int8" if self.layout.packed_int8 else "int32" if self.index else "float32"
        if self.dtype != dtype or 0 in self.shape:
            return None
        return TensorDesc(self.shape or (1,), self.layout, dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of its buffer, or of its elements where it has none."""
        return self.desc.nbytes if self.desc is not None else prod(self.shape) * self.dtype.itemsize

    def typed(self, array: np.ndarray) -> np.ndarray:
        """An array in the tensor's dtype; NaN and what is out of range have a value there, whatever it is."""
        with np.errstate(invalid="ignore", over="ignore"):
            return np.asarray(array, self.dtype, order="C")


@dataclass(frozen=True)
class Graph:
    """One delegate. ``tensors`` by value id; ``nodes`` in execution order."""

    where: str
    tensors: dict[int, Tensor]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    target: Target
    #: the graph at the bound, if this is a copy at other shapes: executors share memory and constants between them
    bound: Graph | None = field(default=None, compare=False, repr=False)

    def __repr__(self) -> str:
        held = f"{counted(len(self.nodes), 'operator')}, {counted(len(self.tensors), 'tensor')}"
        return f"Graph({self.where!r}, {held})"

    @property
    def root(self) -> Graph:
        """The graph at the bound."""
        return self.bound or self

    def stems_from(self, graph: Graph) -> bool:
        """Whether it is this graph, or a copy of it at other shapes."""
        return self is graph or self.bound is graph

    def writer(self, number: int) -> Node:
        """The node of this number that writes a value."""
        return next(node for node in self.nodes if node.number == number and node.outputs)

    def check_count(self, inputs: Sequence[object]) -> None:
        """ShapeError unless there are as many inputs as the graph has."""
        if len(inputs) != len(self.inputs):
            raise ShapeError(self.where, "wrong number of inputs", got=len(inputs), need=len(self.inputs))

    def check_shape(self, value: int, shape: tuple[int, ...], where: str = "") -> None:
        """ShapeError unless a value has the shape that the graph declares."""
        same_shape(where or self.where, f"value {value}", shape, self.tensors[value].shape)

    def place(self, node: Node) -> Place:
        """Where and how a float operator computes: as its first tensor lies, and as the target's device does."""
        first = next((self.tensors[n] for n in refs(node.args) if n in self.tensors), None)
        packed = W if first is None or first.layout is None else first.layout.inner
        buffer = first is not None and first.buffer and not self.target.runtime.flat
        return Place(packed, buffer, self.target.profile, self.target.mali, self.target.runtime.flat)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all values that a run makes or is given."""
        used = {value for node in self.nodes for value in node.outputs} | set(self.inputs)
        return sum(self.tensors[value].nbytes for value in used)

    def asked(self, node: Node, flat: bool = False) -> Call | None:
        """The call that kernels of an executor's own may compute; None if there is none. ``flat``: on flat tensors."""
        if node.prepared is not None:
            return node.call
        meaning = node.meaning
        out = self.tensors[node.outputs[0]].desc
        if not flat or not isinstance(meaning, FlatMeaning) or meaning.output or out is None:
            return None
        return of_meaning(meaning, node.args, self.tensors, out)

    def inputs_of(self, node: Node) -> dict[str, int]:
        """The tensors that a node reads, by the arguments' names of its operator."""
        if not isinstance(node.meaning, FlatMeaning):
            return node.inputs
        takes = zip(node.meaning.flat.takes, node.meaning.op.args, strict=False)
        names = {name: arg.name for (name, _), arg in takes}
        return {names[name]: value for name, value in node.inputs.items()}

    def resize(self, node: Node) -> Resize | None:
        """What the runtime gets wrong about the shape of a node's output where that is not the bound's; None if
        nothing."""
        runtime = self.target.runtime
        if runtime.fixes(node.name, len(self.tensors[node.outputs[0]].shape)):
            return FIXED
        if runtime.flat:  # what else is known, ET-VK does
            return None
        held = node.call or node.meaning
        if held is not None:
            shapes = [self.tensors[value].shape for value in node.inputs.values()]
            found = held.op.upstream.resize
            return found if found is not None and found.applies(*shapes) else None
        args = [
            self.tensors[a.id].shape if isinstance(a, Ref) and a.id in self.tensors else a for a in node.args
        ]
        return bridge.resize(node.name, args)

    def misshaped(self) -> Iterator[tuple[Node, Resize]]:
        """The nodes of a copy whose output the runtime gives another shape than the operator means, or none at all.

        Those are left out of whose outputs everything that reads them takes the first elements, which are right.
        """
        for node in self.nodes if self.bound is not None else ():
            found = self.resize(node)
            if found is None:
                continue
            seen = node.outputs if found.meant else (*node.outputs, *node.reads)
            if any(self._misread(value, found) for value in seen):
                yield node, found

    def _misread(self, value: int, resize: Resize) -> bool:
        """Whether somebody sees that a value keeps sizes of the bound."""
        bound, meant = self.root.tensors[value].shape, self.tensors[value].shape
        if not resize.meant:
            return bound != meant
        if not resize.wrong(bound, meant):
            return False
        first = next(dim for dim, pair in enumerate(zip(bound, meant, strict=True)) if pair[0] != pair[1])
        in_front = resize.stops or value in self.outputs or any(size != 1 for size in meant[:first])
        readers = (node for node in self.nodes if value in node.reads)
        return in_front or not all(bridge.takes_prefix(node.name) for node in readers)

    def q8ta_nodes(self) -> Iterator[Node]:
        return (node for node in self.nodes if node.prepared is not None)


def refs(args: Any) -> Iterator[int]:
    """Ids of the tensors among arguments, those in lists included."""
    for arg in args:
        if isinstance(arg, Ref):
            yield arg.id
        elif isinstance(arg, tuple):
            yield from refs(arg)

"""A chain of the corpus: a small graph whose operators an executor may compute together, as data and as a graph.

The first value is the float input. A node is an operator of `refsim.ops`, written as a case, or a float operator of
`refsim.aten` with its arguments. Its outputs get the next numbers. The digest is that of the graph's outputs, at every
shape that it has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from refsim import aten
from refsim.core.buffer import PackedBuffer
from refsim.core.layout import WIDTH_PACKED, layout
from refsim.core.rng import Rng
from refsim.exec.executor import Definition, Executor, run_graph
from refsim.formats.cases import sha256
from refsim.formats.reading import reading
from refsim.golden.rules import case_name
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.graph.interpreter import Event, Kept, Observer, run_nodes, stored
from refsim.graph.shapes import zeros
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import rounded
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family

#: What stands before the number in the name of a chain, where a case has its operator.
CHAINS = "chains"
Shape = tuple[int, ...]
Quantization = tuple[float, int]
_F32, _INDEX = np.dtype(np.float32), np.dtype(np.int32)


@dataclass(frozen=True)
class Link:
    """One node: ``inputs`` are numbers of values.

    Of an operator of `refsim.ops`: ``params``, the ``layout`` of its output, ``features`` of its constants. Of a float
    operator: ``args`` behind its inputs, and the ``shapes`` of its outputs; all but the first hold indices. ``listed``:
    its inputs are one argument, a list. ``layout``: that of its outputs, if it is not the usual one.
    """

    op: str
    inputs: tuple[int, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    layout: str = ""
    features: Mapping[str, Any] = field(default_factory=dict)
    args: tuple[Any, ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ()
    listed: bool = False

    def as_json(self) -> dict[str, Any]:
        """What it needs, and no more."""
        if self.op in OPS:
            held: dict[str, Any] = {
                "params": dict(self.params),
                "out": self.layout,
                "features": dict(self.features),
            }
        else:
            held = {"args": list(self.args), "shapes": [list(shape) for shape in self.shapes]}
            held |= {"listed": True} if self.listed else {}
            held |= {"out": self.layout} if self.layout else {}
        return {"op": self.op, "in": list(self.inputs), **held}


@dataclass(frozen=True)
class ChainCase:
    """``shape`` of the input, which is float32 and has values from ``low`` to ``high``; the nodes; the outputs.

    ``smaller``: another shape of the input, at which the graph runs in the memory of the first; empty if there is none.
    """

    kind: str
    shape: tuple[int, ...]
    low: float
    high: float
    links: tuple[Link, ...]
    outputs: tuple[int, ...]
    seed: int
    smaller: tuple[int, ...] = ()

    def shapes(self, where: str, target: Target | None = None) -> list[tuple[ChainCase, Graph]]:
        """The chain and its graph, and both at the smaller shape, if it has one."""
        whole = self.graph(where, target)
        if not self.smaller:
            return [(self, whole)]
        small = self.shrunk()
        return [(self, whole), (small, replace(small.graph(where, target), bound=whole))]

    def shrunk(self) -> ChainCase:
        """The chain at its smaller shape. Raises what an operator raises that does not take the sizes."""
        draft = ChainDraft(self.kind, self.smaller, self.seed)
        for link in self.links:
            draft.add(link, len(link.shapes))
        return replace(self, shape=self.smaller, smaller=(), links=tuple(draft.links))

    def graph(self, where: str, target: Target | None = None) -> Graph:
        """The graph, each operator bound to constants of its own seed. Raises what binding a case raises."""
        target = target or Target()
        tensors = [Tensor(0, self.shape, _F32, WIDTH_PACKED)]
        nodes = []
        for number, link in enumerate(self.links):
            node, outs = _linked(number, link, tensors, self.seed, target)
            nodes.append(node)
            tensors += outs
        return Graph(where, dict(enumerate(tensors)), tuple(nodes), (0,), self.outputs, target)

    def data(self, other: bool = False) -> np.ndarray:
        """The values of the input, in each plane around a value of its own; ``other`` ones for a run before."""
        rng = Rng(self.seed ^ other)
        planes = rng.uniform(0.0, 0.4, (*self.shape[:-2], *(1 for _ in self.shape[-2:])))
        drawn = self.low + (self.high - self.low) * (planes + 0.6 * rng.uniform(0.0, 1.0, self.shape))
        return drawn.astype(np.float32)


class ChainDraft:
    """A chain that grows node by node. ``at``: the number of the value that the last node made."""

    def __init__(self, kind: str, shape: Shape, seed: int = 0) -> None:
        self.kind, self.input, self.seed = kind, shape, seed
        self.links: list[Link] = []
        self.tensors = [Tensor(0, shape, _F32, WIDTH_PACKED)]
        self.at, self.low, self.high = 0, 0.0, 0.0

    def grown(self, link: Link, outputs: int | None = None) -> tuple[Link, Node, list[Tensor]]:
        """The next node, of a float operator with the shapes of its first ``outputs`` results, and what it makes.

        Raises what an operator raises that does not take its inputs.
        """
        if link.op not in OPS:
            given = [zeros(self.tensors[value].shape, self.tensors[value].dtype) for value in link.inputs]
            args = [given, *link.args] if link.listed else [*given, *link.args]
            results = aten.find(link.op, CHAINS).outlined(args, CHAINS)
            link = replace(link, shapes=tuple(result.shape for result in results[:outputs]))
        return link, *_linked(len(self.links), link, self.tensors, self.seed, Target())

    def add(self, link: Link, outputs: int | None = None) -> int:
        """Append a node, as `grown` makes it."""
        link, _, outs = self.grown(link, outputs)
        self.links.append(link)
        self.tensors += outs
        self.at = outs[0].id
        return self.at

    def spread(self, q: Quantization) -> None:
        """The input has all values of a quantization, and some beyond the range, to both sides."""
        self.low, self.high = (rounded((steps - q[1]) * q[0]) for steps in (-140, 139))

    def chain(self, *outputs: int) -> ChainCase:
        """All of it, with these outputs."""
        return ChainCase(self.kind, self.input, self.low, self.high, tuple(self.links), outputs, self.seed)


def only(wanted: Callable[[OpSpec], bool]) -> str:
    """The first operator of this kind."""
    return next(name for name, op in OPS.items() if wanted(op))


def of(family: Family) -> str:
    return only(lambda op: op.family is family)


def quantize(value: int, q: Quantization, layout: str) -> Link:
    return Link(of(Family.QUANTIZE), (value,), {"scale": q[0], "zp": q[1]}, layout)


def dequantize(value: int, q: Quantization, layout: str = str(WIDTH_PACKED)) -> Link:
    return Link(of(Family.DEQUANTIZE), (value,), {"scale": q[0], "zp": q[1]}, layout)


def _linked(
    number: int, link: Link, tensors: Sequence[Tensor], seed: int, target: Target
) -> tuple[Node, list[Tensor]]:
    """Node ``number`` of a chain with this seed, which reads some of ``tensors``, and the tensors that it makes."""
    made = _bound if link.op in OPS else _float
    return made(number, link, tensors, seed, target)


def _bound(
    number: int, link: Link, tensors: Sequence[Tensor], seed: int, target: Target
) -> tuple[Node, list[Tensor]]:
    op = OPS[link.op]
    names = [arg.name for arg in op.of_kind(Kind.INPUT)]
    given = {name: tensors[value] for name, value in zip(names, link.inputs, strict=True)}
    inputs = {name: (tensor.shape, str(tensor.layout)) for name, tensor in given.items()}
    case = Case(link.op, dict(link.params), inputs, link.layout, seed + number, dict(link.features))
    call = bind(case, target).call
    out = Tensor(len(tensors), call.out.shape, np.dtype(call.out.dtype), call.out.layout)
    refs = tuple(Ref(value) for value in link.inputs)
    inputs_by_name = dict(zip(names, link.inputs, strict=True))
    return Node(number, number, link.op, refs, (out.id,), Prepared(call), inputs_by_name), [out]


def _float(
    number: int, link: Link, tensors: Sequence[Tensor], seed: int, target: Target
) -> tuple[Node, list[Tensor]]:
    held = layout(link.layout) if link.layout else WIDTH_PACKED
    outs = [
        Tensor(len(tensors) + at, shape, _INDEX if at else _F32, held) for at, shape in enumerate(link.shapes)
    ]
    refs = tuple(Ref(value) for value in link.inputs)
    args = (refs, *link.args) if link.listed else (*refs, *link.args)
    return Node(number, number, link.op, args, tuple(out.id for out in outs)), outs


# --- a line of the corpus --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChainEntry:
    """A chain of the corpus with its number and the digest of its outputs."""

    number: int
    chain: ChainCase
    sha256: str

    @property
    def name(self) -> str:
        return case_name(CHAINS, self.number)

    @property
    def line(self) -> str:
        """One line of JSON."""
        chain = self.chain
        info = {
            "chain": self.number,
            "kind": chain.kind,
            "shape": list(chain.shape),
            "low": chain.low,
            "high": chain.high,
            "nodes": [link.as_json() for link in chain.links],
            "outputs": list(chain.outputs),
            "seed": chain.seed,
            **({"smaller": list(chain.smaller)} if chain.smaller else {}),
            "sha256": self.sha256,
        }
        return json.dumps(info, separators=(",", ":"))


def parse(text: str, where: str) -> ChainEntry:
    """The entry of a line: the inverse of `ChainEntry.line`. FormatError if it is not one."""
    with reading(where, "not a line of chains", f"refsim golden regen {CHAINS} --reason TEXT"):
        info = json.loads(text)
        links = tuple(_link(row) for row in info["nodes"])
        chain = ChainCase(
            str(info["kind"]), tuple(info["shape"]), float(info["low"]), float(info["high"]), links,
            tuple(info["outputs"]), int(info["seed"]), tuple(info.get("smaller", ())),
        )  # fmt: skip
        return ChainEntry(int(info["chain"]), chain, str(info["sha256"]))


def _link(row: Mapping[str, Any]) -> Link:
    inputs = tuple(row["in"])
    if "shapes" in row:
        shapes = tuple(tuple(shape) for shape in row["shapes"])
        listed = bool(row.get("listed", False))
        args = tuple(row["args"])
        return Link(row["op"], inputs, layout=row.get("out", ""), args=args, shapes=shapes, listed=listed)
    params = {k: tuple(v) if isinstance(v, list) else v for k, v in row["params"].items()}
    return Link(row["op"], inputs, params, row["out"], row["features"])


# --- running one -----------------------------------------------------------------------------------------

Values = dict[int, PackedBuffer | np.ndarray]


def defined(graph: Graph, data: np.ndarray) -> tuple[list[np.ndarray], Values]:
    """The outputs by definition, operator by operator, and every value: the input, and those between."""
    (value,) = graph.inputs
    seen = Kept()
    outputs = run_nodes(graph, [data], Definition(), observe=Observer(seen))
    return outputs, {value: stored(graph, value, data, graph.where), **_values(seen)}


def _values(seen: Kept) -> Values:
    return {value: held for (_, value), held in seen.items()}


def digest(outputs: Sequence[np.ndarray]) -> str:
    """SHA-256 of the outputs, one behind the other, in logical order."""
    return sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in outputs))


def outputs_of(chain: ChainCase, graph: Graph, executor: Executor) -> list[np.ndarray]:
    """The outputs on an executor that has already run the graph on other values."""
    run_graph(graph, [chain.data(other=True)], executor)
    return run_graph(graph, [chain.data()], executor)


def watched(chain: ChainCase, graph: Graph, executor: Executor) -> Values:
    """Every value between, of a run that is observed and joins nothing."""
    seen = Kept()
    run_graph(graph, [chain.data()], executor, observe=Observer(seen))
    return _values(seen)


def joined(chain: ChainCase, graph: Graph, executor: Executor, value: int) -> tuple[np.ndarray, Event]:
    """A value as a further output of a run as a whole, and the step that wrote it."""
    cut, steps = replace(graph, outputs=(*graph.outputs, value)), list[Event]()
    observer = Observer(steps.append, lambda delegate, wanted: False)
    run_graph(cut, [chain.data()], executor, observe=observer)
    step = next(event for event in steps if any(value in node.outputs for node in event.nodes))
    return outputs_of(chain, cut, executor)[-1], step

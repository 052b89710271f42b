"""A graph that is drawn node by node: each gets values that there are, and is kept if it can be bound and computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from refsim import aten
from refsim.core.errors import RefsimError
from refsim.core.layout import LAYOUTS, WIDTH_PACKED
from refsim.core.rng import Rng
from refsim.exec.executor import Definition
from refsim.golden.chain import ChainCase, Link, linked
from refsim.golden.chain_draft import Quantization, Shape, of
from refsim.graph.graph import Graph, Tensor
from refsim.graph.interpreter import logical, run_node, stored
from refsim.ops.base.case_rule import ZERO_POINTS, rounded
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family
from refsim.sweep.plan import GRAPHS

#: Elements of a value: enough for several words, rows and tasks.
MOST_ELEMENTS = 12_000


@dataclass(frozen=True)
class DraftValue:
    """A value that nodes may read: its number, its shape and, of int8, its quantization."""

    number: int
    shape: Shape
    q: Quantization | None = None


@dataclass
class GraphDraft:
    """A graph that grows: its nodes, values and what these are by definition."""

    rng: Rng
    seed: int
    shape: Shape
    low: float
    high: float
    links: list[Link] = field(default_factory=list)
    values: list[DraftValue] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._target = Target()
        self._tensors = [Tensor(0, self.shape, np.dtype(np.float32), WIDTH_PACKED)]
        self._graph = Graph(GRAPHS, {}, (), (0,), (), self._target)
        self._graph.tensors[0] = self._tensors[0]
        data = self.chain((0,)).data()
        self._held = {0: stored(self._graph, 0, data, GRAPHS)}
        self.values.append(DraftValue(0, self.shape))

    def add(self, link: Link, q: Quantization | None = None) -> DraftValue | None:
        """A node, if it can be bound and computed; the values that it makes may be read from now on."""
        number = len(self.links)
        try:
            if link.op not in OPS:
                link = self._shaped(link)
            node, outs = linked(number, link, self._tensors, self.seed, self._target)
            if max(prod(out.shape) for out in outs) > MOST_ELEMENTS or not all(out.shape for out in outs):
                return None
            self._graph.tensors.update((out.id, out) for out in outs)
            made = run_node(self._graph, node, self._held, Definition())
        except (RefsimError, ValueError):
            return None
        self.links.append(link)
        self._tensors += outs
        self._held |= made
        self.values.append(DraftValue(outs[0].id, outs[0].shape, q))
        return self.values[-1]

    def _shaped(self, link: Link) -> Link:
        """A float operator with the shapes of its results."""
        args = [logical(self._graph, self._held, value) for value in link.inputs]
        given = [args, *link.args] if link.listed else [*args, *link.args]
        results = aten.find(link.op, GRAPHS).run(given, GRAPHS)
        if results[0].dtype != np.float32 or any(r.dtype.kind != "i" for r in results[1:]):
            raise ValueError("a result of another dtype")
        return replace(link, shapes=tuple(r.shape for r in results))

    def undo(self, links: int) -> None:
        """Back to so many nodes."""
        made = sum(max(1, len(link.shapes)) for link in self.links[:links])
        del self.links[links:], self._tensors[made + 1 :]
        self.values = [value for value in self.values if value.number <= made]

    def real(self, value: DraftValue) -> np.ndarray:
        """What a float value is by definition."""
        held = self._held[value.number]
        return logical(self._graph, {value.number: held}, value.number)

    def layout_of(self, value: DraftValue) -> str:
        return str(self._tensors[value.number].layout)

    def of(self, int8: bool) -> list[DraftValue]:
        return [value for value in self.values if (value.q is not None) == int8]

    def pick(self, values: Sequence[DraftValue]) -> DraftValue:
        """One of these, of the latest mostly."""
        return values[-1] if self.rng.chance(65) else self.rng.choice(values)

    def chain(self, outputs: tuple[int, ...]) -> ChainCase:
        return ChainCase(GRAPHS, self.shape, self.low, self.high, tuple(self.links), outputs, self.seed)


def quantize(draft: GraphDraft, value: DraftValue, q: Quantization | None = None) -> DraftValue | None:
    """To parameters that fit its values, those of another int8 value, or the scale of one and another zero point."""
    rng, known = draft.rng, [v.q for v in draft.values if v.q is not None]
    if q is None and known and rng.chance(40):
        q = rng.choice(known)
        q = q if rng.chance(70) else (q[0], rng.choice(ZERO_POINTS))
    if q is None:
        largest = float(np.abs(draft.real(value)).max())
        if not 1e-6 < largest < 1e6:
            return None
        q = rounded(largest / rng.choice((90.0, 128.0, 250.0))), rng.choice(ZERO_POINTS)
    layouts = [name for name, row in LAYOUTS.items() if row.packed_int8 and not row.is_dynamic]
    layouts += [
        n for n in layouts if LAYOUTS[n].outer_block == 1
    ] * 2  # pixels side by side, as kernels like them
    link = Link(of(Family.QUANTIZE), (value.number,), {"scale": q[0], "zp": q[1]}, rng.choice(layouts))
    return draft.add(link, q)


def dequantize(draft: GraphDraft, value: DraftValue) -> DraftValue | None:
    assert value.q is not None
    params = {"scale": value.q[0], "zp": value.q[1]}
    return draft.add(Link(of(Family.DEQUANTIZE), (value.number,), params, str(WIDTH_PACKED)))

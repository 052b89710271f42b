"""A graph that is drawn node by node: each gets values that there are, and is kept if it can be bound and computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from refsim.core.errors import RefsimError
from refsim.core.layout import LAYOUTS
from refsim.core.rng import Rng
from refsim.exec.executor import Definition
from refsim.golden.chain import ChainDraft, Link, Quantization, Shape, dequantize, of, quantize
from refsim.graph.graph import Graph
from refsim.graph.interpreter import logical, run_node, stored
from refsim.ops.base.arg import Kind
from refsim.ops.base.case_rule import ZERO_POINTS, rounded
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
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


class GraphDraft(ChainDraft):
    """A random graph that grows: its nodes, values and what these are by definition. ``q``: of which its input is."""

    def __init__(self, rng: Rng, seed: int, shape: Shape, q: Quantization) -> None:
        super().__init__(GRAPHS, shape, seed)
        self.rng = rng
        self.spread(q)
        self._graph = Graph(GRAPHS, {0: self.tensors[0]}, (), (0,), (), Target())
        self._held = {0: stored(self._graph, 0, self.chain(0).data(), GRAPHS)}
        self.values = [DraftValue(0, shape)]

    def append(self, link: Link, q: Quantization | None = None) -> DraftValue | None:
        """A node, if it can be bound and computed; the values that it makes may be read from now on."""
        try:
            link, node, outs = self.grown(link)
            if max(prod(out.shape) for out in outs) > MOST_ELEMENTS or not all(out.shape for out in outs):
                return None
            self._graph.tensors.update((out.id, out) for out in outs)
            made = run_node(self._graph, node, self._held, Definition())
        except (RefsimError, ValueError):
            return None
        self.links.append(link)
        self.tensors += outs
        self._held |= made
        self.values.append(DraftValue(outs[0].id, outs[0].shape, q))
        return self.values[-1]

    def undo(self, links: int) -> None:
        """Back to so many nodes."""
        made = sum(max(1, len(link.shapes)) for link in self.links[:links])
        del self.links[links:], self.tensors[made + 1 :]
        self.values = [value for value in self.values if value.number <= made]

    def real(self, value: DraftValue) -> np.ndarray:
        """What a float value is by definition."""
        held = self._held[value.number]
        return logical(self._graph, {value.number: held}, value.number)

    def layout_of(self, value: DraftValue) -> str:
        return str(self.tensors[value.number].layout)

    def of(self, int8: bool) -> list[DraftValue]:
        return [value for value in self.values if (value.q is not None) == int8]

    def pick(self, values: Sequence[DraftValue]) -> DraftValue:
        """One of these, of the latest mostly."""
        return values[-1] if self.rng.chance(65) else self.rng.choice(values)


def quantized(draft: GraphDraft, value: DraftValue, q: Quantization | None = None) -> DraftValue | None:
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
    return draft.append(quantize(value.number, q, rng.choice(layouts)), q)


def dequantized(draft: GraphDraft, value: DraftValue) -> DraftValue | None:
    assert value.q is not None
    return draft.append(dequantize(value.number, value.q))


# --- int8 operators --------------------------------------------------------------------------------------

#: Operators from int8 to int8, as often as they are drawn. Where sizes do not fit, another one is.
PACKED = (
    *(4 * (Family.CONVOLUTION,)), *(3 * (Family.LINEAR,)), *(2 * (Family.ELEMENTWISE,)),
    Family.DEPTHWISE, Family.SHUFFLE, Family.RELAYOUT,
)  # fmt: skip


def _on_bytes(draft: GraphDraft) -> None:
    """One of these that takes the sizes at hand, within a few tries."""
    count = len(draft.links)
    for _ in range(6):
        family = draft.rng.choice(PACKED)
        if _applied(draft, draft.rng.choice([op for op in OPS.values() if op.family is family])):
            return
        draft.undo(count)


def _applied(draft: GraphDraft, op: OpSpec) -> DraftValue | None:
    """An operator of values of one shape, moved to a layout that it takes where they lie in another."""
    rng, int8 = draft.rng, draft.of(int8=True)
    value = draft.pick(int8)
    others = [v for v in int8 if v.shape == value.shape]
    sources = [value, *(rng.choice(others) for _ in op.of_kind(Kind.INPUT)[1:])]
    rows = [[str(row) for row in rows] for rows in op.layouts]
    fit = [row for row in rows if row[:-1] == [draft.layout_of(v) for v in sources]]
    row = rng.choice(fit or rows)
    for at, need in enumerate(row[:-1]):
        if draft.layout_of(sources[at]) != need:
            link = Link(of(Family.RELAYOUT), (sources[at].number,), layout=need)
            if (moved := draft.append(link, sources[at].q)) is None:
                return None
            sources[at] = moved
    q = value.q if op.family is Family.RELAYOUT else _result(draft, op, sources)
    assert q is not None
    params = _params(draft, op, sources, q)
    features: dict[str, Any] = {}
    if any(arg.name == "weight" for arg in op.of_kind(Kind.CONST)):
        features = {"out_channels": _out_channels(rng, op, value.shape, params), "bias": rng.chance(70)}
    return draft.append(Link(op.name, tuple(v.number for v in sources), params, row[-1], features), q)


def _result(draft: GraphDraft, op: OpSpec, sources: Sequence[DraftValue]) -> Quantization:
    """The quantization of a result: of the size of its inputs', larger behind sums of products."""
    rng, scale = draft.rng, max(v.q[0] for v in sources if v.q is not None)
    sums = op.family in (Family.CONVOLUTION, Family.DEPTHWISE, Family.LINEAR)
    most = 30.0 if sums else 2.0
    return rounded(scale * float(rng.uniform(0.4, most, (1,))[0])), rng.choice(ZERO_POINTS)


#: Draws a parameter: from the shape and the quantizations of the inputs, and the quantization of the result.
Param = Callable[[Rng, Shape, Sequence[Quantization], Quantization], Any]


def _side(which: int, part: int) -> Param:
    """The scale or zero point of an input."""
    return lambda rng, shape, sides, q: sides[which][part]


def _pair(low: int, high: int) -> Param:
    return lambda rng, shape, sides, q: (rng.integer(low, high), rng.integer(low, high))


def _groups(rng: Rng, shape: Shape, sides: Sequence[Quantization], q: Quantization) -> int:
    channels = shape[-3] if len(shape) > 2 else 1
    return rng.choice([n for n in (1, 1, 2, 4, channels) if channels % n == 0])


#: What each parameter is drawn from, by its name.
PARAMS: dict[str, Param] = {
    **{
        f"{prefix}_{name}": _side(which, part)
        for prefix, which in (("in", 0), ("a", 0), ("b", 1))
        for part, name in enumerate(("scale", "zp"))
    },
    "out_scale": lambda rng, shape, sides, q: q[0],
    "out_inv_scale": lambda rng, shape, sides, q: rounded(1 / q[0]),
    "out_zp": lambda rng, shape, sides, q: q[1],
    "alpha": lambda rng, shape, sides, q: rng.choice((1.0, 1.0, 0.5, 2.0)),
    "activation": lambda rng, shape, sides, q: rng.choice(("none", "none", "relu")),
    "kernel_size": _pair(1, 3),
    "stride": _pair(1, 2),
    "padding": _pair(0, 1),
    "dilation": lambda rng, shape, sides, q: (1, 1) if rng.chance(75) else (rng.integer(1, 2), 2),
    "output_padding": lambda rng, shape, sides, q: (0, 0),
    "groups": _groups,
    "upscale": lambda rng, shape, sides, q: rng.choice((2, 2, 3)),
}


def _params(draft: GraphDraft, op: OpSpec, sources: Sequence[DraftValue], q: Quantization) -> dict[str, Any]:
    """Drawn by name; windows of one tap, and groups as an operator has them, where it says so."""
    shape, sides = sources[0].shape, [source.q for source in sources if source.q is not None]
    names = [arg.name for arg in op.of_kind(Kind.PARAM) if arg.name in PARAMS]
    found: dict[str, Any] = {name: PARAMS[name](draft.rng, shape, sides, q) for name in names}
    if op.one_tap:
        found |= {"kernel_size": (1, 1), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    if "output_padding" in found:
        found["dilation"] = (1, 1)
    if op.family is Family.DEPTHWISE and len(shape) > 2:
        found["groups"] = shape[-3]
    return found


def _out_channels(rng: Rng, op: OpSpec, shape: Shape, params: Mapping[str, Any]) -> int:
    groups = int(params.get("groups", 1))
    if op.family is Family.DEPTHWISE:
        return groups
    return groups * 4 * rng.integer(1, 4) if groups > 1 else rng.choice((1, 3, 4, 7, 8, 16, 20, 33, 64))


# --- float operators -------------------------------------------------------------------------------------

#: From a value's shape to arguments behind the value. What does not fit is refused when it is computed.
Args = Callable[[Rng, Shape], tuple[Any, ...]]


def _window(rng: Rng, shape: Shape) -> tuple[Any, ...]:
    kernel = [rng.integer(1, 3), rng.integer(1, 3)]
    kernel = list(shape[-2:]) if rng.chance(20) else kernel
    stride = kernel if rng.chance(50) else [rng.integer(1, 2), rng.integer(1, 2)]
    return kernel, stride, [rng.integer(0, 1) if k > 1 else 0 for k in kernel]


def _viewed(rng: Rng, shape: Shape) -> tuple[Any, ...]:
    """Dims merged, split, added or dropped."""
    n, rest = shape[0], prod(shape[1:])
    ways = [
        (n, rest), (prod(shape),), (1, *shape), shape[1:] if n == 1 and len(shape) > 1 else shape,
        (*shape[:-1], 1, shape[-1]), (*shape[:-2], prod(shape[-2:])), (prod(shape[:-1]), shape[-1]), (n, rest, 1, 1),
    ]  # fmt: skip
    return ([*rng.choice(ways)],)


def _dims(rng: Rng, shape: Shape) -> list[int]:
    pairs = [[2, 3], [-1, -2], [-1], [1], [-2], [3, 2]]
    return rng.choice(pairs)


def _permuted(rng: Rng, shape: Shape) -> tuple[Any, ...]:
    order = list(range(len(shape)))
    for at in range(len(order) - 1):
        other = rng.integer(at, len(order) - 1)
        order[at], order[other] = order[other], order[at]
    return (order,)


def _sliced(rng: Rng, shape: Shape) -> tuple[Any, ...]:
    dim = rng.integer(0, len(shape) - 1)
    start = rng.integer(0, shape[dim] - 1)
    return dim, start, rng.integer(start + 1, shape[dim]), rng.integer(1, 2)


def _bounds(rng: Rng, shape: Shape) -> tuple[Any, ...]:
    low = rng.choice((0.0, -1.0, -0.37, -1e9))
    return low, rng.choice((6.0, 1.0, 0.83, 1e9))


def _none(rng: Rng, shape: Shape) -> tuple[Any, ...]:
    return ()


def _dim(rng: Rng, shape: Shape) -> tuple[Any, ...]:
    return (rng.integer(-len(shape), len(shape) - 1),)


#: Of one value.
ONE: dict[str, Args] = {
    "aten.relu.default": _none,
    "aten.hardtanh.default": _bounds,
    "aten.clamp.default": _bounds,
    "aten.hardswish.default": _none,
    "aten.hardsigmoid.default": _none,
    "aten.sigmoid.default": _none,
    "aten.abs.default": _none,
    "aten.neg.default": _none,
    "aten.leaky_relu.default": lambda rng, shape: (0.01,),
    "aten.max_pool2d_with_indices.default": lambda rng, shape: (*_window(rng, shape), [1, 1], rng.chance(30)),
    "aten.avg_pool2d.default": lambda rng, shape: (*_window(rng, shape), rng.chance(30), rng.chance(50)),
    "aten.mean.dim": lambda rng, shape: (_dims(rng, shape), rng.chance(60)),
    "aten.sum.dim_IntList": lambda rng, shape: (_dims(rng, shape), rng.chance(60)),
    "aten.amax.default": lambda rng, shape: ([-1], rng.chance(60)),
    "aten.view_copy.default": _viewed,
    "aten.permute_copy.default": _permuted,
    "aten.slice_copy.Tensor": _sliced,
    "aten.flip.default": lambda rng, shape: ([rng.integer(0, len(shape) - 1)],),
    "aten.unsqueeze_copy.default": _dim,
    "aten.squeeze_copy.dims": lambda rng, shape: ([rng.integer(0, len(shape) - 1)],),
    "aten.constant_pad_nd.default": lambda rng, shape: ([rng.integer(0, 2) for _ in range(4)], 0.25),
    "aten._softmax.default": lambda rng, shape: (rng.integer(-len(shape), -1), False),
    "aten.upsample_nearest2d.vec": lambda rng, shape: ([2 * s for s in shape[-2:]], None),
    "aten.upsample_bilinear2d.vec": lambda rng, shape: ([2 * s for s in shape[-2:]], rng.chance(50), None),
    "aten.mul.Scalar": lambda rng, shape: (rng.choice((0.5, -1.25, 1 / 6)),),
    "aten.add.Scalar": lambda rng, shape: (rng.choice((3.0, -0.125)),),
    "aten.div.Scalar": lambda rng, shape: (6.0,),
}

#: As often as they are drawn: what executors join more often than the rest.
NAMES = (
    *ONE, *(4 * ("aten.max_pool2d_with_indices.default", "aten.mean.dim", "aten.view_copy.default")),
    *(2 * ("aten.hardtanh.default", "aten.relu.default", "aten.avg_pool2d.default", "aten.hardswish.default")),
)  # fmt: skip

#: Of two values of one shape, or of which one is repeated.
TWO: dict[str, tuple[tuple[Any, ...], ...]] = {
    "aten.add.Tensor": ((), (), (1,), (2,), (0.5,)),
    "aten.sub.Tensor": ((), (2,)),
    "aten.mul.Tensor": ((),),
    "aten.maximum.default": ((),),
    "aten.minimum.default": ((),),
}


def _float(draft: GraphDraft) -> DraftValue:
    """Mostly what a dequantize gives here, so that nobody else reads it."""
    made = dequantized(draft, draft.pick(draft.of(int8=True))) if draft.rng.chance(75) else None
    return made or draft.pick(draft.of(int8=False))


def _closed(draft: GraphDraft, made: DraftValue | None, before: int) -> None:
    """Quantized again, mostly; what did not come about goes with all that was made for it."""
    if made is None:
        draft.undo(before)
    elif draft.rng.chance(80):
        quantized(draft, made)


def _on_floats(draft: GraphDraft) -> None:
    """One to three operators of one value each."""
    rng, before = draft.rng, len(draft.links)
    value = _float(draft)
    made: DraftValue | None = None
    while made is None or rng.chance(40):
        name = rng.choice(NAMES)
        made = draft.append(Link(name, (value.number,), args=ONE[name](rng, value.shape)))
        if made is None:
            break
        value = made
    _closed(draft, made, before)


def _on_two(draft: GraphDraft) -> None:
    rng, before = draft.rng, len(draft.links)
    value, other = _float(draft), _float(draft)
    fits = [v for v in draft.of(int8=False) if _repeats(v.shape, value.shape)]
    other = other if other in fits else rng.choice(fits)
    name = rng.choice(list(TWO))
    sides = [value.number, other.number]
    made = draft.append(
        Link(name, tuple(sides if rng.chance(70) else sides[::-1]), args=rng.choice(TWO[name]))
    )
    _closed(draft, made, before)


def _repeats(one: Shape, other: Shape) -> bool:
    """Whether a shape may stand where another is wanted."""
    try:
        return np.broadcast_shapes(one, other) == other
    except ValueError:
        return False


def _joined(draft: GraphDraft) -> None:
    """Values behind one another along a dim in which their sizes may differ."""
    rng, before = draft.rng, len(draft.links)
    value, _ = _float(draft), _float(draft)
    dim = rng.integer(0, len(value.shape) - 1)

    def rest(shape: Shape) -> Shape:
        return (*shape[:dim], 0, *shape[dim + 1 :])

    floats = draft.of(int8=False)
    fits = [v for v in floats if len(v.shape) == len(value.shape) and rest(v.shape) == rest(value.shape)]
    others = [rng.choice(fits).number for _ in range(rng.integer(1, 2))]
    _closed(
        draft,
        draft.append(Link("aten.cat.default", (value.number, *others), args=(dim,), listed=True)),
        before,
    )


def _requantized(draft: GraphDraft) -> None:
    """Nothing between a dequantize and a quantize, or a float once more."""
    quantized(draft, _float(draft))


#: What a step of a draw does, as often as it stands here.
MENU: tuple[Callable[[GraphDraft], None], ...] = (
    *(5 * (_on_bytes,)), *(5 * (_on_floats,)), *(2 * (_on_two,)), _joined, _requantized,
)  # fmt: skip

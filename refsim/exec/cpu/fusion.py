"""A dequantize, float operators and a quantize, fused into one native step that never leaves the bytes.

Operators on single elements are a table of 256 bytes, which refsim.graph.bytewise finds and makes by their definitions.
Poolings have kernels of their own, and so have clamps on processors that look up one byte at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refsim import aten
from refsim.aten.bridge import whole
from refsim.core.buffer import offsets
from refsim.core.errors import RefsimError
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu.elementwise import prepack as elementwise
from refsim.exec.cpu.elementwise.prepack import UNBOUNDED
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.job import Job
from refsim.exec.cpu.pool import prepack as pool
from refsim.exec.cpu.routes import EMULATED, LINEAR, VIA_NHWC, choose
from refsim.exec.cpu.step import PlanStep, value_name
from refsim.graph.bytewise import ByteTable
from refsim.graph.graph import Graph, Node, Ref, refs
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import Family

#: Float operators between a dequantize and a quantize that clamp, and the bounds that their arguments mean.
CLAMPS: dict[str, Callable[[Sequence[Any]], tuple[float, float]]] = {
    "aten.hardtanh.default": lambda args: (args[0] if args else -1.0, args[1] if len(args) > 1 else 1.0),
    "aten.relu.default": lambda args: (0.0, float("inf")),
}


#: Poolings between a dequantize and a quantize: the jobs of all three, or why there are none.
POOLS: dict[str, Callable[..., tuple[Job, ...] | str]] = {
    "aten.max_pool2d_with_indices.default": pool.maxpool,
    "aten.mean.dim": pool.mean,
}
VIEW = "aten.view_copy.default"
OF_ONE = {*CLAMPS, *POOLS, VIEW}
#: Float operators on two tensors that are computed on bytes, and whether they multiply.
OF_TWO = {"aten.mul.Tensor": True, "aten.add.Tensor": False}


@dataclass(frozen=True)
class Fusion:
    """Nodes that may be one step: dequantizes (``first``), float operators on what they give (``between``), a quantize.

    ``readers`` counts who reads a value, callers included; ``pinned`` are the values whose buffers somebody wants.
    """

    graph: Graph
    first: tuple[Node, ...]
    between: tuple[Node, ...]
    last: Node
    descs: Mapping[int, TensorDesc]
    readers: Counter[int]
    pinned: Set[int]

    @property
    def made(self) -> list[int]:
        """The first results of the float operators, which the step does not make."""
        return [node.outputs[0] for node in self.between]

    @property
    def alone(self) -> list[Node]:
        """The dequantizes that only this step reads."""
        free = (node for node in self.first if self.readers[node.outputs[0]] == 1)
        return [node for node in free if node.outputs[0] not in self.pinned]

    @property
    def pooled(self) -> TensorDesc:
        """What the operators before a view give, as a pooling's kernel would write it."""
        source, views = self.descs[self.first[0].inputs["x"]], [n.name == VIEW for n in self.between]
        if not any(views):
            return self.descs[self.last.outputs[0]]
        return TensorDesc(self.graph.tensors[self.made[views.index(True) - 1]].shape, source.layout)


@dataclass(frozen=True)
class Precondition:
    """What must hold for nodes to be one step, and what is so where it does not hold."""

    unless: str
    holds: Callable[[Fusion], bool]


#: All that makes one step of nodes compute other bytes than the nodes do one by one. What is left to kernels is which
#: layouts and windows they take. tests/exec/cpu/test_fusion.py drops each of these, and sees wrong outputs.
PRECONDITIONS = (
    Precondition("others read a value between", lambda f: all(f.readers[v] == 1 for v in f.made)),
    Precondition(
        "others read a further result",
        lambda f: not any(f.readers[v] for node in f.between for v in node.outputs[1:]),
    ),
    Precondition(
        "a value between is watched",
        lambda f: not any(f.pinned & set(node.outputs) for node in (*f.between, f.last)),
    ),
    Precondition(
        "a value between is no float32",
        lambda f: all(f.graph.tensors[value].dtype == np.float32 for value in f.made),
    ),
    Precondition(
        "the profile is not canonical",
        lambda f: not any(n.call.target.profile.flags for n in f.first if n.call is not None),
    ),
    Precondition(
        "the second term is multiplied", lambda f: len(f.first) < 2 or _others(f.between[0]) in ([], [1])
    ),
    Precondition(
        "an operator refuses its arguments, or gives another shape",
        lambda f: all(_as_declared(f.graph, node) for node in f.between),
    ),
    Precondition("the view moves bytes", lambda f: _in_place(f.pooled, f.descs[f.last.outputs[0]])),
)


def why_not(found: Fusion) -> str | None:
    """The first precondition that does not hold, or None."""
    return next((row.unless for row in PRECONDITIONS if not row.holds(found)), None)


def _others(node: Node) -> list[Any]:
    """A float operator's arguments that are no tensors."""
    return [arg for arg in node.args if not isinstance(arg, Ref)]


def _as_declared(graph: Graph, node: Node) -> bool:
    """Whether a float operator's definition takes its arguments, and gives the shapes of the graph.

    It is asked with all dims but the last two cut to 1, which no operator but a view looks at.
    """
    shapes = [graph.tensors[value].shape for value in refs(node.args)]
    kept = [len(shape) if node.name == VIEW else 2 for shape in shapes]
    cut = (
        np.zeros((1,) * len(shape[:-n]) + shape[-n:], np.float32)
        for n, shape in zip(kept, shapes, strict=True)
    )
    args = [next(cut) if isinstance(arg, Ref) else arg for arg in node.args]
    try:
        lead = np.broadcast_shapes(*(shape[:-n] for n, shape in zip(kept, shapes, strict=True)))
        results = aten.find(node.name, str(node)).run(args, str(node), graph.place(node))
    except (RefsimError, ValueError):  # it is raised when the node runs
        return False
    made = [(*lead, *result.shape[len(lead) :]) for result in results]
    declared = [graph.tensors[value].shape for value in node.outputs]
    return made[: len(declared)] == declared


def _in_place(one: TensorDesc, other: TensorDesc) -> bool:
    """Whether each element, counted in logical order, lies at the same byte of two buffers of one size."""
    if one == other:
        return True
    alike = (one.numel, one.nbytes) == (other.numel, other.nbytes)
    return alike and np.array_equal(offsets(one).reshape(-1), offsets(other).reshape(-1))


def chain(
    graph: Graph, node: Node, descs: Mapping[int, TensorDesc], readers: Counter[int], pinned: Set[int],
    reader_of: Mapping[int, Node],
) -> Fusion | None:  # fmt: skip
    """A dequantize, up to three float operators that follow one another, and a quantize."""
    if not _is(node, Family.DEQUANTIZE):
        return None
    at = node
    between: list[Node] = []
    while len(between) < 4 and (following := reader_of.get(at.outputs[0])) is not None:
        if _is(following, Family.QUANTIZE):
            return Fusion(graph, (node,), tuple(between), following, descs, readers, pinned)
        if following.name not in OF_ONE or not following.outputs:
            return None
        between.append(at := following)
    return None


def pair(
    graph: Graph, node: Node, descs: Mapping[int, TensorDesc], readers: Counter[int], pinned: Set[int],
    makers: Mapping[int, Node],
) -> Fusion | None:  # fmt: skip
    """Two dequantizes, an operator on both, and a quantize: the node."""
    middle = makers.get(node.inputs["x"]) if _is(node, Family.QUANTIZE) else None
    if middle is None or middle.name not in OF_TWO:
        return None
    sides = [makers[value] for value in refs(middle.args) if value in makers]
    if len(sides) != 2 or not all(_is(side, Family.DEQUANTIZE) for side in sides):
        return None
    return Fusion(graph, tuple(sides), (middle,), node, descs, readers, pinned)


def _is(node: Node, family: Family) -> bool:
    return node.call is not None and node.call.op.family is family


def fuse(found: Fusion) -> PlanStep | None:
    """These nodes as one step, if that gives the same bytes and there are kernels for it other than a table."""
    if why_not(found) is not None:
        return None
    calls = [
        replace(n.call, descs={"x": found.descs[n.inputs["x"]]}) for n in found.first if n.call is not None
    ]
    if len(calls) == 2 and calls[0].descs["x"].nbytes < calls[1].descs["x"].nbytes:
        calls.reverse()  # sums and products are the same
        found = replace(found, first=found.first[::-1])
    assert found.last.call is not None
    made = replace(found.last.call, out=found.descs[found.last.outputs[0]])
    route, jobs = (_of_two if len(calls) == 2 else _of_one)(found, calls, made)
    reads, (result,) = tuple(node.inputs["x"] for node in found.first), found.last.outputs
    nodes = (*found.alone, *found.between, found.last)
    names = {
        name: value_name(value) for name, value in zip("ab" if len(reads) == 2 else "x", reads, strict=True)
    }
    names |= {name: f"{nodes[0].number}.{name}" for job in jobs for name, _ in job.temps}
    jobs = tuple(job.renamed(out=value_name(result), **names) for job in jobs)
    return PlanStep(nodes, route, reads, (result,), jobs) if jobs else None


def _of_one(found: Fusion, calls: Sequence[Call], made: Call) -> tuple[str, tuple[Job, ...]]:
    """A pooling, or a clamp where the processor looks up no tables; no jobs if there is no kernel."""
    (x,), between, bounds = calls, found.between, UNBOUNDED
    if between and between[0].name in CLAMPS:
        clamp, *rest = between
        between, bounds = tuple(rest), CLAMPS[clamp.name](clamp.args[1:])
        if not all(isinstance(bound, int | float) and bound == bound for bound in bounds):
            return EMULATED, ()
    names = [node.name for node in between]
    if names and names[0] in POOLS and names[1:] in ([], [VIEW]):
        lower = POOLS[names[0]]
        jobs = lower(x, bounds, whole(between[0].args[1:]), replace(made, out=found.pooled), cpu().isa)
        return "pool", () if isinstance(jobs, str) else jobs
    if names or cpu().isa.lookup:
        return EMULATED, ()
    return _bounded(elementwise.bounded(x, bounds, made))


def _of_two(found: Fusion, calls: Sequence[Call], made: Call) -> tuple[str, tuple[Job, ...]]:
    """A sum or product of two tensors of one size, or of one with a pixel; no jobs if there is no kernel."""
    a, b = calls
    e = elementwise.of_two(a, b, OF_TWO[found.between[0].name], made)
    if e.inputs["a"].shape != e.out.shape:
        return EMULATED, ()
    if e.inputs["b"].shape == e.out.shape:
        return _bounded(e)
    whole = elementwise.repeated_why_not(e) is None
    return (LINEAR, (elementwise.repeated(e, cpu().isa),)) if whole else (EMULATED, ())


def _bounded(e: elementwise.Elementwise) -> tuple[str, tuple[Job, ...]]:
    """The route of an operation on elements, and its jobs; none if there is no kernel."""
    if elementwise.why_not(e):
        return EMULATED, ()
    return VIA_NHWC if elementwise.linear_why_not(e) else LINEAR, (elementwise.lower(e, cpu().isa),)


def look_up(table: ByteTable, quantize: Node, descs: dict[int, TensorDesc]) -> tuple[Job, ...]:
    """The jobs that look up what a quantize gives in a table of bytes; none if no kernel takes these layouts."""
    (value,) = quantize.outputs
    x, out = descs[table.source], descs[value]
    jobs = _looked_up(table.values, x, out) or _moved(table.values, x, out)
    temps = {name: f"{quantize.number}.{name}" for job in jobs for name, _ in job.temps}
    return tuple(job.renamed(x=value_name(table.source), out=value_name(value), **temps) for job in jobs)


def _looked_up(luts: np.ndarray, x: TensorDesc, out: TensorDesc, copied: bool = False) -> tuple[Job, ...]:
    e = replace(elementwise.by_table(luts, x, out, cpu().isa), copied=copied)
    return () if elementwise.why_not(e) else (elementwise.lower(e, cpu().isa),)


def _moved(luts: np.ndarray, x: TensorDesc, out: TensorDesc) -> tuple[Job, ...]:
    """Looked up where they lie, then moved to the other layout as the operator does it that moves bytes."""
    mover = next(op for op in OPS.values() if op.family is Family.RELAYOUT)
    folded = TensorDesc(x.sizes_whcn[::-1], x.layout)  # the same bytes; no operator takes more than four dims
    moves = choose(mover.bind(mover.make_params({}), {"x": folded}, {}, out.layout)).jobs() or ()
    found = _looked_up(luts, x, x, copied=True) if moves else ()
    return tuple(
        replace(job, temps=(("looked_up", x.nbytes),)).renamed(out="looked_up") for job in found
    ) + tuple(job.renamed(x="looked_up") for job in moves)

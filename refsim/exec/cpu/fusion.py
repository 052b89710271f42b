"""A dequantize, float operators and a quantize, fused into one native step that never leaves the bytes.

Operators on single elements are a table of 256 bytes, which refsim.graph.bytewise finds and makes by their definitions.
Poolings have kernels of their own, and so have clamps on processors that look up one byte at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refsim.core.tensor import TensorDesc
from refsim.exec.cpu.elementwise import prepack as elementwise
from refsim.exec.cpu.elementwise.prepack import UNBOUNDED
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.job import Job
from refsim.exec.cpu.pool import prepack as pool
from refsim.exec.cpu.routes import EMULATED, LINEAR, VIA_NHWC, choose
from refsim.exec.cpu.step import Step, value_name
from refsim.graph.bytewise import Table
from refsim.graph.graph import Graph, Node, Ref
from refsim.ops.base.registry import OPS
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
#: Moves no byte if the sizes of what a pooling gives are all in one dim.
VIEW = "aten.view_copy.default"


def match(
    graph: Graph, node: Node, readers: Counter[int], reader_of: dict[int, Node]
) -> tuple[Node, ...] | None:
    """A dequantize, up to three float operators, and a quantize, if nothing else reads what is between them."""
    if node.call is None or node.call.op.family is not Family.DEQUANTIZE:
        return None
    members = [node]
    while len(members) < 5:
        value, *others = members[-1].outputs
        if any(readers[other] for other in others):
            return None
        if readers[value] != 1 or value in graph.outputs or value not in reader_of:
            return None
        following = reader_of[value]
        members.append(following)
        if following.call is not None:
            return tuple(members) if following.call.op.family is Family.QUANTIZE else None
        if following.args[0] != Ref(value) or graph.tensors[following.outputs[0]].dtype != np.float32:
            return None
    return None


#: Float operators on two tensors that are computed on bytes: whether they multiply; only without other arguments.
OF_TWO = {"aten.mul.Tensor": True, "aten.add.Tensor": False}


def match_two(graph: Graph, node: Node, readers: Counter[int], makers: Mapping[int, Node]) -> Pair | None:
    """Two dequantizes, an operator on both, and a quantize, if nothing else reads what the operator gives."""
    if node.call is None or node.call.op.family is not Family.QUANTIZE:
        return None
    middle = makers.get(node.inputs["x"])
    if middle is None or middle.name not in OF_TWO or readers[node.inputs["x"]] != 1:
        return None
    first, *rest = middle.args
    second, *others = rest or [None]
    sides = [makers.get(arg.id) for arg in (first, second) if isinstance(arg, Ref)]
    if others not in ([], [1]) or len(sides) != 2:
        return None
    a, b = sides
    for side in sides:
        if side is None or side.call is None or side.call.op.family is not Family.DEQUANTIZE:
            return None
    assert a is not None and b is not None
    return None if a is b or a.inputs["x"] == b.inputs["x"] else Pair(a, b, middle, node)


@dataclass(frozen=True)
class Pair:
    """Two dequantizes, an operator on what they give, and a quantize."""

    a: Node
    b: Node
    middle: Node
    last: Node


def fuse_two(pair: Pair, alone: Sequence[Node], descs: dict[int, TensorDesc]) -> Step | None:
    """A pair as one step, if there is a kernel for it; ``alone``: its dequantizes that nobody else reads."""
    sides, last = [pair.a, pair.b], pair.last
    if descs[pair.a.inputs["x"]].nbytes < descs[pair.b.inputs["x"]].nbytes:
        sides.reverse()  # sums and products are the same
    reads, result = [side.inputs["x"] for side in sides], last.outputs[0]
    calls = [side.call for side in (*sides, last) if side.call is not None]
    if calls[0].target.profile.flags or len(descs[result].shape) > 4:
        return None
    x, y = (replace(call, descs={"x": descs[value]}) for call, value in zip(calls, reads, strict=False))
    e = elementwise.of_two(x, y, OF_TWO[pair.middle.name], replace(calls[-1], out=descs[result]))
    if e.inputs["a"].shape != e.out.shape:
        return None
    if e.inputs["b"].shape == e.out.shape:
        route, jobs = _bounded(e)
    elif elementwise.repeated_why_not(e) is None:
        route, jobs = LINEAR, (elementwise.repeated(e, cpu().isa),)
    else:
        return None
    names = {"a": value_name(reads[0]), "b": value_name(reads[1]), "out": value_name(result)}
    jobs = tuple(job.renamed(**names) for job in jobs)
    return Step((*alone, pair.middle, last), route, tuple(reads), (result,), jobs) if jobs else None


def fuse(members: tuple[Node, ...], descs: dict[int, TensorDesc]) -> Step | None:
    """These nodes as one step, if there are kernels for it other than a table."""
    first, *between, last = members
    value, result = first.inputs["x"], last.outputs[0]
    assert first.call is not None and last.call is not None
    if first.call.target.profile.flags or len(descs[value].shape) > 4:
        return None
    x = replace(first.call, descs={"x": descs[value]})
    out = replace(last.call, out=descs[result])
    bounds = UNBOUNDED
    if between and between[0].name in CLAMPS:
        clamp, *between = between
        bounds = CLAMPS[clamp.name](clamp.args[1:])
    names = [node.name for node in between]
    if names and names[0] in POOLS and names[1:] in ([], [VIEW]):
        found = POOLS[names[0]](x, bounds, between[0].args[1:], out, cpu().isa)
        route, jobs = "pool", () if isinstance(found, str) else found
    elif not names and not cpu().isa.lookup:
        route, jobs = _bounded(elementwise.bounded(x, bounds, out))
    else:
        return None
    temps = {name: f"{first.number}.{name}" for job in jobs for name, _ in job.temps}
    jobs = tuple(job.renamed(x=value_name(value), out=value_name(result), **temps) for job in jobs)
    return Step(members, route, (value,), (result,), jobs) if jobs else None


def _bounded(e: elementwise.Elementwise) -> tuple[str, tuple[Job, ...]]:
    """The route of an operation on elements, and its jobs; none if there is no kernel."""
    if elementwise.why_not(e):
        return EMULATED, ()
    return VIA_NHWC if elementwise.linear_why_not(e) else LINEAR, (elementwise.lower(e, cpu().isa),)


def look_up(table: Table, quantize: Node, descs: dict[int, TensorDesc]) -> tuple[Job, ...]:
    """The jobs that look up what a quantize gives in a table of bytes; none if no kernel takes these layouts."""
    (value,) = quantize.outputs
    x, out = descs[table.source], descs[value]
    if len(x.shape) > 4:
        return ()
    jobs = _looked_up(table.values, x, out) or _moved(table.values, x, out)
    temps = {name: f"{quantize.number}.{name}" for job in jobs for name, _ in job.temps}
    return tuple(job.renamed(x=value_name(table.source), out=value_name(value), **temps) for job in jobs)


def _looked_up(luts: np.ndarray, x: TensorDesc, out: TensorDesc, copied: bool = False) -> tuple[Job, ...]:
    e = replace(elementwise.by_table(luts, x, out, cpu().isa), copied=copied)
    return () if elementwise.why_not(e) else (elementwise.lower(e, cpu().isa),)


def _moved(luts: np.ndarray, x: TensorDesc, out: TensorDesc) -> tuple[Job, ...]:
    """Looked up where they lie, then moved to the other layout as the operator does it that moves bytes."""
    mover = next(op for op in OPS.values() if op.family is Family.RELAYOUT)
    moves = choose(mover.bind(mover.make_params({}), {"x": x}, {}, out.layout)).jobs() or ()
    found = _looked_up(luts, x, x, copied=True) if moves else ()
    return tuple(
        replace(job, temps=(("looked_up", x.nbytes),)).renamed(out="looked_up") for job in found
    ) + tuple(job.renamed(x="looked_up") for job in moves)

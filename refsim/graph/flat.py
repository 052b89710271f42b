"""From a serialized graph to a graph of flat tensors: no layouts, scalars read by their type.

The nodes are numbered, and their values named, as in the graph of packed tensors, so that the two can be compared.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from refsim.core.dtypes import BY_DELEGATE_CODE
from refsim.core.errors import GraphError
from refsim.core.layout import FLAT as FLAT_INT8
from refsim.core.layout import WIDTH_PACKED, Layout
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import OperatorCall, VkGraph, VkTensor
from refsim.graph import order
from refsim.graph.build import assembled, bound, build, make_tensor
from refsim.graph.graph import Graph, Node, Ref, Tensor
from refsim.graph.shapes import at_bound
from refsim.graph.values import plain
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec
from refsim.ops.base.target import Target
from refsim.ops.flat.base import SCALARS, FlatMeaning, misread, read_scalar
from refsim.ops.flat.call import FLAT


def built_graph(
    blob: Blob, where: str, target: Target | None = None, runs: bool = True, of: Graph | None = None
) -> Graph:
    """The graph of a delegate as the target's runtime stores it. Arguments and errors as for `build`."""
    chosen = target or Target()
    if not chosen.runtime.flat:
        return build(blob, where, chosen, runs, of)
    graph = replace(bound_graph(blob, where, chosen), bound=of)
    order.check(graph, runs)
    return graph


def bound_graph(blob: Blob, where: str, target: Target) -> Graph:
    """As `refsim.graph.build.bound`, for any runtime."""
    if not target.runtime.flat:
        return bound(blob, where, target)
    source = at_bound(blob, where).graph

    def tensor_of(number: int, value: VkTensor) -> Tensor:
        return replace(make_tensor(blob, number, value, _layout(value), where, False), buffer=True)

    return assembled(source, where, target, tensor_of, _nodes)


def _layout(value: VkTensor) -> Layout | None:
    """None for int8 that fills no whole words: zero points of three rows, for instance."""
    if BY_DELEGATE_CODE[value.datatype].name != "int8":
        return WIDTH_PACKED
    return FLAT_INT8 if value.numel % 4 == 0 else None


def _of_floats(op: OpSpec, args: tuple[Any, ...], tensors: dict[int, Tensor]) -> bool:
    """Whether the name, which is that of an operator on int8, stands for one on floats, as a clone's does."""
    int8 = all(row.packed_int8 for row in op.args[0].layouts)
    desc = tensors[args[0].id].desc if args and isinstance(args[0], Ref) and args[0].id in tensors else None
    return int8 and desc is not None and not desc.is_int8


def _nodes(
    graph: VkGraph, tensors: dict[int, Tensor], number: int, operator: OperatorCall, target: Target
) -> list[Node]:
    args = tuple(plain(graph, a) for a in operator.args[:-1])
    result = plain(graph, operator.args[-1])
    outputs = tuple(ref.id for ref in (result if isinstance(result, tuple) else (result,)))
    row, op = FLAT.get(operator.name), OPS.serialized(operator.name)
    if row is None or op is None or _of_floats(op, args, tensors):
        return [Node(number, operator.node_id, operator.name, args, outputs)]
    if len(args) > len(row.takes):
        raise GraphError("arguments", "wrong number", got=len(args), need=len(row.takes))
    named = {name: (kind, arg) for (name, kind), arg in zip(row.takes, args, strict=False)}
    inputs = {name: arg.id for name, (kind, arg) in named.items() if kind == "t" and isinstance(arg, Ref)}
    given: dict[str, Any] = {name: arg for name, (kind, arg) in named.items() if kind == "l"}
    given |= {n: read_scalar(kind, arg) for n, (kind, arg) in named.items() if kind in SCALARS}
    shapes = tuple(tensors[value].shape for value in outputs)
    return [
        Node(
            number + at,
            operator.node_id,
            operator.name,
            args,
            (value,),
            None,
            inputs,
            FlatMeaning(OPS[name], row, given, target, shapes, at, misread(row, args)),
        )
        for at, (name, value) in enumerate(zip((op.name, *op.siblings), outputs, strict=True))
    ]

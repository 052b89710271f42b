"""Values of a serialized graph as arguments of its operators, and lists of them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any

from refsim.core.errors import GraphError
from refsim.formats.literals import Null
from refsim.formats.vkgraph.schema import OperatorCall, ValueList, VkGraph, VkTensor
from refsim.graph.graph import Ref
from refsim.ops.base.arg import Kind
from refsim.ops.base.spec import OpSpec


def plain(graph: VkGraph, number: int) -> Any:
    """A value as an argument: `Ref` for a tensor, a tuple for a list, None, or a scalar."""
    value = graph.values[number]
    if isinstance(value, VkTensor):
        return Ref(number)
    if isinstance(value, ValueList):
        return tuple(plain(graph, item) for item in value.items)
    if isinstance(value, Null):
        return None
    return value.items if hasattr(value, "items") else value.value


def flat(graph: VkGraph, ids: Iterable[int]) -> Iterator[int]:
    """These values, with those of lists in place of the lists."""
    for number in ids:
        value = graph.values[number]
        if isinstance(value, ValueList):
            yield from flat(graph, value.items)
        else:
            yield number


def by_name_of(op: OpSpec, graph: VkGraph, operator: OperatorCall) -> dict[str, int]:
    """The value id of each argument. Unset trailing arguments, such as a clone's memory format, are left out."""
    given = list(operator.args)
    while len(given) > len(op.args) and isinstance(graph.values[given[-2]], Null):
        del given[-2]
    if len(given) != len(op.args):
        raise GraphError("arguments", "wrong number", got=len(operator.args), need=len(op.args))
    return dict(zip((a.name for a in op.args), given, strict=True))


def params_of(op: OpSpec, graph: VkGraph, operator: OperatorCall) -> Any:
    """`Params` of a q8ta operator; an argument that is null keeps its default."""
    values = {}
    types = {f.name: str(f.type) for f in fields(op.params)}
    by_name = by_name_of(op, graph, operator)
    for arg in op.args:
        if arg.kind is Kind.PARAM:
            value = plain(graph, by_name[arg.name])
            if value is not None:
                values[arg.name] = _integral(value) if types[arg.name].startswith("int") else value
    return op.make_params(values)


def _integral(value: Any) -> Any:
    """Upstream's serializer shares equal scalars, so a zero point may arrive as the double 6.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value

"""Values of a serialized graph as arguments, and lists of them one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from refsim.formats.literals import Null
from refsim.formats.vkgraph.schema import ValueList, VkGraph, VkTensor
from refsim.graph.graph import Ref


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

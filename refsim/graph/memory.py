"""Which tensors of a serialized graph may share memory: a plan, and the check of any plan.

Lifetimes are those of refsim.core.lifetimes. What et_vk.prepack writes is written once, when the graph is loaded, and
is needed for ever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace

from refsim.core import lifetimes as planner
from refsim.core.errors import GraphError
from refsim.core.layout import BY_SCHEMA_VALUE, PACKED_4C1W, WIDTH_PACKED
from refsim.core.lifetimes import Claim, Lifetime
from refsim.core.tensor import TensorDesc
from refsim.formats.vkgraph.edit import PREPACK
from refsim.formats.vkgraph.schema import DATATYPES, ValueList, VkGraph, VkTensor


def lifetimes(graph: VkGraph) -> dict[int, Lifetime]:
    """The lifetime of every tensor that an operator writes or a caller gives, by value id. Constants have none."""
    steps = [
        (tuple(_tensors(graph, call.args[:-1])), tuple(_tensors(graph, call.args[-1:])))
        for call in graph.chain
    ]
    return planner.lifetimes(
        steps, _tensors(graph, graph.input_ids), _tensors(graph, graph.output_ids), prepacked(graph)
    )


def prepacked(graph: VkGraph) -> set[int]:
    """The tensors that et_vk.prepack writes. The runtime gives each of them memory of its own."""
    return {
        number for call in graph.chain if call.name == PREPACK for number in _tensors(graph, call.args[-1:])
    }


#: How the runtime aborts where a tensor with memory of its own has a memory object too. Measured with that of 2026-08.
BOUND_TWICE = "Cannot bind an already bound allocation!"


def bound_twice(graph: VkGraph) -> dict[int, int]:
    """Prepacked tensors that share a memory object, with another tensor in it each: loading ends with `BOUND_TWICE`."""
    members: dict[int, list[int]] = {}
    for number, value in enumerate(graph.values):
        if isinstance(value, VkTensor) and value.mem_obj_id >= 0:
            members.setdefault(value.mem_obj_id, []).append(number)
    packed = prepacked(graph)
    groups = [group for group in members.values() if len(group) > 1]
    return {
        number: next(other for other in group if other != number)
        for group in groups
        for number in group
        if number in packed
    }


def overlapping(graph: VkGraph) -> Iterator[tuple[int, int, int]]:
    """(Memory object, tensor, tensor) of each two tensors that share one and are needed at the same time."""
    lives = lifetimes(graph)
    owners: dict[int, list[int]] = {}
    for number in lives:
        tensor = graph.values[number]
        assert isinstance(tensor, VkTensor)
        if tensor.mem_obj_id >= 0:
            others = owners.setdefault(tensor.mem_obj_id, [])
            yield from (
                (tensor.mem_obj_id, one, number) for one in others if lives[number].overlaps(lives[one])
            )
            others.append(number)


def check(graph: VkGraph, where: str = "graph") -> None:
    """GraphError if two tensors share a memory object and are needed at the same time."""
    for place, one, other in overlapping(graph):
        lives = lifetimes(graph)
        raise GraphError(
            f"{where}: memory object {place}",
            "is shared by tensors that are needed at the same time",
            got=f"value {one} for operators {lives[one].first} to {lives[one].last}, "
            f"value {other} for {lives[other].first} to {lives[other].last}",
        )


def plan(graph: VkGraph) -> VkGraph:
    """The graph with memory objects shared as `planner.objects` says. Prepacked tensors keep memory of their own."""
    packed = prepacked(graph)
    wanted = [
        Claim(number, _size(graph, number), life)
        for number, life in lifetimes(graph).items()
        if number not in packed
    ]
    return with_objects(graph, planner.objects(wanted))


def with_objects(graph: VkGraph, objects: Mapping[int, int]) -> VkGraph:
    """The graph with these memory objects, by value id; every other tensor has memory of its own."""
    values = tuple(
        replace(value, mem_obj_id=objects.get(number, -1)) if isinstance(value, VkTensor) else value
        for number, value in enumerate(graph.values)
    )
    content = {field.name: getattr(graph, field.name) for field in fields(graph)}
    return VkGraph(**(content | {"values": values}))


def nbytes(tensor: VkTensor) -> int:
    """Bytes of a tensor in memory, with padding. A layout that is still open counts as 4C1W."""
    row = BY_SCHEMA_VALUE.get(tensor.memory_layout, WIDTH_PACKED)
    row = PACKED_4C1W if row.is_dynamic else row
    if not row.packed_int8 or DATATYPES[tensor.datatype][1] != 1:
        return tensor.nbytes
    return TensorDesc(tensor.dims or (1,), row).nbytes


def _size(graph: VkGraph, number: int) -> int:
    tensor = graph.values[number]
    assert isinstance(tensor, VkTensor)
    return nbytes(tensor)


def total(graph: VkGraph) -> tuple[int, int]:
    """Bytes of all tensors, with the sharing that the graph says, and without any."""
    objects: dict[object, list[int]] = {}
    unshared = 0
    for number in lifetimes(graph):
        tensor = graph.values[number]
        assert isinstance(tensor, VkTensor)
        size = _size(graph, number)
        key = tensor.mem_obj_id if tensor.mem_obj_id >= 0 else f"own {number}"
        objects.setdefault(key, []).append(size)
        unshared += size
    return sum(map(max, objects.values())), unshared


def _tensors(graph: VkGraph, ids: Sequence[int]) -> Iterator[int]:
    """The tensors among these values that are not constants, including those in lists."""
    for number in ids:
        value = graph.values[number]
        if isinstance(value, ValueList):
            yield from _tensors(graph, value.items)
        elif isinstance(value, VkTensor) and not value.is_constant:
            yield number

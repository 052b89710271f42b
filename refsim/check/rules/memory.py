"""The memory plan: tensors that share an object, and values that nothing has written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from refsim.check.finding import Level
from refsim.check.rule import Hit, Rule
from refsim.check.runtime import Runtime
from refsim.check.subject import Delegate, Method
from refsim.core.layout import BY_SCHEMA_VALUE, CHANNELS_PACKED_INT8
from refsim.core.lifetimes import Lifetime
from refsim.formats.vkgraph.schema import DATATYPES, VkTensor
from refsim.graph.memory import BOUND_TWICE, bound_twice, lifetimes, nbytes


def _overlaps(delegate: Delegate) -> Iterator[tuple[int, int, dict[int, Lifetime]]]:
    """Pairs of values that share a memory object and are needed at the same time, the later written second."""
    lives = lifetimes(delegate.graph)
    owners: dict[int, list[int]] = {}
    for number, life in sorted(lives.items(), key=lambda item: (item[1].first, item[0])):
        tensor = delegate.graph.values[number]
        assert isinstance(tensor, VkTensor)
        if tensor.mem_obj_id < 0:
            continue
        for other in owners.setdefault(tensor.mem_obj_id, []):
            if life.overlaps(lives[other]):
                yield other, number, lives
        owners[tensor.mem_obj_id].append(number)


def _is_alias(delegate: Delegate, one: int, other: int) -> bool:
    """Whether one of the two is all bytes of the other as 32-bit words: shared on purpose."""
    first, second = delegate.graph.values[one], delegate.graph.values[other]
    assert isinstance(first, VkTensor) and isinstance(second, VkTensor)
    words = any(len(t.dims) == 1 and DATATYPES[t.datatype][1] == 4 for t in (first, second))
    return words and first != second and not _possible_bytes(first).isdisjoint(_possible_bytes(second))


def _possible_bytes(tensor: VkTensor) -> set[int]:
    """Bytes in memory; of a layout that is still open, those in each layout that it may become."""
    row = BY_SCHEMA_VALUE.get(tensor.memory_layout)
    if row is None or not row.is_dynamic:
        return {nbytes(tensor)}
    return {nbytes(replace(tensor, memory_layout=r.schema_value)) for r in CHANNELS_PACKED_INT8}


def shared(method: Method, runtime: Runtime) -> Iterator[Hit]:
    yield from _pairs(method, alias=False)


def aliases(method: Method, runtime: Runtime) -> Iterator[Hit]:
    yield from _pairs(method, alias=True)


def _pairs(method: Method, alias: bool) -> Iterator[Hit]:
    for delegate in method.delegates:
        for other, number, lives in _overlaps(delegate):
            if _is_alias(delegate, other, number) == alias:
                tensor = delegate.graph.values[number]
                assert isinstance(tensor, VkTensor)
                end, writer = lives[other].last, lives[number].first
                facts = {
                    "other": other,
                    "object": tensor.mem_obj_id,
                    "writer": _step(delegate, writer),
                    "reader": _step(delegate, end),
                }
                yield Hit(delegate.place(number), facts)


def _step(delegate: Delegate, step: int) -> str:
    """What happens at a step of the chain, at -1, or after the last."""
    if step < 0:
        return "the copy of the inputs"
    calls = delegate.calls
    return f"node {calls[step].number}" if step < len(calls) else "the copy of the outputs"


def prepacked_shared(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for delegate in method.delegates:
        for number, other in bound_twice(delegate.graph).items():
            tensor = delegate.graph.values[number]
            assert isinstance(tensor, VkTensor)
            yield Hit(delegate.place(number), {"other": other, "object": tensor.mem_obj_id})


def absurd_ids(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for delegate in method.delegates:
        most = max(len(delegate.graph.values), runtime.limits["memory_objects"])
        for operand in delegate.operands:
            number = operand.tensor.mem_obj_id
            if number >= most:
                yield Hit(delegate.place(operand.value), {"object": number, "most": most})


def unwritten(method: Method, runtime: Runtime) -> Iterator[Hit]:
    for delegate in method.delegates:
        graph, lives = delegate.graph, lifetimes(delegate.graph)
        # a value that nothing writes may be another's memory under a second name
        held = {
            t.mem_obj_id for n in lives if isinstance(t := graph.values[n], VkTensor) and t.mem_obj_id >= 0
        }
        done = set(graph.input_ids)
        told: set[int] = set()

        def missing(number: int) -> bool:
            tensor = graph.values[number]  # noqa: B023
            assert isinstance(tensor, VkTensor)
            known = tensor.is_constant or number in done or number in told  # noqa: B023
            return not known and not (number not in lives and tensor.mem_obj_id in held)  # noqa: B023

        for call in delegate.calls:
            for number in filter(missing, call.reads):
                told.add(number)
                yield Hit(call.place(number))
            done.update(call.writes)
        for number in filter(missing, tuple(delegate.tensors(graph.output_ids))):
            yield Hit(delegate.place(number))


RULES = (
    Rule(
        "memory-shared",
        Level.WARNING,
        "{writer} writes into memory object {object} while value {other} in it is still needed by {reader}",
        "both tensors lie at the start of the object: the later write destroys the earlier value",
        "give one of the two a memory object of its own, or -1",
        shared,
    ),
    Rule(
        "memory-alias",
        Level.NOTE,
        "the value is the memory of value {other} under another name, as 32-bit words",
        "a barrier covers one name only: a read through one name may miss an earlier write through the other",
        "read the alias only after an operator that reads the value itself",
        aliases,
    ),
    Rule(
        "memory-prepacked",
        Level.ERROR,
        "et_vk.prepack writes the value, and it shares memory object {object} with value {other}",
        f"the value has memory of its own before it gets that of the object: loading aborts with {BOUND_TWICE}",
        "give the value no memory object (-1); an exposed file hands it out with --as values",
        prepacked_shared,
    ),
    Rule(
        "memory-object",
        Level.ERROR,
        "the value lies in memory object {object}; there should be fewer than {most} objects",
        "the runtime makes a table with an entry for every number below: loading runs out of memory",
        "number the memory objects from 0 on",
        absurd_ids,
    ),
    Rule(
        "unwritten-value",
        Level.WARNING,
        "the value is read before anything writes it",
        "the runtime reads whatever lies in that memory",
        "put the operator that writes the value before its readers",
        unwritten,
    ),
)

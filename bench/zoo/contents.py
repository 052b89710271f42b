"""Two .pte files of the same program: whether their delegates are the same graphs, and what differs first."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from refsim.core.layout import BY_SCHEMA_VALUE
from refsim.formats.literals import Null
from refsim.formats.pte.read import Pte
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import STORAGES, ValueList, VkTensor

NAMED = 6  # operators that a difference names at most


def delegates(pte: Pte) -> list[Blob]:
    """Its Vulkan delegates, in the order in which the program calls them."""
    plan = pte.plan()
    by_index = dict(pte.blobs(plan))
    calls = [call for chain in plan.chains for call in chain.instructions]
    return [by_index[call.delegate_index] for call in calls if hasattr(call, "delegate_index")]


def contents(blob: Blob) -> list[tuple[Any, ...]]:
    """Every operator call with all of its arguments; tensors are numbered by their first appearance.

    A tensor is its number, shape, datatypes, layout and storage; a constant its shape, datatype and the digest of
    its bytes. Two graphs with equal contents mean the same, whatever ids their values have.
    """
    graph = blob.graph
    numbers: dict[int, int] = {}

    def describe(number: int) -> Any:
        value = graph.values[number]
        if isinstance(value, VkTensor):
            shape = "x".join(map(str, value.dims)) + f" {value.datatype}/{value.staging_datatype}"
            if value.is_constant:
                return shape + " " + hashlib.sha256(blob.constants[value.constant_id]).hexdigest()[:12]
            name = numbers.setdefault(number, len(numbers))
            row = BY_SCHEMA_VALUE.get(value.memory_layout, "default")
            return f"t{name} {shape} {row}:{STORAGES[value.storage_type]}"
        if isinstance(value, ValueList):
            return [describe(item) for item in value.items]
        if isinstance(value, Null):
            return None
        # upstream shares equal numbers between arguments, whether they are ints or floats
        return list(value.items) if hasattr(value, "items") else value.value

    calls = [(call.name, *(describe(number) for number in call.args)) for call in graph.chain]
    return [*calls, ("in", *map(describe, graph.input_ids)), ("out", *map(describe, graph.output_ids))]


def operators(blobs: Sequence[Blob]) -> Counter[str]:
    """How often each operator is called in these delegates."""
    return Counter(call.name for blob in blobs for call in blob.graph.chain)


def difference(ours: Pte, theirs: Pte) -> str | None:
    """None for the same graphs; else the operators that differ in number, or the first call that differs."""
    mine, other = delegates(ours), delegates(theirs)
    found = []
    if len(mine) != len(other):
        found.append(f"{len(other)} delegates there, {len(mine)} here")
    for only, where in (
        (operators(other) - operators(mine), "there"),
        (operators(mine) - operators(other), "here"),
    ):
        if only:
            names = [f"{count} {name}" for name, count in only.most_common(NAMED)]
            more = f" and {len(only) - NAMED} more" if len(only) > NAMED else ""
            found.append(f"only {where}: {', '.join(names)}{more}")
    if not found:
        found = _first_call(mine, other)
    return "; ".join(found) or None


def _first_call(mine: Sequence[Blob], other: Sequence[Blob]) -> list[str]:
    for number, (one, two) in enumerate(zip(mine, other, strict=True)):
        for at, (ours, theirs) in enumerate(zip(contents(one), contents(two), strict=False)):
            if ours != theirs:
                return [f"delegate {number}, call {at}: {theirs} there, {ours} here"]
    return []

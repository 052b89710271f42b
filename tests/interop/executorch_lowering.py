"""Lower a program with ExecuTorch's own Vulkan partitioner, and read what it made with refsim's reader."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch.export import ExportedProgram

from refsim.core.layout import BY_SCHEMA_VALUE
from refsim.formats.literals import Null
from refsim.formats.pte.read import Pte, read_pte
from refsim.formats.vkgraph.read import Blob
from refsim.formats.vkgraph.schema import STORAGES, ValueList, VkTensor

CLONE = "aten.clone.default"


def lower(exported: ExportedProgram) -> Pte:
    """The .pte that ExecuTorch makes."""
    logging.disable(logging.WARNING)
    try:
        edge = to_edge_transform_and_lower(exported, partitioner=[VulkanPartitioner()])
        return read_pte(edge.to_executorch().buffer, "executorch")
    finally:
        logging.disable(logging.NOTSET)


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


def chain(blob: Blob) -> list[tuple[str, ...]]:
    """Per operator its name, and shape, layout and storage of each tensor that is no constant."""
    found = []
    for name, *args in contents(blob):
        flat = [item for arg in args for item in (arg if isinstance(arg, list) else [arg])]
        found.append((name, *(item for item in flat if isinstance(item, str) and item.startswith("t"))))
    return found


def clones(blob: Blob) -> int:
    return sum(call.name == CLONE for call in blob.graph.chain)

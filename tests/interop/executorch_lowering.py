"""Lower a program with ExecuTorch's own Vulkan partitioner, and read what it made with refsim's reader."""

from __future__ import annotations

import logging

from executorch.backends.vulkan.partitioner.vulkan_partitioner import VulkanPartitioner
from executorch.exir import to_edge_transform_and_lower
from torch.export import ExportedProgram

from bench.zoo.contents import contents, delegates
from refsim.formats.pte.read import Pte, read_pte
from refsim.formats.vkgraph.read import Blob

__all__ = ["chain", "clones", "contents", "delegates", "lower"]
CLONE = "aten.clone.default"


def lower(exported: ExportedProgram) -> Pte:
    """The .pte that ExecuTorch makes."""
    logging.disable(logging.WARNING)
    try:
        edge = to_edge_transform_and_lower(exported, partitioner=[VulkanPartitioner()])
        return read_pte(edge.to_executorch().buffer, "executorch")
    finally:
        logging.disable(logging.NOTSET)


def chain(blob: Blob) -> list[tuple[str, ...]]:
    """Per operator its name, and shape, layout and storage of each tensor that is no constant."""
    found = []
    for name, *args in contents(blob):
        flat = [item for arg in args for item in (arg if isinstance(arg, list) else [arg])]
        found.append((name, *(item for item in flat if isinstance(item, str) and item.startswith("t"))))
    return found


def clones(blob: Blob) -> int:
    return sum(call.name == CLONE for call in blob.graph.chain)

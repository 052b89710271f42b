"""Imported once by the process from which those that need torch are forked: the packages, and ExecuTorch's patterns."""

from __future__ import annotations

import gc
import importlib
import logging
import warnings
from functools import cache

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

import torch  # noqa: E402

torch.set_num_threads(1)  # threads do not survive a fork


def torchvision_without_its_operators() -> list[torch.library.Library]:
    """Let torchvision be imported where its compiled operators do not fit torch.

    It registers shapes for two of them without asking whether they were loaded. No model of the zoo calls them.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return [library]


KEPT = torchvision_without_its_operators()  # a library's operators go when it goes

for name in (
    "torchvision",
    "timm",
    "transformers",
    "torchao.quantization.pt2e.quantize_pt2e",
    "executorch.backends.xnnpack.quantizer.xnnpack_quantizer",
    "executorch.backends.vulkan.quantizer.vulkan_quantizer",
    "executorch.backends.vulkan.partitioner.vulkan_partitioner",
    "executorch.exir",
    "refsim.partition.lower",
    "refsim.partition.container",
):
    importlib.import_module(name)

from executorch.backends.vulkan.patterns.pattern_registry import fusable_patterns  # noqa: E402

for entry in fusable_patterns.values():
    if entry.get_graphs_fn is not None:  # traced anew for each delegate, which takes seconds
        entry.get_graphs_fn = cache(entry.get_graphs_fn)
        entry.get_graphs_fn()

gc.collect()
gc.freeze()

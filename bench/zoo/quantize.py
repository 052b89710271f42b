"""Quantize a module as users of ExecuTorch do: PT2E with its quantizers, or torchao's weights in groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram, export

from bench.zoo.model import DYNAMIC_4, STATIC, WEIGHT_4, WEIGHT_8

GROUP = 32


def static(module: nn.Module, inputs: Sequence[tuple[Tensor, ...]]) -> ExportedProgram:
    """PT2E: activations int8 per tensor, weights int8 per output channel."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    return _pt2e(
        XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True)), module, inputs
    )


def weight_8(module: nn.Module, inputs: Sequence[tuple[Tensor, ...]]) -> ExportedProgram:
    """PT2E with ExecuTorch's own quantizer for Vulkan: int8 weights of linears, activations in float."""
    from executorch.backends.vulkan.quantizer.vulkan_quantizer import (
        VulkanQuantizer,
        get_symmetric_quantization_config,
    )

    return _pt2e(VulkanQuantizer().set_global(get_symmetric_quantization_config()), module, inputs)


def _pt2e(quantizer: object, module: nn.Module, inputs: Sequence[tuple[Tensor, ...]]) -> ExportedProgram:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    with torch.no_grad():
        prepared = prepare_pt2e(export(module, inputs[0]).module(), quantizer)
        for each in inputs:
            prepared(*each)
        return export(convert_pt2e(prepared), inputs[0])


def dynamic_4(module: nn.Module, inputs: Sequence[tuple[Tensor, ...]]) -> ExportedProgram:
    """torchao's 8da4w: activations int8 per token at run time, weights in 4 bits and groups."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig
    from torchao.quantization.granularity import PerGroup

    return _torchao(
        Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=PerGroup(GROUP)),
        module,
        inputs,
    )


def weight_4(module: nn.Module, inputs: Sequence[tuple[Tensor, ...]]) -> ExportedProgram:
    """Weights of linears and embeddings in 4 bits and groups, activations in float."""
    from torchao.quantization import IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    config = IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(GROUP))
    quantize_(module, config, lambda each, name: isinstance(each, nn.Embedding))
    return _torchao(config, module, inputs)


def _torchao(config: object, module: nn.Module, inputs: Sequence[tuple[Tensor, ...]]) -> ExportedProgram:
    from torchao.quantization import quantize_
    from torchao.utils import unwrap_tensor_subclass

    quantize_(module, config)
    unwrap_tensor_subclass(module)
    with torch.no_grad():
        return export(module, inputs[0])


SCHEMES: dict[str, Callable[[nn.Module, Sequence[tuple[Tensor, ...]]], ExportedProgram]] = {
    STATIC: static,
    WEIGHT_8: weight_8,
    DYNAMIC_4: dynamic_4,
    WEIGHT_4: weight_4,
}

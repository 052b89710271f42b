"""Programs of a few operators for tests of passes, and what such a program is and gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor, nn

from refsim.partition.check import evaluate
from refsim.partition.fx_program import FxProgram
from refsim.partition.nodes import target_name
from refsim.partition.passes import decompose
from refsim.partition.passes.prepare import functional

Q = torch.ops.quantized_decomposed.quantize_per_tensor.default
DQ = torch.ops.quantized_decomposed.dequantize_per_tensor.default
INT8 = (-128, 127, torch.int8)


def program(function: Callable[..., Any], *shapes: tuple[int, ...], **constants: Tensor) -> FxProgram:
    """The decomposed program of a function of its inputs; with ``constants``, of a module with these buffers first."""

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, value in constants.items():
                self.register_buffer(name, value)

        def forward(self, *inputs: Tensor) -> Any:
            return function(self, *inputs) if constants else function(*inputs)

    inputs = tuple(torch.randn(shape) for shape in shapes)
    return decompose.run(torch.export.export(Module(), inputs))


def names(given: FxProgram) -> list[str]:
    """The operators of a program, without the parts that are always the same."""
    return [target_name(n).removeprefix("aten.").removesuffix(".default") for n in given.calls()]


def prepared(function: Callable[..., Any], *shapes: tuple[int, ...], **constants: Tensor) -> FxProgram:
    return functional(program(function, *shapes, **constants))


def values(after: FxProgram, *inputs: Tensor) -> list[Tensor]:
    """What a program gives in torch."""
    known: dict[Any, Any] = dict(zip(after.inputs(), inputs, strict=True))
    return [evaluate(after, node, known) for node in after.outputs()]

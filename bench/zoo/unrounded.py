"""The quantized program in torch, less the roundings that lowering leaves out.

Lowering removes a quantize and the dequantize behind it where no kernel needs the int8 tensor between. So the outputs
of a lowered file may be off from torch's by what that rounding was worth, without any kernel being wrong. Here torch
leaves the same pairs out.

How much the program itself makes of roundings shows when torch computes it again with a little noise: a value next to a
tie then becomes another int8, and a network with random weights may pass that on, larger, to its outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, fx

from refsim.partition.check import executable
from refsim.partition.lower import Lowered
from refsim.partition.nodes import DEQUANTIZE, QUANTIZE, calls


def left_out(lowered: Lowered) -> set[str]:
    """Names of the dequantizes that lowering removed with the quantize in front of them."""
    found: set[str] = set()
    for delegate in lowered.delegates:
        kept = {node.name for node in delegate.program.graph.nodes}
        kept |= {name for fused in delegate.fused for name in fused.dequantizes}
        for node in delegate.unfused.calls():
            source = node.args[0] if calls(node, DEQUANTIZE) else None
            if node.name not in kept and isinstance(source, fx.Node) and calls(source, QUANTIZE):
                found.add(node.name)
    return found


def outputs(lowered: Lowered, inputs: list[Tensor], noise: float = 0.0) -> list[Tensor]:
    """What torch computes from the program in core ATen operators, less those roundings.

    With ``noise`` every float result is off by about that part of it, as if its sum had been rounded otherwise.
    """
    core, skipped = lowered.core, left_out(lowered)
    drawn = torch.Generator().manual_seed(0)
    values: dict[fx.Node, Any] = dict(zip(core.inputs(), inputs, strict=True))
    with torch.no_grad():
        for node in core.graph.nodes:
            if node.op == "placeholder":
                values.setdefault(node, core.constants.get(node.name))
            elif node.op == "call_function":
                if node.name in skipped:
                    quantize = node.args[0]
                    assert isinstance(quantize, fx.Node)
                    values[node] = values[quantize.args[0]]  # type: ignore[index]
                else:
                    args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                    found = executable(node)(*args, **kwargs)
                    if noise and isinstance(found, Tensor) and found.is_floating_point():
                        found = found * (1 + noise * torch.randn(found.shape, generator=drawn))
                    values[node] = found
    return [values[node] for node in core.outputs()]

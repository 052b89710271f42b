"""Quantize a module in PT2E style with torch alone: a stand-in for prepare, calibrate and convert.

Each operator of ``OPERATORS`` reads dequantized int8 tensors and its result is quantized: per tensor, static, over
the range seen in one run. Weights are quantized per output channel, symmetric. A relu behind a convolution, a
linear or an addition is left between operator and quantize.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import getitem
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed
from torch import fx
from torch.export import ExportedProgram

ATEN = torch.ops.aten
OPS = torch.ops.quantized_decomposed
#: operator -> (position of the weight, its output channel) or None without a weight.
OPERATORS: dict[Any, tuple[int, int] | None] = {
    ATEN.conv2d.default: (1, 0),
    ATEN.conv_transpose2d.input: (1, 1),
    ATEN.linear.default: (1, 0),
    ATEN.addmm.default: (2, 1),
    ATEN.mm.default: (1, 1),
    ATEN.matmul.default: (1, 1),
    ATEN.bmm.default: (1, 2),
    ATEN.add.Tensor: None,
    ATEN.relu.default: None,
    ATEN.pixel_shuffle.default: None,
}
FUSED_WITH_RELU = {
    target for target in OPERATORS if target not in (ATEN.relu.default, ATEN.pixel_shuffle.default)
}
#: Clones between an operator and the quantize behind it, as frontends leave them.
CLONES = {ATEN.clone.default, ATEN.contiguous.default}


def quantize(
    module: torch.nn.Module,
    inputs: Sequence[torch.Tensor],
    only: Collection[Any] = tuple(OPERATORS),
    zero_points: dict[Any, int] | None = None,
    axes: dict[Any, int] | None = None,
    float_outputs: bool = False,
    dynamic: bool = False,
    dynamic_shapes: Any = None,
) -> ExportedProgram:
    """The exported program. ``only`` quantizes fewer operators, ``zero_points`` and ``axes`` override by operator.

    ``float_outputs``: what the program returns is not quantized. ``dynamic``: only what operators read is quantized,
    with scales made at run time. ``dynamic_shapes`` is as torch.export takes it.
    """
    exported = torch.export.export(module.eval(), tuple(inputs), dynamic_shapes=dynamic_shapes)
    graph_module = exported.module()
    ranges = _ranges(graph_module, inputs)
    _Quantizer(graph_module, ranges, only, zero_points or {}, axes or {}, float_outputs, dynamic).run()
    return torch.export.export(graph_module, tuple(inputs), dynamic_shapes=dynamic_shapes)


def _ranges(
    graph_module: fx.GraphModule, inputs: Sequence[torch.Tensor]
) -> dict[fx.Node, tuple[float, float]]:
    found: dict[fx.Node, tuple[float, float]] = {}

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if isinstance(result, torch.Tensor) and result.is_floating_point():
                found[n] = (min(float(result.min()), 0.0), max(float(result.max()), 0.0))
            return result

    with torch.no_grad():
        Recorder(graph_module).run(*inputs)
    return found


class _Quantizer:
    def __init__(self, module, ranges, only, zero_points, axes, float_outputs, dynamic) -> None:  # type: ignore[no-untyped-def]
        self.module, self.ranges = module, ranges
        self.only, self.zero_points, self.axes = only, zero_points, axes
        self.float_outputs, self.dynamic = float_outputs, dynamic
        self.graph: fx.Graph = module.graph
        self.quantized: dict[fx.Node, fx.Node] = {}
        self.count = 0

    def run(self) -> None:
        nodes = [n for n in self.graph.nodes if n.op == "call_function" and n.target in self.only]
        absorbed = {self.relu_behind(n) for n in nodes} - {None}
        ends = {self.end(n): n for n in nodes if n not in absorbed}
        self.targets = {last: node.target for last, node in ends.items()}
        for node in ends.values():
            self.take(node)
        for last in [] if self.dynamic else ends:
            self.give(last)
        self.graph.lint()
        self.module.recompile()

    def end(self, node: fx.Node) -> fx.Node:
        """The node whose result is quantized: the operator, its relu, or the clone behind a pixel shuffle."""
        last = self.relu_behind(node) or node
        if node.target == ATEN.pixel_shuffle.default:
            while len(last.users) == 1 and next(iter(last.users)).target in CLONES:
                last = next(iter(last.users))
        return last

    def relu_behind(self, node: fx.Node) -> fx.Node | None:
        user = next(iter(node.users)) if len(node.users) == 1 else None
        fused = node.target in FUSED_WITH_RELU and user is not None and user.target == ATEN.relu.default
        return user if fused else None

    def take(self, node: fx.Node) -> None:
        """Quantize the inputs and the weight of an operator."""
        weight = OPERATORS[node.target]
        for index, arg in enumerate(node.args):
            if not isinstance(arg, fx.Node):
                continue
            reader, held = node, arg
            if arg.target is ATEN.t.default:  # a transposed weight
                reader, held = arg, arg.args[0]
            if held.op == "get_attr":
                if weight is not None and index == weight[0]:
                    axis = self.axes.get(node.target, weight[1])
                    reader.replace_input_with(held, self.weight(reader, held, axis))
            elif not (node.target == ATEN.addmm.default and index == 0):
                reader = node
                while node.target == ATEN.pixel_shuffle.default and arg.target in CLONES:
                    reader, arg = arg, arg.args[0]
                reader.replace_input_with(arg, self.round_trip(reader, arg))

    def give(self, last: fx.Node) -> None:
        """Quantize a result, and dequantize it for each reader."""
        users = [user for user in last.users if user not in self.quantized.values()]
        for user in users:
            if user.op == "output" and self.float_outputs:
                continue
            user.replace_input_with(last, self.round_trip(user, last))

    def round_trip(self, reader: fx.Node, source: fx.Node) -> fx.Node:
        if self.dynamic:
            return self.at_run_time(reader, source)
        if source not in self.quantized:
            scale, zp = self.parameters(source)
            zp = self.zero_points.get(self.targets.get(source), zp)
            with self.graph.inserting_after(source):
                self.quantized[source] = self.graph.call_function(
                    OPS.quantize_per_tensor.default, (source, scale, zp, -128, 127, torch.int8)
                )
        quantize = self.quantized[source]
        with self.graph.inserting_before(reader):
            return self.graph.call_function(OPS.dequantize_per_tensor.default, (quantize, *quantize.args[1:]))

    def at_run_time(self, reader: fx.Node, source: fx.Node) -> fx.Node:
        with self.graph.inserting_before(reader):
            chosen = self.graph.call_function(
                OPS.choose_qparams.tensor, (source, -128, 127, 2**-12, torch.int8)
            )
            parameters = tuple(self.graph.call_function(getitem, (chosen, number)) for number in range(2))
            given = (*parameters, -128, 127, torch.int8)
            quantized = self.graph.call_function(OPS.quantize_per_tensor.tensor, (source, *given))
            return self.graph.call_function(OPS.dequantize_per_tensor.tensor, (quantized, *given))

    def parameters(self, node: fx.Node) -> tuple[float, int]:
        low, high = self.ranges[node]
        scale = max(high - low, 1e-5) / 255
        return scale, max(-128, min(127, round(-128 - low / scale)))

    def weight(self, reader: fx.Node, source: fx.Node, axis: int) -> fx.Node:
        values = (
            self.module.get_parameter(source.target)
            if source.target in dict(self.module.named_parameters())
            else self.module.get_buffer(source.target)
        )
        moved = values.detach().movedim(axis, 0)
        scale = moved.flatten(1).abs().amax(1).clamp_min(1e-5) / 127
        rounded = (moved / scale.reshape(-1, *[1] * (moved.ndim - 1))).round().clamp(-127, 127)
        self.count += 1
        parts = {
            "values": rounded.to(torch.int8).movedim(0, axis).contiguous(),
            "scale": scale,
            "zero": torch.zeros(len(scale), dtype=torch.int64),
        }
        nodes = []
        with self.graph.inserting_before(reader):
            for name, value in parts.items():
                self.module.register_buffer(f"w{self.count}_{name}", value)
                nodes.append(self.graph.get_attr(f"w{self.count}_{name}"))
            return self.graph.call_function(
                OPS.dequantize_per_channel.default, (*nodes, axis, -127, 127, torch.int8)
            )

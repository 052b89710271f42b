"""The same int8 network as a file for every engine: a .pte for refsim, one for XNNPACK, ONNX models, float weights.

Weights are drawn, quantized per output channel and shared by all; scales of the activations come from one run in
float32. Needs torch and ExecuTorch; the files stay in a folder that is named by a digest of the network and this code.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.ao.quantization.fx._decomposed
from torch import Tensor
from torch.nn import functional as F

from bench.peers.net import ADD, CONV, FLATTEN, LINEAR, MAXPOOL, MEAN, Bundled, Layer, Net

Q = torch.ops.quantized_decomposed
MODELS = Path(__file__).parents[2] / "tests" / "data" / "models"
#: To be raised when the files change.
FORMAT = 2


@dataclass(frozen=True)
class Quantized:
    """A network with numbers: per layer int8 weights with scales and a bias; per value (scale, zero point)."""

    net: Net
    weights: list[np.ndarray | None]
    weight_scales: list[np.ndarray | None]
    biases: list[np.ndarray | None]
    values: list[tuple[float, int]]
    shapes: list[tuple[int, ...]]
    x: np.ndarray


def apply(layer: Layer, inputs: list[Tensor], weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """A layer in float."""
    x = inputs[0]
    if layer.kind == CONV:
        y = F.conv2d(x, weight, bias, layer.stride, layer.pad, 1, layer.groups)  # type: ignore[arg-type]
    elif layer.kind == LINEAR:
        y = F.linear(x, weight, bias)  # type: ignore[arg-type]
    elif layer.kind == ADD:
        y = inputs[0] + inputs[1]
    elif layer.kind == MAXPOOL:
        y = F.max_pool2d(x, layer.kernel, layer.stride, layer.pad)
    elif layer.kind == FLATTEN:
        y = x.flatten(1)
    else:
        assert layer.kind == MEAN
        y = x.mean((2, 3), keepdim=True)
    return torch.relu(y) if layer.relu else y


def quantize(net: Net, seed: int = 0) -> Quantized:
    """Draw weights, quantize them, run once in float for the ranges."""
    torch.manual_seed(seed)
    x = torch.randn(net.shape)
    values, weights, scales, biases = [x], [], [], []
    with torch.inference_mode():
        for layer in net.layers:
            inputs = [values[i] for i in layer.inputs]
            weight = scale = bias = None
            if layer.kind in (CONV, LINEAR):
                fan = inputs[0].shape[1] // layer.groups * layer.kernel**2 if layer.kind == CONV else 0
                fan = fan or inputs[0].flatten(1).shape[1]
                size = (layer.out, fan // layer.kernel**2, layer.kernel, layer.kernel)
                drawn = torch.randn(size if layer.kind == CONV else (layer.out, fan)) * (2 / fan) ** 0.5
                scale = drawn.flatten(1).abs().amax(1) / 127
                shape = (-1, *[1] * (drawn.ndim - 1))
                weight = (drawn / scale.reshape(shape)).round().to(torch.int8)
                bias = torch.randn(layer.out) * 0.1
                values.append(apply(layer, inputs, weight * scale.reshape(shape), bias))
            else:
                values.append(apply(layer, inputs, None, None))
            weights.append(None if weight is None else weight.numpy())
            scales.append(None if scale is None else scale.numpy())
            biases.append(None if bias is None else bias.numpy())
    ranges = [_range(value) for value in values]
    for number, layer in enumerate(net.layers):
        if layer.kind in (MAXPOOL, FLATTEN):  # every engine keeps the parameters there
            ranges[number + 1] = ranges[layer.inputs[0]]
    return Quantized(net, weights, scales, biases, ranges, [tuple(v.shape) for v in values], x.numpy())


def _range(value: Tensor) -> tuple[float, int]:
    low, high = min(float(value.min()), 0.0), max(float(value.max()), 0.0)
    scale = float(np.float32((high - low) / 255))
    return scale, max(-128, min(127, round(-128 - low / scale)))


class Module(torch.nn.Module):
    """The network as PT2E quantization leaves it, or in float32 with the same weights."""

    def __init__(self, q: Quantized, quantized: bool) -> None:
        super().__init__()
        self.q, self.quantized = q, quantized
        for number, (weight, scale, bias) in enumerate(
            zip(q.weights, q.weight_scales, q.biases, strict=True)
        ):
            if weight is None:
                continue
            assert scale is not None
            if quantized:
                self.register_buffer(f"w{number}", torch.from_numpy(weight))
                self.register_buffer(f"s{number}", torch.from_numpy(scale))
                self.register_buffer(f"z{number}", torch.zeros(len(scale), dtype=torch.int64))
            else:
                real = torch.from_numpy(weight * scale.reshape(-1, *[1] * (weight.ndim - 1)))
                if real.ndim == 4:
                    real = real.contiguous(memory_format=torch.channels_last)
                self.register_buffer(f"w{number}", real)
            self.register_buffer(f"b{number}", torch.from_numpy(bias))

    def weight(self, number: int) -> Tensor:
        weight: Tensor = getattr(self, f"w{number}")
        if not self.quantized:
            return weight
        scale, zero = getattr(self, f"s{number}"), getattr(self, f"z{number}")
        return Q.dequantize_per_channel(weight, scale, zero, 0, -127, 127, torch.int8)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        q = self.q
        held = [self.stored(x, 0)]
        for number, layer in enumerate(q.net.layers):
            weighted = q.weights[number] is not None
            y = apply(
                layer,
                [self.read(held[i], i) for i in layer.inputs],
                self.weight(number) if weighted else None,
                getattr(self, f"b{number}") if weighted else None,
            )
            held.append(self.stored(y, number + 1))
        return self.read(held[-1], len(held) - 1)

    def stored(self, x: Tensor, value: int) -> Tensor:
        if not self.quantized:
            return x
        return Q.quantize_per_tensor(x, *self.q.values[value], -128, 127, torch.int8)  # type: ignore[no-any-return]

    def read(self, x: Tensor, value: int) -> Tensor:
        if not self.quantized:
            return x
        return Q.dequantize_per_tensor(x, *self.q.values[value], -128, 127, torch.int8)  # type: ignore[no-any-return]


# --- files -------------------------------------------------------------------------------------------------


def export(q: Quantized) -> torch.export.ExportedProgram:
    return torch.export.export(Module(q, True).eval(), (torch.from_numpy(q.x),))


def refsim_file(q: Quantized, path: Path) -> None:
    from refsim.partition.container import write
    from refsim.partition.lower import lower

    path.write_bytes(write(lower(export(q), q.net.name)))


def xnnpack_file(exported: torch.export.ExportedProgram, path: Path) -> None:
    """XNNPACK for what it takes; the names of the other operators lie beside the file."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
    left = [
        str(node.target)
        for node in edge.exported_program().graph.nodes
        if node.op == "call_function"
        and "getitem" not in str(node.target)
        and "delegate" not in str(node.target)
    ]
    path.with_suffix(".left").write_text("\n".join(left))
    path.write_bytes(edge.to_executorch().buffer)


def onnx_file(q: Quantized, path: Path, signed: bool) -> None:
    """QLinear operators; activations unsigned (U8S8) or signed (S8S8)."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    offset, kind = (0, np.int8) if signed else (128, np.uint8)
    nodes: list[Any] = []
    constants: dict[str, np.ndarray] = {}

    def const(name: str, value: Any, dtype: Any) -> str:
        constants[name] = np.asarray(value, dtype)
        return name

    def params(value: int) -> tuple[str, str]:
        scale, zp = q.values[value]
        return const(f"scale{value}", scale, np.float32), const(f"zp{value}", zp + offset, kind)

    def node(op: str, inputs: list[str], output: str, domain: str = "", **attributes: Any) -> None:
        nodes.append(helper.make_node(op, inputs, [output], domain=domain, **attributes))

    node("QuantizeLinear", ["x", *params(0)], "v0")
    ms = "com.microsoft"
    for number, layer in enumerate(q.net.layers):
        sources, out = layer.inputs, number + 1
        names = [f"v{i}" for i in sources]
        given = [item for name, i in zip(names, sources, strict=True) for item in (name, *params(i))]
        weighted: list[str] = []
        bias = ""
        if q.weights[number] is not None:
            weight, scale = q.weights[number], q.weight_scales[number]
            assert weight is not None and scale is not None and q.biases[number] is not None
            real = scale.astype(np.float64) * q.values[sources[0]][0]
            weighted = [
                const(f"w{number}", weight, np.int8),
                const(f"ws{number}", scale, np.float32),
                const(f"wz{number}", np.zeros(len(scale)), np.int8),
            ]
            bias = const(f"b{number}", np.rint(q.biases[number] / real), np.int32)
        if layer.kind == CONV:
            node("QLinearConv", [*given, *weighted, *params(out), bias], f"v{out}", strides=[layer.stride] * 2,
                 pads=[layer.pad] * 4, group=layer.groups, kernel_shape=[layer.kernel] * 2)  # fmt: skip
        elif layer.kind == LINEAR:
            node("QGemm", [*given, *weighted, bias, *params(out)], f"v{out}", ms, transB=1)
        elif layer.kind == ADD:
            node("QLinearAdd", [*given, *params(out)], f"v{out}", ms)
        elif layer.kind == MAXPOOL:
            node("MaxPool", names, f"v{out}", kernel_shape=[layer.kernel] * 2, strides=[layer.stride] * 2,
                 pads=[layer.pad] * 4)  # fmt: skip
        elif layer.kind == FLATTEN:
            node("Flatten", names, f"v{out}")
        else:
            node("QLinearGlobalAveragePool", [*given, *params(out)], f"v{out}", ms)
    last = len(q.net.layers)
    node("DequantizeLinear", [f"v{last}", *params(last)], "y")
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, q.shapes[0])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, q.shapes[-1])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(ms, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(path))


def digest(net: Net) -> str:
    """Of the network, and of what this file makes of it."""
    return hashlib.sha256(f"{FORMAT} {net!r}".encode()).hexdigest()[:16]


def build(net: Net | Bundled, folder: Path) -> Path:
    """The folder with the network's files; made if it is not there."""
    bundled = isinstance(net, Bundled)
    path = folder / (f"bundled-{net.name}" if bundled else digest(net))  # type: ignore[arg-type]
    if (path / "x.npy").exists():  # written last
        return path
    path.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    if isinstance(net, Bundled):
        (path / "refsim.pte").write_bytes((MODELS / f"{net.name}.pte").read_bytes())
        xnnpack_file(torch.export.load(MODELS / f"{net.name}.pt2"), path / "xnnpack.pte")
        np.save(path / "x.npy", np.load(MODELS / f"{net.name}.io.npz")["in0"])
        return path
    q = quantize(net)
    refsim_file(q, path / "refsim.pte")
    xnnpack_file(export(q), path / "xnnpack.pte")
    onnx_file(q, path / "u8s8.onnx", signed=False)
    onnx_file(q, path / "s8s8.onnx", signed=True)
    (path / "net.pickle").write_bytes(pickle.dumps(q))
    np.save(path / "x.npy", q.x)
    return path

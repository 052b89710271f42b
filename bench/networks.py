"""Networks as delegates of their own, built here without torch: `bench.peers.net`, as exporters write its layers.

Weights are drawn. Between a convolution and the next one MobileNetV2 has a dequantize, a clamp to [0, 6] and a
quantize, as its exported file has; scales are such that the clamp's upper bound counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.net import ADD, CONV, FLATTEN, LINEAR, MAXPOOL, MEAN, Layer, Net, mobilenet_v2, resnet50
from refsim.core.dtypes import BY_DELEGATE_CODE
from refsim.core.layout import CHANNELS_PACKED, PACKED_4W, PACKED_4W4C, PACKED_CONV2D, Layout
from refsim.core.rng import Rng
from refsim.exec.model import Model, load
from refsim.formats.literals import Bool, Double, Int, IntList, Null, String
from refsim.formats.vkgraph.read import read_blob
from refsim.formats.vkgraph.schema import OperatorCall, ValueList, VkGraph, VkTensor
from refsim.formats.vkgraph.write import pack_constants, write_blob
from refsim.graph.build import build
from refsim.ops.base.arg import Kind
from refsim.ops.base.registry import OPS

BUNDLED = Path(__file__).parents[1] / "tests" / "data" / "models"
CODES = {row.numpy: code for code, row in BY_DELEGATE_CODE.items() if row.computed}
#: Of every activation: reals from -5.4 to 7.4.
SCALE, ZP = 0.05, -20
QUANTIZATION = {"scale": SCALE, "zp": ZP, "in_scale": SCALE, "in_zp": ZP, "out_scale": SCALE, "out_zp": ZP}
SUM = {
    "a_scale": SCALE,
    "a_zp": ZP,
    "b_scale": SCALE,
    "b_zp": ZP,
    "out_scale": SCALE,
    "out_zp": ZP,
    "alpha": 1.0,
}


@dataclass
class Delegate:
    """A graph that is being written."""

    values: list[Any] = field(default_factory=list)
    calls: list[OperatorCall] = field(default_factory=list)
    constants: list[bytes] = field(default_factory=list)
    rng: Rng = field(default_factory=lambda: Rng(5))

    def value(self, value: Any) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def tensor(self, shape: tuple[int, ...], layout: Layout, dtype: Any = np.int8, constant: int = -1) -> int:
        code, packed = CODES[np.dtype(dtype)], dtype == np.int8
        return self.value(VkTensor(code, shape, constant, -1, 0 if packed else 1, layout.schema_value, code))

    def shape(self, value: int) -> tuple[int, ...]:
        return self.values[value].dims

    def literal(self, value: Any) -> int:
        kinds: Mapping[Any, Any] = {bool: Bool, int: Int, float: Double, str: String}
        if value is None:
            return self.value(Null())
        return self.value(IntList(value) if isinstance(value, tuple) else kinds[type(value)](value))

    def call(self, name: str, inputs: tuple[int, ...], out: int, *arguments: Any) -> int:
        """A float operator."""
        args = (*inputs, *map(self.literal, arguments), out)
        self.calls.append(OperatorCall(len(self.calls), name, args))
        return out if not isinstance(self.values[out], ValueList) else self.values[out].items[0]

    def q8ta(self, name: str, inputs: Mapping[str, int], out: int, channels: int = 0, **params: Any) -> int:
        """A q8ta operator, its constants drawn."""
        op = OPS[name]
        names = {arg.name for arg in op.of_kind(Kind.PARAM)}
        given = {key: value for key, value in {**QUANTIZATION, **SUM, **params}.items() if key in names}
        made, shapes = op.make_params(given), {key: self.shape(value) for key, value in inputs.items()}
        features = {"out_channels": channels, "bias": True}
        drawn = op.cases.constants(made, shapes, features, self.rng) if op.cases.constants else {}
        args = []
        for arg in op.args[:-1]:
            if arg.kind is Kind.INPUT:
                args.append(inputs[arg.name])
            elif arg.kind is Kind.CONST:
                array = np.ascontiguousarray(drawn[arg.name])
                self.constants.append(array.tobytes())
                args.append(self.constant(array))
            else:
                value = getattr(made, arg.name, None)
                args.append(self.literal(float(value) if isinstance(value, np.floating) else value))
        self.calls.append(OperatorCall(len(self.calls), op.serialized, (*args, out)))
        return out

    def constant(self, array: np.ndarray) -> int:
        code = CODES[array.dtype]
        return self.value(VkTensor(code, array.shape, len(self.constants) - 1, -1, 255, 255, code))

    def model(self, name: str, x: int, out: int) -> Model:
        rows, raw = pack_constants(self.constants)
        graph = VkGraph("0", tuple(self.calls), tuple(self.values), (x,), (out,), rows)
        return Model(name, {0: build(read_blob(write_blob(graph, raw, name), name), name)})


def delegate(net: Net, clamp: bool) -> Model:
    """A network as one delegate; ``clamp``: a relu is a clamp to [0, 6] of floats, not part of its convolution."""
    d = Delegate()
    x = d.tensor(net.shape, CHANNELS_PACKED, np.float32)
    shapes = net.shapes()
    pointwise = {i for layer in net.layers if _is_pointwise(layer) for i in layer.inputs}

    def packed(value: int) -> int:
        """The int8 tensor of a value, in the layout that the partitioner would give it."""
        layout = PACKED_4W4C if value in pointwise else PACKED_CONV2D
        return d.tensor(shapes[value], layout if len(shapes[value]) == 4 else PACKED_4W)

    held = [d.q8ta("q8ta_quantize", {"x": x}, packed(0))]
    for number, layer in enumerate(net.layers, 1):
        inputs = [held[i] for i in layer.inputs]
        held.append(_layer(d, layer, inputs, shapes[number], partial(packed, number), clamp))
    return d.model(net.name, x, _floats(d, held[-1]))


def _is_pointwise(layer: Layer) -> bool:
    return layer.kind == CONV and layer.kernel == layer.stride == layer.groups == 1


def _floats(d: Delegate, x: int) -> int:
    return d.q8ta("q8ta_dequantize", {"x": x}, d.tensor(d.shape(x), CHANNELS_PACKED, np.float32))


def _layer(
    d: Delegate, layer: Layer, x: list[int], shape: tuple[int, ...], packed: Callable[[], int], clamp: bool
) -> int:
    def real() -> int:
        return d.tensor(shape, CHANNELS_PACKED, np.float32)

    def quantized(value: int) -> int:
        return d.q8ta("q8ta_quantize", {"x": value}, packed())

    if layer.kind == CONV:
        relu = "relu" if layer.relu and not clamp else "none"
        window = {
            "kernel_size": (layer.kernel,) * 2, "stride": (layer.stride,) * 2, "padding": (layer.pad,) * 2,
            "dilation": (1, 1), "groups": layer.groups, "activation": relu,
        }  # fmt: skip
        name = (
            "q8ta_conv2d_dw"
            if layer.groups > 1
            else "q8ta_conv2d_pw"
            if _is_pointwise(layer)
            else "q8ta_conv2d"
        )
        made = d.q8ta(name, {"x": x[0]}, packed(), layer.out, **window)
        if not (layer.relu and clamp):
            return made
        return quantized(d.call("aten.hardtanh.default", (_floats(d, made),), real(), 0.0, 6.0))
    if layer.kind == LINEAR:
        return d.q8ta("q8ta_linear_gemv", {"x": x[0]}, packed(), layer.out, activation="none")
    if layer.kind == ADD:
        made = d.q8ta("q8ta_add", {"a": x[0], "b": x[1]}, packed())
        return d.q8ta("q8ta_relu", {"x": made}, packed()) if layer.relu else made
    if layer.kind == MAXPOOL:
        both = d.value(ValueList((real(), d.tensor(shape, CHANNELS_PACKED, np.int32))))
        window = ((layer.kernel,) * 2, (layer.stride,) * 2, (layer.pad,) * 2, (1, 1), False)
        return quantized(d.call("aten.max_pool2d_with_indices.default", (_floats(d, x[0]),), both, *window))
    if layer.kind == MEAN:  # the layer after it makes bytes again
        return d.call("aten.mean.dim", (_floats(d, x[0]),), real(), (-1, -2), True, None)
    assert layer.kind == FLATTEN
    return quantized(d.call("aten.view_copy.default", (x[0],), real(), shape))


#: Whole models, by the name of their row.
MODELS = {
    "whole ResNet-50 224": lambda: delegate(resnet50(), clamp=False),
    "whole MobileNetV2 224": lambda: delegate(mobilenet_v2(), clamp=True),
    **{f"whole {name}": lambda name=name: load(BUNDLED / f"{name}.pte")  # type: ignore[misc]
       for name in ("refine_seg", "mobilenet_v2_035_96", "mixed_ops")},
}  # fmt: skip

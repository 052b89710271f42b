"""Runtimes with one wrong kernel each: the simulated one, in which every node of an operator has the same bug."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.graph.graph import Node
from refsim.ops.base.spec import Call

Inputs = Mapping[str, PackedBuffer]
#: Elements (NCHW, as many dims as the tensor has) of a wrong kernel.
Edit = Callable[[Any, Inputs, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Wrong:
    """A bug: which operator has it, and in which model it shows. ``edit`` gives the wrong elements."""

    name: str
    operator: str
    model: str
    edit: Edit

    def __call__(self, node: Node, inputs: Inputs, right: PackedBuffer) -> PackedBuffer:
        if node.operator != self.operator:
            return right
        made = np.asarray(self.edit(node.call, inputs, right.unpack()))
        dtype = np.int8 if right.desc.is_int8 else np.float32
        fresh = PackedBuffer.pack(made.astype(dtype).reshape(right.desc.shape), right.desc.layout)
        spare = right.kinds() != ByteKind.VALUE
        fresh.raw[spare] = right.raw[spare]
        return fresh


def other(**changes: Any) -> Edit:
    """The right kernel with other parameters: each a value, or a function of the right one."""

    def edit(call: Call, inputs: Inputs, right: np.ndarray) -> np.ndarray:
        new = {k: v(getattr(call.params, k)) if callable(v) else v for k, v in changes.items()}
        return replace(call, params=replace(call.params, **new)).expected(inputs).unpack()

    return edit


def constants(**changes: Callable[[np.ndarray], np.ndarray]) -> Edit:
    """The right kernel with other constants."""

    def edit(call: Call, inputs: Inputs, right: np.ndarray) -> np.ndarray:
        held = {name: call.consts[name] for name in changes if call.consts[name] is not None}
        new = {name: changes[name](np.asarray(value)) for name, value in held.items()}
        return replace(call, consts={**call.consts, **new}).expected(inputs).unpack()

    return edit


def read(change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    """The right kernel, which reads each input otherwise."""

    def edit(call: Call, inputs: Inputs, right: np.ndarray) -> np.ndarray:
        changed = {}
        for name, held in inputs.items():
            made = np.ascontiguousarray(change(held.unpack())).reshape(held.desc.shape)
            changed[name] = PackedBuffer.pack(made, held.desc.layout)
        return call.expected(changed).unpack()

    return edit


def written(change: Callable[[np.ndarray], np.ndarray]) -> Edit:
    """The right elements, otherwise written."""
    return lambda call, inputs, right: change(right.copy())


def real(call: Call, inputs: Inputs) -> np.ndarray:
    """What q8ta_quantize rounds."""
    return inputs["x"].unpack() / np.float32(call.params.scale)


def truncated(call: Call, inputs: Inputs, right: np.ndarray) -> np.ndarray:
    return np.clip(np.trunc(real(call, inputs)) + call.params.zp, -128, 127)


def wrapped(call: Call, inputs: Inputs, right: np.ndarray) -> np.ndarray:
    return (np.rint(real(call, inputs) * 3) + call.params.zp).astype(np.int64).astype(np.int8)


def rows_of_first(x: np.ndarray) -> np.ndarray:
    return np.broadcast_to(x[:1], x.shape)


def lanes_swapped(x: np.ndarray) -> np.ndarray:
    """Neighbours along the last dim exchanged."""
    count = x.shape[-1] // 2 * 2
    x[..., :count] = x[..., :count].reshape(*x.shape[:-1], -1, 2)[..., ::-1].reshape(*x.shape[:-1], count)
    return x


def last_missing(x: np.ndarray) -> np.ndarray:
    """The last eighth was never written."""
    flat = x.reshape(-1)
    flat[-max(flat.size // 8, 1) :] = 0
    return x


def unordered(x: np.ndarray) -> np.ndarray:
    """Elements in an order that has no rule."""
    return np.random.default_rng(5).permutation(x.reshape(-1)).reshape(x.shape)


QUANTIZE, DEQUANTIZE, LINEAR, CONV = "q8ta_quantize", "q8ta_dequantize", "q8ta_linear", "q8ta_conv2d_pw"
WRONG: tuple[Wrong, ...] = (
    Wrong("quantize without its zero point", QUANTIZE, "linear_head", other(zp=0)),
    Wrong("quantize without its zero point, an image", QUANTIZE, "mixed_ops", other(zp=0)),
    Wrong("quantize with the zero point of another", QUANTIZE, "linear_head_gemv", other(zp=-7)),
    Wrong("quantize with half of its scale", QUANTIZE, "linear_head", other(scale=lambda s: s / 2)),
    Wrong("quantize with its scale as the factor", QUANTIZE, "mixed_ops", other(scale=lambda s: 1 / s)),
    Wrong("quantize truncates", QUANTIZE, "mixed_ops", truncated),
    Wrong("quantize wraps three times its values", QUANTIZE, "mixed_ops", wrapped),
    Wrong("quantize reads row 0 for all", QUANTIZE, "linear_head", read(rows_of_first)),
    Wrong("quantize reads H for W", QUANTIZE, "mixed_ops", read(lambda x: np.swapaxes(x, -1, -2))),
    Wrong(
        "quantize reads the element before",
        QUANTIZE,
        "linear_head",
        read(lambda x: np.roll(x.reshape(-1), 1)),
    ),
    Wrong("quantize reads magnitudes", QUANTIZE, "int8_classifier", read(np.abs)),
    Wrong("quantize reads nothing in order", QUANTIZE, "int8_squeeze", read(unordered)),
    Wrong("quantize writes lanes exchanged", QUANTIZE, "mixed_ops", written(lanes_swapped)),
    Wrong("quantize leaves out its last tile", QUANTIZE, "int8_scaled", written(last_missing)),
    Wrong("quantize bounds its values", QUANTIZE, "linear_head", written(lambda x: np.minimum(x, 40))),
    Wrong(
        "quantize writes its zero point alone", QUANTIZE, "linear_head_gemv", written(lambda x: x * 0 + 12)
    ),
    Wrong(
        "quantize writes signs alone", QUANTIZE, "mixed_ops", written(lambda x: np.where(x > 6, 127, -128))
    ),
    Wrong("linear without its bias", LINEAR, "linear_head", constants(bias=np.zeros_like)),
    Wrong("linear without weight sums", LINEAR, "linear_head", other(in_zp=0)),
    Wrong(
        "linear with other scales", LINEAR, "linear_head", constants(weight_scales=lambda s: np.roll(s, 1))
    ),
    Wrong("linear leaves out its last tile", "q8ta_linear_gemv", "linear_head_gemv", written(last_missing)),
    Wrong("convolution without its bias", CONV, "mixed_ops", constants(bias=np.zeros_like)),
    Wrong("convolution bounds its values", CONV, "mixed_ops", written(lambda x: np.minimum(x, 30))),
    Wrong("add with the zero point of another", "q8ta_add", "mixed_ops", other(out_zp=lambda z: z + 3)),
    Wrong("dequantize without its zero point", DEQUANTIZE, "linear_head", other(zp=0)),
    Wrong("dequantize with another scale", DEQUANTIZE, "mixed_ops", other(scale=lambda s: s * 2)),
    Wrong("dequantize leaves out its last tile", DEQUANTIZE, "int8_classifier", written(last_missing)),
    Wrong("a mean of floats is doubled", "aten.mean.dim", "int8_classifier", written(lambda x: x * 2)),
    Wrong("a gelu leaves out its last tile", "aten.gelu", "int8_mixer", written(last_missing)),
    Wrong("a float convolution exchanges lanes", "aten.convolution", "prelu", written(lanes_swapped)),
    Wrong("a float product leaves out its last tile", "aten.bmm", "int8_attention", written(last_missing)),
    Wrong(
        "an upsampling leaves out its last tile",
        "aten.upsample_nearest2d.vec",
        "upsample",
        written(last_missing),
    ),
)

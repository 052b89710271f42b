"""Every operator's emulated kernel at the size of a real layer, against its NumPy definition and the native kernel.

python -m bench.operators
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from math import prod
from typing import Any

from bench.harness import Bench, main
from refsim.exec.factory import executor_named
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case
from refsim.ops.base.spec import Prepared

_Q = dict(in_scale=0.02, in_zp=3, out_scale=0.05, out_zp=-4)
_3X3 = {**_Q, "kernel_size": (3, 3), "padding": (1, 1)}
_SHUFFLE = dict(in_scale=0.02, in_zp=3, out_inv_scale=20.0, out_zp=-4, upscale=2)


def _case(
    op: str, params: Mapping[str, Any], shape: tuple[int, ...], layout: str, out: str, **features: Any
) -> Case:
    return Case(op, params, {"x": (shape, layout)}, out, features=features)


def _add(shape: tuple[int, ...], layout: str) -> Case:
    params = dict(a_scale=0.02, a_zp=3, b_scale=0.03, b_zp=-7, out_scale=0.05, out_zp=5)
    return Case("q8ta_add", params, {"a": (shape, layout), "b": (shape, layout)}, layout)


#: Layers of ResNet-50 and MobileNetV2, and what surrounds them.
CASES: tuple[Case, ...] = (
    _case("q8ta_conv2d", {**_Q, "kernel_size": (7, 7), "stride": (2, 2), "padding": (3, 3)}, (1, 3, 112, 112), "4C1W",
          "4C1W", out_channels=64, bias=True),
    _case("q8ta_conv2d_general", _3X3, (1, 64, 28, 28), "4C1W", "4C1W", out_channels=64, bias=True),
    _case("q8ta_conv2d_im2col", _3X3, (1, 64, 28, 28), "4C", "4C", out_channels=64, bias=True),
    _case("q8ta_conv2d_pw", {**_Q, "kernel_size": (1, 1)}, (1, 256, 14, 14), "4W4C", "4W4C",
          out_channels=256, bias=True),
    _case("q8ta_conv2d_dw", {**_3X3, "groups": 144}, (1, 144, 56, 56), "4W4C", "4W4C", bias=True),
    _case("q8ta_conv2d_transposed", {**_Q, "kernel_size": (4, 4), "stride": (2, 2), "padding": (1, 1)}, (1, 64, 14, 14),
          "4C1W", "4C1W", out_channels=32, bias=True),
    _case("q8ta_im2col", {**_3X3, "out_scale": 0.02, "out_zp": 3}, (1, 64, 56, 56), "4C", "4W4C"),
    _case("q8ta_linear", _Q, (64, 512), "4H4W", "4H4W", out_channels=512, bias=True),
    _case("q8ta_linear_gemv", _Q, (1, 2048), "4W", "4W", out_channels=1000, bias=True),
    _add((1, 256, 56, 56), "4W4C"),
    _case("q8ta_relu", _Q, (1, 256, 56, 56), "4W4C", "4W4C"),
    _case("q8ta_pixel_shuffle", _SHUFFLE, (1, 128, 56, 56), "4C1W", "4C1W"),
    _case("q8ta_quantize", dict(scale=0.02, zp=3), (1, 64, 112, 112), "CHANNELS_PACKED", "4W4C"),
    _case("q8ta_dequantize", dict(scale=0.02, zp=3), (1, 64, 112, 112), "4W4C", "CHANNELS_PACKED"),
    _case("q8ta_clone", {}, (1, 64, 112, 112), "4W4C", "4C1W"),
    _case("nchw_to_int8x4", {"shape": (1, 64, 112, 112)}, (64 * 112 * 112,), "4W", "4W4C"),
    _case("int8x4_to_nchw", {}, (1, 64, 112, 112), "4W4C", "4W"),
)  # fmt: skip


class Data:
    """A bound case, prepared for the executor, and its logical inputs for the definition."""

    def __init__(self, case: Case) -> None:
        self.bound: BoundCase = bind(case)
        self.prepared = Prepared(self.bound.call)
        self.emulated, self.native = executor_named("cpu:emulated"), executor_named("cpu")
        self.arrays = {name: buffer.unpack() for name, buffer in self.bound.inputs.items()}


def kernel(data: Data) -> object:
    return data.emulated.run_prepared(data.prepared, data.bound.inputs)


def native(data: Data) -> object:
    return data.native.run_prepared(data.prepared, data.bound.inputs)


def definition(data: Data) -> object:
    return data.bound.call.define(data.arrays)


def work(data: Data) -> dict[str, float]:
    """Bytes read and written; multiply-adds where there are weights."""
    call = data.bound.call
    consts = [value for value in call.consts.values() if value is not None]
    moved = sum(b.desc.nbytes for b in data.bound.inputs.values()) + call.out.nbytes
    found = {"bytes": float(moved + sum(value.nbytes for value in consts))}
    weights = call.consts.get("weight")
    if weights is not None:
        found["macs"] = float(_macs(data, weights.size))
    return found


def _macs(data: Data, weights: int) -> int:
    """Every weight meets one element per place: of the output; of the input if the convolution is transposed."""
    call = data.bound.call
    desc = call.descs["x"] if call.op.name.endswith("transposed") else call.out
    channels = -1 if "linear" in call.op.name else -3
    return weights * prod(desc.shape) // desc.shape[channels]


def name_of(case: Case) -> str:
    ((shape, layout), *_) = case.inputs.values()
    size = "x".join(map(str, shape))
    out = f"->{case.features['out_channels']}" if "out_channels" in case.features else ""
    return f"{case.op} {size}{out} {layout}"


BENCHES = [
    Bench(
        name_of(case),
        lambda case=case: Data(case),
        kernel,
        {"definition": definition, "cpu": native},
        work,
        subject="cpu:emulated",
    )
    for case in CASES
]

if __name__ == "__main__":
    sys.exit(main("operators", BENCHES))

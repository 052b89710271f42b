"""linear_q8ta_q8csw: a linear layer from floats to floats, multiplied as int8: the head of most quantized classifiers.

    q = the activation, quantized with s_in and zp_in (quantize_and_pack_4h4w)
    adj = sum of q * w - zp_in * wsum (int32);  out = f32(adj) * (s_in * ws);  out = out + b

An int8 activation counts as quantized already; no kernel takes one. Leading dims fold into the rows.
Source: ET-VK's linear_q8ta_q8csw. With leading dims it computes only the first plane, which is a defect there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refsim.core.errors import LayoutError, ParameterError, ShapeError
from refsim.core.layout import WIDTH_PACKED
from refsim.core.resize import STALE_ROWS
from refsim.ops.base import float_linear, linear
from refsim.ops.base.defect import FIRST_PLANE
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, Part, Upstream
from refsim.ops.base.target import Target


class Params(float_linear.FloatLinearParams):
    """Quantization of the activation."""


def _quantization(params: Params) -> dict[str, float | int]:
    return {"scale": params.in_scale, "zp": params.in_zp}


def define(params: Params, target: Target, x: np.ndarray, **consts: np.ndarray) -> np.ndarray:
    if x.dtype != np.int8:
        quantize = OPS["quantize_and_pack_4h4w"]
        x = quantize.define(quantize.params(**_quantization(params)), target, x)
    return float_linear.define(params, target, x, **consts)


def expand(call: Call) -> Sequence[Part]:
    """Quantize the activation into a scratch tensor, then multiply."""
    quantize, tiled = OPS["quantize_and_pack_4h4w"], OPS["linear_q8ta_q8csw_tiled"]
    p: Params = call.params
    quantized = quantize.bind(quantize.params(**_quantization(p)), call.descs, {}, "4H4W", target=call.target)
    product = tiled.bind(
        tiled.params(p.in_scale, p.in_zp),
        {"x": quantized.out},
        call.consts,
        call.out.layout,
        out_shape=call.out.shape,
        target=call.target,
    )
    return (Part(quantized, {"x": "x"}, "scratch"), Part(product, {"x": "scratch"}))


#: ExecuTorch 1.5.1 lowers every such layer so.
IF_QUANTIZED = (
    "upstream's runtime refuses the file when it loads it: its kernel takes floats, and the activation is int8 "
    "here, by way of a texture that no shader writes (clone_buffer_to_image_int8_int32)"
)


EXAMPLE = linear.example(Params.where, (6, 16), "W", "W")

OP = float_linear.operator(
    Params,
    WIDTH_PACKED,
    serialized="et_vk.linear_q8ta_q8csw.default",
    define=define,
    expand=expand,
    cases=linear.rule(
        EXAMPLE,
        dict(x=(1, 1280), out_channels=1000),
        EXAMPLE.refused(ShapeError, "fill words", x=(6, 14)),
        EXAMPLE.refused(ParameterError, "in_zp", in_zp=-129),
        EXAMPLE.refused(LayoutError, "x has a layout", x="C"),
        make=float_linear.golden,
    ),
    upstream=Upstream(defects=(FIRST_PLANE,), if_quantized=IF_QUANTIZED, resize=STALE_ROWS),
)

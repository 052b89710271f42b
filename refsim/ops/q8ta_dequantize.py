"""quantized_decomposed.dequantize_per_tensor: packed int8 to a float tensor.

    x = f32(q - zp) * s

Source: ET-VK's q8ta_dequantize.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.core import index
from refsim.core.errors import LayoutError, ParameterError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import as_f32, f32_bits, lane
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS
from refsim.core.push import PushWords, SpecWords, float32, hashed, int32, tensor, vectors
from refsim.core.qmath import f32
from refsim.ops.base import elementwise, quantized
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import rule
from refsim.ops.base.host.row import float_tensor
from refsim.ops.base.padding import no_padding
from refsim.ops.base.spec import OpSpec, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family


@dataclass(frozen=True)
class Params(quantized.QuantizedParams):
    """Scale and zero point; the range and dtype that a graph carries must be int8's."""

    where = "dequantize_per_tensor"
    out_dtype: int | None = None


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    return f32(x.astype(np.int32) - params.zp) * np.float32(params.scale)


PUSH = PushWords(tensor("OUT"), tensor("X"), float32("SCALE"), int32("ZP"))
SPEC = SpecWords(hashed("OUT"), hashed("X"), vectors("OUT"), vectors("X"))
OUT, X, SCALE, ZP = PUSH.offsets
OUT_HASH, X_HASH, *_ = SPEC.offsets


@emulated_kernel
def kernel(reached, spec, push, x_words, out):  # type: ignore[no-untyped-def]
    out_hash, x_hash = spec[OUT_HASH], spec[X_HASH]
    scale = as_f32(push[SCALE])
    for z, y, x in np.ndindex(reached):
        i, w, h, c, n = elementwise.tile_word(x, y, z, push, OUT, out_hash)
        if i < 0:
            continue
        at = index.buf_idx(push, X, x_hash, w, h, c, n)
        out[i] = f32_bits(f32(lane(x_words[at // 4], at % 4) - push[ZP]) * scale)


EXAMPLE = Case(
    "q8ta_dequantize",
    dict(scale=0.02, zp=3),
    {"x": ((2, 5, 3, 7), "4W4C")},
    "CHANNELS_PACKED",
)

OP = OpSpec(
    name="q8ta_dequantize",
    serialized="quantized_decomposed.dequantize_per_tensor.default",
    family=Family.DEQUANTIZE,
    args=elementwise.args(Params, x=INT8_LAYOUTS, out=FLOAT_LAYOUTS),
    params=Params,
    define=define,
    out_shape=elementwise.same_shape,
    padding=no_padding,
    kernel=elementwise.tiles(kernel, PUSH, SPEC),
    cases=rule(
        1200,
        quantized.golden,
        EXAMPLE,
        dict(x=(1, 64, 112, 112)),
        EXAMPLE.refused(ParameterError, "zp", zp=200),
        EXAMPLE.refused(LayoutError, "out has a layout", out="4C"),
        hard=quantized.HARD,
    ),
    max_rank=8,
    upstream=Upstream(
        module=elementwise.module_between(
            float_tensor("q8ta_dequantize", "out"), ("scale", "zp"), order="out/x"
        )
    ),
)

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
from refsim.core.push import PushWords, float32, int32, tensor
from refsim.core.qmath import f32
from refsim.ops.base import elementwise, quantized
from refsim.ops.base.elementwise import OUT_HASH, SPEC, X_HASH
from refsim.ops.base.host.row import float_tensor
from refsim.ops.base.padding import no_padding
from refsim.ops.base.spec import Upstream
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
OUT, X, SCALE, ZP = PUSH.offsets


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


EXAMPLE = quantized.example("q8ta_dequantize", "4W4C", "CHANNELS_PACKED")

OP = elementwise.operator_between(
    EXAMPLE.op,
    Params,
    x=INT8_LAYOUTS,
    out=FLOAT_LAYOUTS,
    serialized="quantized_decomposed.dequantize_per_tensor.default",
    family=Family.DEQUANTIZE,
    define=define,
    padding=no_padding,
    kernel=elementwise.tiles(kernel, PUSH, SPEC),
    cases=quantized.rule(
        EXAMPLE,
        EXAMPLE.refused(ParameterError, "zp", zp=200),
        EXAMPLE.refused(LayoutError, "out has a layout", out="4C"),
        spread=1200,
    ),
    max_rank=8,
    upstream=Upstream(
        module=elementwise.module_between(
            float_tensor("q8ta_dequantize", "out"), ("scale", "zp"), order="out/x"
        )
    ),
)

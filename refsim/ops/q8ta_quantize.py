"""quantized_decomposed.quantize_per_tensor: a float tensor to packed int8.

    q = int(clamp(rne(x * inv), -128 - zp, 127 - zp)) + zp,  inv = f32(1 / scale)

NaN counts as 0. Infinities and huge values saturate. Source: ET-VK's q8ta_quantize, which converts before it clamps,
so values out of range are undefined there; see ``convert`` of the profiles. Here the float tensor is always a dense
buffer, even if a graph says texture, because only its logical elements are read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.core import index
from refsim.core.errors import LayoutError, ParameterError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import as_f32, insert
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS, C, H, W
from refsim.core.push import PushWords, tensor
from refsim.core.qmath import flush, inv_scale, requant
from refsim.ops.base import elementwise, quantized
from refsim.ops.base.elementwise import OUT_HASH, SPEC, X_HASH
from refsim.ops.base.host.row import float_tensor
from refsim.ops.base.padding import OnDevice, Pad, Padding
from refsim.ops.base.spec import Call, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family


@dataclass(frozen=True)
class Params(quantized.QuantizedParams):
    """Scale and zero point; the range and dtype that a graph carries must be int8's."""


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    flags = target.profile.flags
    with np.errstate(invalid="ignore", over="ignore"):
        return requant(flush(x, flags), inv_scale(params.scale), params.zp, flags).astype(np.int8)


def padding(call: Call) -> Padding:
    """Padding is 0.0 quantized, so the zero point. Upstream skips words in dims that its blocks do not walk."""
    out, source = call.out.layout, call.descs["x"].layout
    words_written = source.inner != H and (out.inner == C or source.inner == W)
    word = OnDevice.WRITTEN if words_written else OnDevice.UNTOUCHED
    return Padding(Pad(call.params.zp), Pad(call.params.zp, word))


PUSH = PushWords(tensor("OUT"), tensor("X"), *elementwise.REQUANT)
OUT, X, INV, ZP, FLAGS = PUSH.offsets


@emulated_kernel
def kernel(reached, spec, push, x_words, out):  # type: ignore[no-untyped-def]
    out_hash, x_hash = spec[OUT_HASH], spec[X_HASH]
    inv, zp, flags = as_f32(push[INV]), push[ZP], push[FLAGS]
    for z, y, x in np.ndindex(reached):
        i, w, h, c, n = elementwise.tile_word(x, y, z, push, OUT, out_hash)
        if i < 0:
            continue
        lanes = index.lanes_inside(push, OUT, out_hash, w, h, c, n)
        word = 0
        for k in range(4):
            q = zp
            if k < lanes:
                kw, kh, kc = index.lane_coord(out_hash, k, w, h, c)
                real = as_f32(x_words[index.buf_idx(push, X, x_hash, kw, kh, kc, n)])
                q = requant(flush(real, flags), inv, zp, flags)
            word = insert(word, k, q)
        out[i] = word


EXAMPLE = quantized.example("q8ta_quantize", "CHANNELS_PACKED", "4W4C")

OP = elementwise.operator_between(
    EXAMPLE.op,
    Params,
    x=FLOAT_LAYOUTS,
    out=INT8_LAYOUTS,
    serialized="quantized_decomposed.quantize_per_tensor.default",
    family=Family.QUANTIZE,
    define=define,
    padding=padding,
    kernel=elementwise.tiles(kernel, PUSH, SPEC),
    cases=quantized.rule(
        EXAMPLE,
        EXAMPLE.refused(ParameterError, "scale", scale=1e-30),
        EXAMPLE.refused(ParameterError, "qmin", qmin=0),
        EXAMPLE.refused(LayoutError, "x has a layout", x="4W"),
        EXAMPLE.refused(ShapeError, "rank", x=(1,) * 9),
        spread=1440,
    ),
    max_rank=8,
    upstream=Upstream(
        module=elementwise.module_between(float_tensor("q8ta_quantize", "x"), ("inv_scale", "zp"))
    ),
)

"""linear_q8ta_q8csw_tiled: q8ta_linear with a float output, the second step of linear_q8ta_q8csw.

    adj = acc - zp_in * wsum (int32);  out = f32(adj) * (s_in * ws);  out = out + b

Source: ET-VK's linear_q8ta_q8csw_tiled. With leading dims it computes only the first plane, and in a buffer it stores
rows every 4 * ceil(N / 4) floats where N are meant; both are defects there.
"""

from __future__ import annotations

import numpy as np

from refsim.core import index
from refsim.core.errors import LayoutError, ParameterError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import as_f32, f32_bits
from refsim.core.launch import Launch
from refsim.core.layout import PACKED_4H4W, C, H, W
from refsim.core.push import PushWords, SpecWords, hashed, int32, tensor
from refsim.ops.base import epilogue, float_linear, linear
from refsim.ops.base.gemm import TILE_CONFIGS, position_place, products, tile_config
from refsim.ops.base.spec import Call, KernelSpec


class Params(float_linear.FloatLinearParams):
    """As the whole operator."""

    where = "linear_q8ta_q8csw_tiled"


#: K4 counts words of K.
PUSH = PushWords(tensor("X"), tensor("OUT"), int32("K4"), *float_linear.EPILOGUE_WORDS)
SPEC = SpecWords(hashed("X"), hashed("OUT"))
X, OUT, K4, IN_ZP, IN_SCALE, FLAGS = PUSH.offsets
X_HASH, OUT_HASH = SPEC.offsets


def launch(call: Call) -> Launch:
    """Global size: rows, with leading dims folded into them, x fours of outputs. A work item writes four floats."""
    w, h, c, n = call.out.sizes_whcn
    k4 = call.descs["x"].shape[-1] // 4
    shape = tile_config(h * c * n, -(-w // 4), k4)
    words = float_linear.epilogue_words(call)
    return call.launched((h * c * n, -(-w // 4), 1), shape.local, shape.tile, shape.name, K4=k4, **words)


@emulated_kernel
def kernel(reached, spec, push, x_words, weight, sums, scales, bias, out):  # type: ignore[no-untyped-def]
    x_hash, out_hash = spec[X_HASH], spec[OUT_HASH]
    in_zp, in_scale, flags = push[IN_ZP], as_f32(push[IN_SCALE]), push[FLAGS]
    k_step = push[X + index.W_STRIDE] * index.words_per_block(x_hash)
    all_out = (push[OUT + W] + 3) // 4 * 4
    for _, o4, row in np.ndindex(reached):
        h, c, n = position_place(row, push[OUT + H], push[OUT + C])
        source = index.word_idx(push, X, x_hash, 0, h, c, n)
        acc = products((0, 0, 0, 0), push[K4], x_words, source, k_step, weight, 4 * o4, all_out)
        for k in range(min(4, push[OUT + W] - 4 * o4)):
            oc = 4 * o4 + k
            wsum, weight_scale, b = sums[oc], as_f32(scales[oc]), as_f32(bias[min(oc, bias.size - 1)])
            real = epilogue.int_real(acc[k], wsum, in_zp, weight_scale, in_scale, b, flags)
            out[index.buf_idx(push, OUT, out_hash, oc, h, c, n)] = f32_bits(real)


EXAMPLE = linear.example(Params.where, (6, 16), "4H4W", "W")

OP = float_linear.operator(
    Params,
    PACKED_4H4W,
    serialized="",
    kernel=KernelSpec(kernel, launch, PUSH, SPEC, linear.work_item, TILE_CONFIGS),
    cases=linear.rule(
        EXAMPLE,
        dict(x=(64, 512), out_channels=512),
        EXAMPLE.refused(ShapeError, "fill words", x=(6, 14)),
        EXAMPLE.refused(ParameterError, "in_scale", in_scale=0.0),
        EXAMPLE.refused(LayoutError, "x has a layout", x="4W"),
        make=float_linear.golden,
    ),
)

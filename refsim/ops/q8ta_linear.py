"""q8ta_linear: matrix product with an int8 weight per output row, any number of rows.

    adj = acc - zp_in * wsum (int32);  t = f32(adj) * (s_in * ws);  t = t + b;  relu;  q = requant(t)

Leading dims fold into the rows. Source: ET-VK's q8ta_linear. With leading dims it computes only the first M rows,
which is a defect there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.core import index
from refsim.core.errors import LayoutError, ParameterError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.launch import Launch
from refsim.core.layout import PACKED_4H4W, C, H, W
from refsim.ops.base import epilogue, linear
from refsim.ops.base.case_rule import CaseSlot, Made
from refsim.ops.base.defect import FIRST_PLANE
from refsim.ops.base.gemm import TILE_CONFIGS, position_place, products, tile_config
from refsim.ops.base.linear import EPILOGUE, IN_ZP, K4, OUT, OUT_HASH, X_HASH, X
from refsim.ops.base.spec import Call, KernelSpec, Upstream


@dataclass(frozen=True)
class Params(linear.LinearParams):
    """As both linear operators."""

    where = "q8ta_linear"


def launch(call: Call) -> Launch:
    """Global size: rows, with leading dims folded into them, x words of outputs."""
    w, h, c, n = call.out.sizes_whcn
    shape = tile_config(h * c * n, -(-w // 4), call.descs["x"].shape[-1] // 4)
    return call.launched(
        (h * c * n, -(-w // 4), 1), shape.local, shape.tile, shape.name, **linear.values(call)
    )


@emulated_kernel
def kernel(reached, spec, push, x_words, weight, sums, scales, bias, out):  # type: ignore[no-untyped-def]
    x_hash, out_hash = spec[X_HASH], spec[OUT_HASH]
    k_step = push[X + index.W_STRIDE] * index.words_per_block(x_hash)
    all_out = (push[OUT + W] + 3) // 4 * 4
    for _, o4, row in np.ndindex(reached):
        h, c, n = position_place(row, push[OUT + H], push[OUT + C])
        source = index.word_idx(push, X, x_hash, 0, h, c, n)
        acc = products((0, 0, 0, 0), push[K4], x_words, source, k_step, weight, 4 * o4, all_out)
        out[index.word_idx(push, OUT, out_hash, 4 * o4, h, c, n)] = epilogue.out_word(
            EPILOGUE, acc, 4 * o4, push[OUT + W], push, IN_ZP, sums, scales, bias
        )


def golden(slot: CaseSlot) -> Made:
    x, features = linear.golden_rows(slot)
    return linear.golden_params(slot), x, features


EXAMPLE = linear.example("q8ta_linear", (6, 16), "4H4W", "4H4W", out_scale=0.05, out_zp=-4)

OP = linear.operator(
    Params,
    serialized="et_vk.q8ta_linear.default",
    args=linear.args(PACKED_4H4W),
    kernel=KernelSpec(kernel, launch, linear.PUSH, linear.SPEC, linear.work_item, TILE_CONFIGS),
    cases=linear.rule(
        EXAMPLE,
        dict(x=(64, 512), out_channels=512),
        EXAMPLE.refused(ShapeError, "fill words", x=(6, 14)),
        EXAMPLE.refused(LayoutError, "x has a layout", x="4W"),
        EXAMPLE.refused(ParameterError, "out_scale", out_scale=float("nan")),
        EXAMPLE.refused(ParameterError, "K = 131072", x=(1, 131072)),
        make=golden,
    ),
    matrix=linear.matrix,
    upstream=Upstream(
        linear.module("q8ta_linear", ("ceil(w / 8)", "ceil(h / 4)", "1"), "square"), defects=(FIRST_PLANE,)
    ),
)

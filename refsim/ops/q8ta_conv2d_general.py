"""q8ta_conv2d_general: the convolution kernel that takes any window, dilation and groups.

    acc = sum of q_x * w over taps and channels of the group (outside the image: zp_in * w)
    t = f32(acc) - f32(wsum) * f32(zp_in);  t = t * (ws * s_in);  t = t + b;  relu;  q = requant(t)

Source: ET-VK's q8ta_conv2d kernel, which computes only batch 0 (a defect there).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.core import index
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import add_dot4, splat
from refsim.core.layout import C, H, W
from refsim.ops.base import conv, conv_cases, epilogue
from refsim.ops.base.conv import IC4, IN_ZP, KERNEL_H, KERNEL_W, OC4, OUT, OUT_HASH, X_HASH, X, tap_place
from refsim.ops.base.gemm import position_place
from refsim.ops.base.host.row import with_dot_product
from refsim.ops.base.traits import Epilogue


@dataclass(frozen=True)
class Params(conv.ConvParams):
    """As every convolution."""

    where = "q8ta_conv2d_general"


EPILOGUE = Epilogue.FLOAT_ZP


@emulated_kernel
def kernel(reached, spec, push, x_words, weight, sums, scales, bias, out):  # type: ignore[no-untyped-def]
    x_hash, out_hash = spec[X_HASH], spec[OUT_HASH]
    channel_step = push[X + index.C_STRIDE] * index.words_per_block(x_hash)
    border = splat(push[IN_ZP])
    all_oc = (push[OUT + C] + 3) // 4 * 4
    for group, word, position in np.ndindex(reached):
        ow, oh, n = position_place(position, push[OUT + W], push[OUT + H])
        oc4 = group * push[OC4] + word
        acc = 0, 0, 0, 0
        for i in range(push[KERNEL_H]):
            for j in range(push[KERNEL_W]):
                iw, ih, hit = tap_place(push, ow, oh, i, j)
                source = index.word_idx(push, X, x_hash, iw, ih, 4 * group * push[IC4], n) if hit else 0
                tap = (i * push[KERNEL_W] + j) * push[IC4]
                for ic4 in range(push[IC4]):
                    word = x_words[source + ic4 * channel_step] if hit else border
                    acc = add_dot4(acc, word, weight, (tap + ic4) * all_oc + 4 * oc4)
        to = index.word_idx(push, OUT, out_hash, ow, oh, 4 * oc4, n)
        out[to] = epilogue.out_word(EPILOGUE, acc, 4 * oc4, push[OUT + C], push, IN_ZP, sums, scales, bias)


EXAMPLE = conv_cases.example(Params.where)

#: Later releases compute all batches. What a module declares is the same, so those of another operator tell.
MODULE = conv.module(with_dot_product("q8ta_conv2d"), "conv").since(
    global_size=("ceil(w / 4)", "n * h", "ceil(c / 4)"), local_size="conv_narrow", told_by="q8ta_conv2d_pw"
)

OP = conv.operator(
    Params,
    serialized="et_vk.q8ta_conv2d_general.default",
    kernel=conv.kernel(kernel),
    cases=conv_cases.rule(
        EXAMPLE,
        dict(x=(1, 64, 28, 28), out_channels=64),
        *conv_cases.refused(EXAMPLE),
    ),
    epilogue=EPILOGUE,
    matrix=conv.matrix,
    upstream=conv.upstream(MODULE, exported=False),
)

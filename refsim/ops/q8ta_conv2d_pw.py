"""q8ta_conv2d_pw: pointwise (1x1) convolution; also the second step of the im2col path.

    adj = acc - zp_in * wsum (int32);  t = f32(adj) * (ws * s_in);  t = t + b;  relu;  q = requant(t)

With a bias, upstream computes t by fma(). In the canonical profile that is two roundings. Source: ET-VK's
q8ta_conv2d_pw, whose host ignores groups (a defect there: `GROUPS_IGNORED`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from refsim.core import index
from refsim.core.errors import LayoutError, ParameterError
from refsim.core.jit import emulated_kernel
from refsim.core.layout import PACKED_4W4C, C, H, W
from refsim.ops.base import conv, conv_cases, epilogue
from refsim.ops.base.arg import Arrays
from refsim.ops.base.case_rule import CaseSlot, Made
from refsim.ops.base.conv import IC4, IN_ZP, OC4, OUT, OUT_HASH, X_HASH, X
from refsim.ops.base.defect import FIRST_BATCH, Defect
from refsim.ops.base.gemm import position_place, products
from refsim.ops.base.host.row import ModuleCall, Shader, with_dot_product
from refsim.ops.base.host.weights import WINDOW
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import Epilogue


class Params(conv.ConvParams):
    """As every convolution, with the window fixed at one tap."""

    where = "q8ta_conv2d_pw"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in self.pairs().items():
            if getattr(self, name) != (least, least):
                raise ParameterError(
                    self.where, f"{name} is not pointwise", got=getattr(self, name), need=(least, least)
                )


EPILOGUE = Epilogue.INTEGER_ZP
KIND = conv.WindowKind(one_tap=True)


@emulated_kernel
def kernel(reached, spec, push, x_words, weight, sums, scales, bias, out):  # type: ignore[no-untyped-def]
    x_hash, out_hash = spec[X_HASH], spec[OUT_HASH]
    channel_step = push[X + index.C_STRIDE] * index.words_per_block(x_hash)
    all_oc = (push[OUT + C] + 3) // 4 * 4
    for group, word, position in np.ndindex(reached):
        w, h, n = position_place(position, push[OUT + W], push[OUT + H])
        oc4 = group * push[OC4] + word
        source = index.word_idx(push, X, x_hash, w, h, 4 * group * push[IC4], n)
        acc = products((0, 0, 0, 0), push[IC4], x_words, source, channel_step, weight, 4 * oc4, all_oc)
        to = index.word_idx(push, OUT, out_hash, w, h, 4 * oc4, n)
        out[to] = epilogue.out_word(EPILOGUE, acc, 4 * oc4, push[OUT + C], push, IN_ZP, sums, scales, bias)


# --- what upstream does wrong ----------------------------------------------------------------------------


def _one_group(call: Call) -> Call:
    """The call as upstream's host packs and launches it: a row of weights has as many values as the input has channels.

    The rows of the first group are made of its own weights, several rows in one. Those of the others lie behind all
    weights; they are zeros here.
    """
    (weight,) = call.given("weight")
    outputs = call.out.shape[-3]
    rows = np.zeros((outputs, call.descs["x"].shape[-3]), np.int8)
    rows.reshape(-1)[: weight[:outputs].size] = weight[:outputs].reshape(-1)
    return replace(call, params=replace(call.params, groups=1), consts={**call.consts, "weight": rows})


def _groups_ignored(call: Call, arrays: Arrays) -> np.ndarray:
    assert FIRST_BATCH.values is not None
    return FIRST_BATCH.values(_one_group(call), arrays)


def _behind_weights(call: Call) -> np.ndarray:
    outputs = call.out.shape[-3]
    later = np.arange(outputs) >= outputs // call.params.groups
    return np.broadcast_to(later[:, None, None], call.out.shape)


GROUPS_IGNORED = Defect(
    "groups",
    "upstream ignores groups: each output sums over all input channels, with weights of other outputs",
    lambda call: call.params.groups > 1,
    _groups_ignored,
    _behind_weights,
    in_host=True,
    instead=_one_group,
)


def golden(slot: CaseSlot) -> Made:
    groups, channels, out = conv_cases.golden_channels(slot)
    window = {"kernel_size": (1, 1), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    params = conv_cases.golden_params(slot, window, groups)
    features = {"out_channels": out, "bias": slot.bias}
    return params, conv_cases.golden_image(slot, params, channels), features


EXAMPLE = conv_cases.example(Params.where, "4W4C", kernel_size=(1, 1))

#: Later releases compute all batches, and take the first row of a tile from the push words.
MODULE = ModuleCall(
    shaders=(
        *with_dot_product(Params.where),
        Shader(f"{Params.where}_unsigned_float", dot_product=True, unsigned=True, textures=("weight",)),
        Shader(f"{Params.where}_unsigned_buffer_float", dot_product=True, unsigned=True),
    ),
    bindings=("out", "x", *epilogue.CONSTS, "meta:out", "meta:x"),
    push=("in_scale", "in_zp", "inv_out_scale", "out_zp", "k4", "oc4"),
    spec=("apply_bias", "activation", "layout:out", "layout:x"),
    global_size=("ceil(c / 4)", "ceil(w / 4)", "h"),
    local_size="square",
    packing={"weight": WINDOW},
)
ALL_BATCHES = ("ceil(c / 4)", "ceil(w / 4)", "n * h")
MODULE = MODULE.since(global_size=ALL_BATCHES, came_with=f"{Params.where}_unsigned_float").since(
    push=(*MODULE.push, "0"), spec=(*MODULE.spec, "fed:x"), global_size=ALL_BATCHES
)

OP = conv.operator(
    Params,
    KIND,
    serialized="et_vk.q8ta_conv2d_pw.default",
    args=conv.args(KIND, (PACKED_4W4C,)),
    kernel=conv.kernel(kernel),
    cases=conv_cases.rule(
        EXAMPLE,
        dict(x=(1, 256, 14, 14), out_channels=256),
        EXAMPLE.refused(ParameterError, "stride", stride=(2, 2)),
        EXAMPLE.refused(LayoutError, "x has a layout", x="4C"),
        kind=KIND,
        spread=1280,
        make=golden,
    ),
    epilogue=EPILOGUE,
    matrix=conv.matrix,
    upstream=conv.upstream(MODULE, GROUPS_IGNORED),
)

"""q8ta_conv2d: convolution by the kernel that upstream would pick.

Upstream picks im2col if channels per group % 4 == 0 and (the device is a Mali, or groups == 1 and (channels per group
>= 32 or H_out * W_out <= 4096)); otherwise general. The two have different epilogues, so some bytes differ. Later
runtimes have another rule for several images, and for groups (`_many_images`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from math import prod

import numpy as np

from refsim.core.layout import PACKED_4C, PACKED_4C1W, Layout
from refsim.ops.base import conv, conv_cases
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, OpSpec, Part
from refsim.ops.base.target import MANY_IMAGES, ONE_IMAGE, Target


class Params(conv.ConvParams):
    """As every convolution."""


def _one_image(params: conv.ConvParams, per_group: int, out: tuple[int, ...], mali: bool) -> bool:
    small = per_group >= 32 or out[-2] * out[-1] <= 4096
    return mali or (params.groups == 1 and small)


#: Of several images: the least kernel and the largest output for which im2col pays off off Mali, the bytes of its one
#: scratch tensor, and the largest kernel whose unsigned sums fit into 32 bits.
LEAST_KERNEL, MOST_PLACES, SCRATCH, MOST_KERNEL = 1024, 64, 16 << 20, 33025


def _many_images(params: conv.ConvParams, per_group: int, out: tuple[int, ...], mali: bool) -> bool:
    if params.groups > 1 and out[-3] // params.groups % 4:
        return False  # a block of outputs would stand in two groups
    images = prod(out[:-3])
    if images == 1:
        return _one_image(params, per_group, out, mali)
    kernel = -(-per_group * prod(params.kernel_size) // 4) * 4
    if mali and kernel <= MOST_KERNEL:
        return True
    tile = kernel * images * out[-2] * -(-out[-1] // 4) * 4
    deep = kernel >= LEAST_KERNEL and out[-2] * out[-1] <= MOST_PLACES
    return params.groups == 1 and deep and tile <= SCRATCH


#: The rules by name; each is asked where the channels of a group are a multiple of four.
ROUTINGS: Mapping[str, Callable[[conv.ConvParams, int, tuple[int, ...], bool], bool]] = {
    ONE_IMAGE: _one_image,
    MANY_IMAGES: _many_images,
}


def uses_im2col(params: conv.ConvParams, channels: int, out: tuple[int, ...], target: Target) -> bool:
    """Upstream's choice of kernel for this many input channels and an output of this shape."""
    per_group = channels // params.groups
    return per_group % 4 == 0 and ROUTINGS[target.runtime.routing](params, per_group, out, target.mali)


def choice(params: conv.ConvParams, channels: int, out: tuple[int, ...], target: Target) -> OpSpec:
    """The operator that upstream would pick."""
    return OPS["q8ta_conv2d_im2col" if uses_im2col(params, channels, out, target) else "q8ta_conv2d_general"]


def input_layout(params: conv.ConvParams, x: tuple[int, ...], out: tuple[int, ...], target: Target) -> Layout:
    """The layout that the dynamic convolution layout becomes, for the kernel that will run."""
    return PACKED_4C if uses_im2col(params, x[-3], out, target) else PACKED_4C1W


def define(params: Params, target: Target, x: np.ndarray, **consts: np.ndarray) -> np.ndarray:
    size = params.out_size((x.shape[-2], x.shape[-1]))
    out = (*x.shape[:-3], len(consts["weight_scales"]), *size)
    chosen = choice(params, x.shape[-3], out, target)
    assert chosen.epilogue is not None
    return conv.define_conv(chosen.epilogue, params, target, x, **consts)


def expand(call: Call) -> Sequence[Part]:
    """The chosen kernel, as one part."""
    op = choice(call.params, call.descs["x"].shape[-3], call.out.shape, call.target)
    return (Part(replace(call, op=op, params=op.params(**asdict(call.params))), {"x": "x"}),)


EXAMPLE = conv_cases.example("q8ta_conv2d")

OP = conv.operator(
    Params,
    serialized="et_vk.q8ta_conv2d.default",
    define=define,
    expand=expand,
    input_layout=input_layout,
    cases=conv_cases.rule(
        EXAMPLE,
        dict(x=(1, 3, 112, 112), out_channels=64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3)),
        *conv_cases.refused(EXAMPLE),
    ),
    clamps=True,
    picks=True,
    upstream=conv.upstream(None),
)

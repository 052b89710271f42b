"""q8ta_conv2d: convolution by the kernel that upstream would pick.

Upstream picks im2col if channels per group % 4 == 0 and (the device is a Mali, or groups == 1 and (channels per group
>= 32 or H_out * W_out <= 4096)); otherwise general. The two have different epilogues, so some bytes differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from refsim.core.layout import PACKED_4C, PACKED_4C1W, Layout
from refsim.core.resize import BOUND_BATCH
from refsim.ops.base import conv, conv_cases
from refsim.ops.base.case_rule import CaseRule
from refsim.ops.base.defect import FIRST_BATCH
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, OpSpec, Part
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family


@dataclass(frozen=True)
class Params(conv.ConvParams):
    """As every convolution."""


def uses_im2col(params: conv.ConvParams, channels: int, out_hw: tuple[int, int], target: Target) -> bool:
    """Upstream's choice of kernel for this many input channels and this output size."""
    per_group = channels // params.groups
    if per_group % 4:
        return False
    small = per_group >= 32 or out_hw[0] * out_hw[1] <= 4096
    return target.mali or (params.groups == 1 and small)


def choice(params: conv.ConvParams, channels: int, out_hw: tuple[int, int], target: Target) -> OpSpec:
    """The operator that upstream would pick."""
    return OPS[
        "q8ta_conv2d_im2col" if uses_im2col(params, channels, out_hw, target) else "q8ta_conv2d_general"
    ]


def input_layout(params: conv.ConvParams, x: tuple[int, ...], out: tuple[int, ...], target: Target) -> Layout:
    """The layout that the dynamic convolution layout becomes, for the kernel that will run."""
    return PACKED_4C if uses_im2col(params, x[-3], (out[-2], out[-1]), target) else PACKED_4C1W


def define(params: Params, target: Target, x: np.ndarray, **consts: np.ndarray) -> np.ndarray:
    chosen = choice(params, x.shape[-3], params.out_size((x.shape[-2], x.shape[-1])), target)
    assert chosen.epilogue is not None
    return conv.define_conv(chosen.epilogue, params, target, x, consts)


def expand(call: Call) -> Sequence[Part]:
    """The chosen kernel, as one part."""
    shape = call.out.shape
    op = choice(call.params, call.descs["x"].shape[-3], (shape[-2], shape[-1]), call.target)
    return (Part(replace(call, op=op, params=op.params(**asdict(call.params))), {"x": "x"}),)


EXAMPLE = conv_cases.example("q8ta_conv2d")

OP = OpSpec(
    name="q8ta_conv2d",
    serialized="et_vk.q8ta_conv2d.default",
    family=Family.CONVOLUTION,
    resize=BOUND_BATCH,
    args=conv.args(),
    params=Params,
    define=define,
    out_shape=conv.out_shape,
    padding=conv.padding,
    defects=(FIRST_BATCH,),
    expand=expand,
    prepack=conv.prepack,
    check=conv.check,
    input_layout=input_layout,
    constants=conv_cases.constants,
    golden=CaseRule(1440, conv_cases.golden, hard=conv_cases.hard(conv_cases.golden)),
    example=EXAMPLE,
    bench=EXAMPLE.changed(
        x=(1, 3, 112, 112), out_channels=64, kernel_size=(7, 7), stride=(2, 2), padding=(3, 3)
    ),
    refused=conv_cases.refused(EXAMPLE),
    min_rank=3,
    clamps=True,
    picks=True,
)

"""q8ta_conv2d_im2col: convolution as q8ta_im2col into a scratch tensor, then q8ta_conv2d_pw over it.

The epilogue is the pointwise one. Channels per group % 4 == 0. Source: ET-VK's q8ta_conv2d_im2col.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from refsim.core.errors import ShapeError
from refsim.core.rng import Rng
from refsim.ops.base import conv, epilogue
from refsim.ops.base.case import Case, ErrorCase
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, OpSpec, Part, Target
from refsim.ops.base.traits import Epilogue, Family


@dataclass(frozen=True)
class Params(conv.ConvParams):
    """As every convolution."""

    where = "q8ta_conv2d_im2col"


def define(params: Params, target: Target, x: np.ndarray, **consts: np.ndarray) -> np.ndarray:
    return conv.define_conv(epilogue.int_epilogue, params, target, x, consts)


def expand(call: Call) -> Sequence[Part]:
    """Windows to a scratch tensor, then a pointwise convolution over as many columns as the output has."""
    im2col, pointwise = OPS["q8ta_im2col"], OPS["q8ta_conv2d_pw"]
    values = asdict(call.params)
    windows = im2col.bind(im2col.params(**values), call.descs, {}, "4W4C", target=call.target)
    window = {"kernel_size": (1, 1), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    over = replace(
        call, op=pointwise, params=pointwise.params(**{**values, **window}), descs={"x": windows.out}
    )
    return (Part(windows, {"x": "x"}, "scratch"), Part(over, {"x": "scratch"}))


def check(call: Call) -> None:
    conv.check(call)
    channels, groups = call.descs["x"].shape[-3], call.params.groups
    if channels % (4 * groups):
        raise ShapeError(
            Params.where,
            "channels per group do not fill words",
            got=f"{channels} in {groups} groups",
            need="a multiple of 4 per group",
        )


def sample(rng: Rng) -> Case:
    groups = rng.choice([1, 1, 1, 2, 3])
    channels = 4 * groups * rng.integer(1, 2)
    out = rng.integer(1, 10) if groups == 1 else 4 * groups * rng.integer(1, 2)
    params = epilogue.random_quantization(rng) | conv.random_window(rng) | {"groups": groups}
    return conv.sample_case(rng, Params.where, params, channels, out)


CASES = (
    *conv.cases(Params.where),
    ErrorCase(
        Case(Params.where, conv.BASE, {"x": ((1, 6, 5, 6), "4C1W")}, "4C", features={"out_channels": 4}),
        ShapeError,
        "do not fill words",
    ),
)

OP = OpSpec(
    name=Params.where,
    serialized="",
    family=Family.CONVOLUTION,
    args=conv.args(),
    params=Params,
    define=define,
    out_shape=conv.out_shape,
    padding=conv.padding,
    expand=expand,
    prepack=conv.prepack,
    check=check,
    constants=conv.constants,
    sample=sample,
    cases=CASES,
    min_rank=3,
    epilogue=Epilogue.INTEGER_ZP,
    any_channels=False,
)

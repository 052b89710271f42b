"""q8ta_conv2d_im2col: convolution as q8ta_im2col into a scratch tensor, then q8ta_conv2d_pw over it.

It has the pointwise epilogue, and needs channels per group % 4 == 0. Source: ET-VK's q8ta_conv2d_im2col.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from refsim.core.errors import ShapeError
from refsim.ops.base import conv, conv_cases
from refsim.ops.base.host.row import ModuleCall
from refsim.ops.base.host.weights import MATRIX
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call, Part
from refsim.ops.base.traits import Epilogue


class Params(conv.ConvParams):
    """As every convolution."""

    where = "q8ta_conv2d_im2col"


EPILOGUE = Epilogue.INTEGER_ZP
KIND = conv.WindowKind(whole_words=True)


def expand(call: Call) -> Sequence[Part]:
    """Write the windows to a scratch tensor, then run a pointwise convolution over the output's columns."""
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
    conv.check_words(call)


EXAMPLE = conv_cases.example(Params.where, "4C")

OP = conv.operator(
    Params,
    KIND,
    serialized="et_vk.q8ta_conv2d_im2col.default",
    expand=expand,
    check=check,
    cases=conv_cases.rule(
        EXAMPLE,
        dict(x=(1, 64, 28, 28), out_channels=64),
        *conv_cases.refused(EXAMPLE),
        EXAMPLE.refused(ShapeError, "do not fill words", x=(1, 6, 5, 6)),
        kind=KIND,
    ),
    epilogue=EPILOGUE,
    matrix=conv.matrix,
    upstream=conv.upstream(ModuleCall(packing={"weight": MATRIX}), exported=False),
)

"""A convolution whose words fit into a test that spells them."""

from __future__ import annotations

from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.spec import Call


def convolution(channels: int, out: int, **params: object) -> Call:
    values = dict(in_scale=0.5, in_zp=-3, out_scale=0.1, out_zp=7, kernel_size=(3, 2), stride=(2, 1)) | params
    case = Case(
        "q8ta_conv2d_general", values, {"x": ((2, channels, 9, 10), "4C1W")}, "4C", 5, {"out_channels": out}
    )
    return bind(case).call

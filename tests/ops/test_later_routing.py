"""The kernel that the runtime of ExecuTorch's main picks for several images, and the bytes that change with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from refsim.check.runtime import runtime
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target

OP = OPS["q8ta_conv2d"]


def test_sums_above_24_bits_are_rounded_before_the_zero_point_goes() -> None:
    """im2col subtracts it from the integer; the general kernel, which main picks for 81 places, from a float."""
    shape = (2, 128, 9, 9)
    call = bind(OP.cases.example.changed(x=shape, out_channels=4, in_zp=127), Target()).call
    consts = dict(call.consts)
    consts |= {name: np.full_like(consts[name], 127) for name in ("weight",)}
    consts |= {"weight_sums": np.full_like(consts["weight_sums"], 127 * 1152), "bias": None}
    consts["weight_scales"] = np.full_like(consts["weight_scales"], 1)
    params = replace(call.params, in_scale=1.0, out_scale=1.0, out_zp=0)
    x = np.full(shape, 127, np.int8)
    x[:, 0, 4, 4] = 126
    found = [
        replace(call, params=params, consts=consts, target=Target(runtime=runtime(name).behaviour)).define({"x": x})
        for name in ("2026-08", "main")
    ]  # fmt: skip
    places = (0, 0, slice(4, 5), slice(4, 5))
    assert [array[places].item() for array in found] == [-127, -128]
    border = np.zeros(found[0].shape, bool)
    border[..., 1:-1, 1:-1] = True
    assert (found[0] != found[1])[border].sum() == 2 * 4 * 9

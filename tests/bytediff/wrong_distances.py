"""Kernels that count the elements of a line of memory wrongly, as plain loops over that memory, each with one bug."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.case import Case

F = np.float32
#: Ten channels in words of four: two bytes of each pixel are padding.
DEQUANTIZE = bind(
    Case("q8ta_dequantize", dict(scale=0.25, zp=5), {"x": ((2, 10, 3, 7), "4W4C")}, "W", seed=4)
)
FLOATS = bind(
    Case(
        "linear_q8ta_q8csw_tiled", dict(in_scale=0.05, in_zp=9), {"x": ((6, 96), "4H4W")}, "W", seed=5,
        features={"out_channels": 21, "bias": True},
    )
)  # fmt: skip
CONV = bind(
    Case(
        "q8ta_conv2d",
        dict(
            kernel_size=(3, 3), stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=1, in_scale=0.05, in_zp=-3,
            out_scale=0.9, out_zp=4, activation="none",
        ),
        {"x": ((1, 8, 6, 7), "4W4C")}, "4W4C", seed=6, features={"out_channels": 12, "bias": True},
    )
)  # fmt: skip

Wrong = Callable[[], tuple[BoundCase, Any]]


def dequantize(apart: int, channel: Callable[[int], int] = lambda c: c) -> Wrong:
    """Rows of pixels of 12 bytes are written to scratch, and read as if a pixel had ``apart``."""

    def make() -> tuple[BoundCase, np.ndarray]:
        x = DEQUANTIZE.inputs["x"].unpack()
        out = np.zeros(x.shape, F)
        scratch = np.zeros((2, 3, 7, 12), np.int64)
        scratch[..., :10] = x.transpose(0, 2, 3, 1)
        memory = scratch.reshape(-1)
        for n, c, h, w in np.ndindex(*x.shape):
            at = (n * 3 + h) * 84 + w * apart + channel(c)
            held = memory[at] if at < memory.size else 0
            out[n, c, h, w] = F(held - 5) * F(0.25)
        return DEQUANTIZE, out

    return make


def linear(
    begin: int = 0,
    product: Callable[[int, int], int] = lambda a, b: a * b,
    read: Callable[[int], int] = lambda k: k,
    place: Callable[[int], int] | None = None,
) -> Wrong:
    """Rows of products, as floats; ``place`` of an output in memory that is written a strip of 16 after the other."""

    def make() -> tuple[BoundCase, np.ndarray]:
        p, c, x = FLOATS.call.params, FLOATS.call.consts, FLOATS.inputs["x"].unpack()
        weight, sums, scales, bias = (
            np.asarray(c[n]) for n in ("weight", "weight_sums", "weight_scales", "bias")
        )
        memory = np.zeros(6 * 21 + 64, F)
        for m, n in np.ndindex(6, 21):
            total = begin
            for k in range(96):
                total += product(int(x[m, read(k)]), int(weight[n, k]))
            t = F(total - p.in_zp * int(sums[n])) * F(scales[n] * F(p.in_scale))
            at = m * 21 + (n if place is None else place(n))
            memory[at] = F(t + bias[n])
        return FLOATS, memory[: 6 * 21].reshape(1, 1, 6, 21)

    return make


ROWS: tuple[tuple[str, str, Wrong], ...] = (
    ("elements at another distance", "read with pixels 10 elements apart instead of 12", dequantize(10)),
    ("elements at another distance", "read with words of a pixel 8 elements apart instead of 4",
     dequantize(12, lambda c: c // 4 * 8 + c % 4)),
    ("elements at another distance", "x read with vectors of 32 at 0.5 times their place in the line",
     linear(read=lambda k: k // 32 * 16 + k % 32)),
    ("elements at another distance", "written with vectors of 16 at 0.5 times their place in the line",
     linear(place=lambda n: n if n < 16 else n - 8 if n < 20 else 10)),
)  # fmt: skip

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


def in_panels(panel: int, row_apart: int, panel_apart: int) -> Wrong:
    """The same with its constants in panels of so many outputs: what sums begin with, scales and biases, in rows."""

    def make() -> tuple[BoundCase, np.ndarray]:
        p, c, x = FLOATS.call.params, FLOATS.call.consts, FLOATS.inputs["x"].unpack()
        weight, sums, scales, bias = (
            np.asarray(c[n]) for n in ("weight", "weight_sums", "weight_scales", "bias")
        )
        memory = np.zeros(21 * 16, np.int32)
        for n in range(21):
            at = n // panel * 4 * panel + n % panel
            memory[at] = -p.in_zp * int(sums[n])
            memory[at + panel] = F(scales[n] * F(p.in_scale)).view(np.int32)
            memory[at + 2 * panel] = F(bias[n]).view(np.int32)
        out = np.zeros((1, 1, 6, 21), F)
        for m, n in np.ndindex(6, 21):
            at = n // panel * panel_apart + n % panel
            begin, scale, term = (memory[at + row * row_apart] for row in range(3))
            total = int(begin) + sum(int(a) * int(b) for a, b in zip(x[m], weight[n], strict=False))
            out[0, 0, m, n] = F(F(F(total) * scale.view(F)) + term.view(F))
        return FLOATS, out

    return make


def convolution(product: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Wrong:
    """A convolution whose inputs and weights meet in another way."""

    def make() -> tuple[BoundCase, np.ndarray]:
        p, c = CONV.call.params, CONV.call.consts
        image = np.full((8, 8, 9), p.in_zp, np.int64)
        image[:, 1:7, 1:8] = CONV.inputs["x"].unpack()[0]
        weight, sums, scales, bias = (
            np.asarray(c[n]) for n in ("weight", "weight_sums", "weight_scales", "bias")
        )
        taps = weight.reshape(12, 3, 3, -1)[..., :8].transpose(0, 3, 1, 2).astype(np.int64)
        out = np.zeros((1, 12, 6, 7), np.int8)
        for n, h, w in np.ndindex(12, 6, 7):
            total = int(product(image[:, h : h + 3, w : w + 3], taps[n]).sum())
            t = F(total - p.in_zp * int(sums[n])) * F(scales[n] * F(p.in_scale)) + bias[n]
            q = np.rint(t * (F(1) / F(p.out_scale)))
            out[0, n, h, w] = np.clip(int(q) + p.out_zp, -128, 127)
        return CONV, out

    return make


ROWS: tuple[tuple[str, str, Wrong], ...] = (
    ("elements at another distance", "read with pixels 10 elements apart instead of 12", dequantize(10)),
    ("elements at another distance", "read with words of a pixel 8 elements apart instead of 4",
     dequantize(12, lambda c: c // 4 * 8 + c % 4)),
    ("elements at another distance", "x read with vectors of 32 at 0.5 times their place in the line",
     linear(read=lambda k: k // 32 * 16 + k % 32)),
    ("elements at another distance", "written with vectors of 16 at 0.5 times their place in the line",
     linear(place=lambda n: n if n < 16 else n - 8 if n < 20 else 10)),
    ("constants of other channels", "rows of constants 32 words apart, of panels of 16 outputs", in_panels(16, 32, 64)),
    ("constants of other channels", "panels of constants 16 words apart, of panels of 8 outputs", in_panels(8, 8, 16)),
    ("rows read at another stride", "of 16 elements read again and again", linear(read=lambda k: k % 16)),
    ("rows read at another stride", "of 64 elements read again and again", linear(read=lambda k: k % 64)),
    ("sums off by a constant", "every sum begins at 1", linear(begin=1)),
    ("sums off by a constant", "every sum begins at 16843009", linear(begin=0x01010101)),
    ("another operation", "an input and its weight: + instead of *", linear(product=lambda a, b: a + b)),
    ("another operation", "an input and its weight: - instead of *", convolution(lambda a, b: a - b)),
)  # fmt: skip

"""Convolutions in float. Kernels differ in where the bias comes in and in the order of taps and channels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from refsim.aten.elementwise import bounded
from refsim.aten.matrix import HOST
from refsim.aten.row import Float, Place

#: From so many output channels on, ET-VK multiplies matrices instead of sliding a window.
IM2COL_CHANNELS = 128
#: Kernel sizes of a depthwise convolution that have a shader of their own.
TILED = ((3, 3), (5, 5))


@dataclass(frozen=True)
class Problem:
    """A convolution of stride over an image that is already padded, and dilated where it was transposed.

    ``x`` (N, groups, IC, H, W), ``weight`` (groups, OC, IC, KH, KW), ``bias`` (groups, OC).
    """

    x: np.ndarray
    weight: np.ndarray
    bias: np.ndarray | None
    stride: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def out(self) -> tuple[int, int]:
        h, w = (
            (size - d * (k - 1) - 1) // s + 1
            for size, d, k, s in zip(
                self.x.shape[-2:], self.dilation, self.weight.shape[-2:], self.stride, strict=True
            )
        )
        if min(h, w) < 1:
            raise ValueError(f"the kernel {self.weight.shape[-2:]} is larger than the image")
        return h, w

    def run(self, place: Place, order: Iterable[tuple[int, int, int]], bias_first: bool) -> np.ndarray:
        """One chain over (channel, row, column) of the weight, in this order."""
        (h, w), (sh, sw), (dh, dw) = self.out, self.stride, self.dilation
        n, groups, _, _, _ = self.x.shape
        out = np.zeros((n, groups, self.weight.shape[1], h, w), self.x.dtype)
        bias = None if self.bias is None else self.bias[None, :, :, None, None]
        if bias is not None and bias_first:
            out = out + bias
        for c, i, j in order:
            rows, columns = (
                slice(i * dh, i * dh + (h - 1) * sh + 1, sh),
                slice(j * dw, j * dw + (w - 1) * sw + 1, sw),
            )
            out = place.fma(
                self.x[:, :, c, None, rows, columns], self.weight[None, :, :, c, i, j, None, None], out
            )
        if bias is not None and not bias_first:
            out = out + bias
        return out.reshape(n, -1, h, w)

    @property
    def taps(self) -> tuple[range, range]:
        return range(self.weight.shape[3]), range(self.weight.shape[4])

    @property
    def channels(self) -> range:
        return range(self.weight.shape[2])

    def channels_outside(self) -> Iterator[tuple[int, int, int]]:
        yield from product(self.channels, *self.taps)

    def channels_inside(self) -> Iterator[tuple[int, int, int]]:
        yield from ((c, i, j) for i, j, c in product(*self.taps, self.channels))

    def texels_outside(self) -> Iterator[tuple[int, int, int]]:
        """Four channels at a time: all taps for these, then for the next."""
        for first in self.channels[::4]:
            four = self.channels[first : first + 4]
            yield from ((c, i, j) for i, j, c in product(*self.taps, four))


def _two(values: Sequence[int] | int, rank: int) -> tuple[int, int]:
    """One number for both dims, or one for each; an image with one dim has a height of 1."""
    given = [values] if isinstance(values, int) else list(values)
    if rank == 1:
        raise ValueError("for images with two dims")
    return (given[0], given[-1])


def _problem(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Problem:  # fmt: skip
    stride, padding, dilation, extra = (_two(v, 2) for v in (stride, padding, dilation, output_padding or 0))
    n, channels, h, w = x.shape
    if transposed:
        oc = weight.shape[1]
        wide = np.zeros((n, channels, (h - 1) * stride[0] + 1, (w - 1) * stride[1] + 1), x.dtype)
        wide[:, :, :: stride[0], :: stride[1]] = x
        sizes = weight.shape[-2:]
        before = [d * (k - 1) - p for d, k, p in zip(dilation, sizes, padding, strict=True)]
        around = [(b, b + e) for b, e in zip(before, extra, strict=True)]
        x, stride = wide, (1, 1)
        kernel = weight.reshape(groups, channels // groups, oc, *sizes).swapaxes(1, 2)[..., ::-1, ::-1]
    else:
        around = [(p, p) for p in padding]
        kernel = weight.reshape(groups, -1, *weight.shape[1:])
    cut = [slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in zip(around, x.shape[-2:], strict=True)]
    added = [(max(a, 0), max(b, 0)) for a, b in around]
    whole = np.pad(x[:, :, cut[0], cut[1]], ((0, 0), (0, 0), *added))
    parts = whole.reshape(n, groups, channels // groups, *whole.shape[-2:])
    if kernel.shape[2] != parts.shape[2]:
        raise ValueError(f"{channels} channels in {groups} groups meet a weight of {weight.shape}")
    return Problem(parts, kernel, None if bias is None else bias.reshape(groups, -1), stride, dilation)


def _flat(x: np.ndarray, weight: np.ndarray) -> bool:
    if x.ndim not in (3, 4) or weight.ndim != x.ndim:
        raise ValueError(f"an image with {x.ndim} dims and a weight with {weight.ndim}")
    return x.ndim == 3


def _convolution(
    place: Place | None, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, stride: Any, padding: Any,
    dilation: Any, transposed: bool = False, output_padding: Any = 0, groups: int = 1,
) -> np.ndarray:  # fmt: skip
    """A 1-d one is a 2-d one with one row."""
    flat = _flat(x, weight)
    if flat:
        x, weight = x[:, :, None], weight[:, :, None]
        stride, padding, dilation, output_padding = (
            (lead, v if isinstance(v, int) else v[0])
            for lead, v in ((1, stride), (0, padding), (1, dilation), (0, output_padding or 0))
        )
    problem = _problem(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    if place is None:
        # a transposed kernel adds to what it finds, which is the bias, from one place of the input after another
        order = problem.channels_inside() if transposed else problem.channels_outside()
        result = problem.run(HOST, order, transposed)
    elif flat and not transposed:
        result = problem.run(place, problem.channels_outside(), False)
    else:
        result = _shader(place, problem, weight, transposed, groups)
    return result[:, :, 0] if flat else result


def _shader(place: Place, problem: Problem, weight: np.ndarray, transposed: bool, groups: int) -> np.ndarray:
    """The shader that ET-VK chooses, each with an order of its own."""
    oc, ic, *taps = weight.shape
    if transposed:
        return problem.run(place, problem.channels_inside(), True)
    if oc == groups and ic == 1:
        tiled = tuple(taps) in TILED and problem.stride == problem.dilation
        return problem.run(place, problem.channels_outside(), not tiled)
    if taps == [1, 1]:
        return problem.run(place, problem.channels_outside(), False)
    if groups == 1 and problem.dilation == (1, 1) and (place.mali or oc >= IM2COL_CHANNELS):
        return problem.run(place, problem.channels_inside(), False)
    return problem.run(place, problem.texels_outside(), True)


def _clamped(place: Place | None, *args: Any) -> np.ndarray:
    """A convolution's arguments, then the least and the greatest value."""
    *given, low, high = args
    return bounded(_convolution(place, *given), low, high)


def _conv2d(
    place: Place | None, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> np.ndarray:  # fmt: skip
    return _convolution(place, x, weight, bias, stride, padding, dilation, False, 0, groups)


def _row(names: str, function: Any, **more: Any) -> Float:
    return Float(names, lambda *args: function(None, *args), function, **more)


_ORDER = "fma; bias, channels and taps in the order of the shader that is chosen"
ROWS = (
    _row("convolution", _convolution, order=_ORDER),
    _row("conv_with_clamp", _clamped, order=_ORDER + "; min(max(x, low), high)"),
    _row("conv1d conv2d", _conv2d, order=_ORDER),
)

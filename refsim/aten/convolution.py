"""Convolutions in float. Kernels differ in where the bias comes in and in the order of taps and channels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from refsim.aten.elementwise import bounded
from refsim.aten.matrix import HOST
from refsim.aten.row import Float, FloatDefect, Place, sized

#: From so many output channels on, ET-VK multiplies matrices instead of sliding a window.
IM2COL_CHANNELS = 128
#: Channels at a time: more than any convolution has.
ALL = 1 << 30
#: Kernel sizes of a depthwise convolution that have a shader of their own.
TILED = ((3, 3), (5, 5))


@dataclass(frozen=True)
class Problem:
    """A convolution of stride over an image that is already padded, and dilated where it was transposed.

    ``x`` (N, groups, IC, *size), ``weight`` (groups, OC, IC, *kernel), ``bias`` (groups, OC).
    """

    x: np.ndarray
    weight: np.ndarray
    bias: np.ndarray | None
    stride: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def out(self) -> tuple[int, ...]:
        sizes = tuple(
            (size - d * (k - 1) - 1) // s + 1
            for size, d, k, s in zip(
                self.x.shape[3:], self.dilation, self.weight.shape[3:], self.stride, strict=True
            )
        )
        if min(sizes) < 1:
            raise ValueError(f"the kernel {self.weight.shape[3:]} is larger than the image")
        return sizes

    def run(self, place: Place, order: Iterable[tuple[int, ...]], bias_first: bool) -> np.ndarray:
        """One chain over the weight's (channel, tap) in this order."""
        n, groups = self.x.shape[:2]
        every, spread = slice(None), (None,) * len(self.out)
        out = np.zeros(sized(n, groups, self.weight.shape[1], *self.out), self.x.dtype)
        by_channel: tuple[Any, ...] = (None, every, every, *spread)
        bias = None if self.bias is None else self.bias[by_channel]
        if bias is not None and bias_first:
            out = out + bias
        for c, *tap in order:
            steps = zip(tap, self.dilation, self.out, self.stride, strict=True)
            seen: tuple[Any, ...] = (
                every, every, c, None, *(slice(t * d, t * d + (size - 1) * s + 1, s) for t, d, size, s in steps)
            )  # fmt: skip
            weight: tuple[Any, ...] = (None, every, every, c, *tap, *spread)
            out = place.fma(self.x[seen], self.weight[weight], out)
        if bias is not None and not bias_first:
            out = out + bias
        return out.reshape(n, -1, *self.out)

    @property
    def taps(self) -> tuple[range, ...]:
        return tuple(map(range, self.weight.shape[3:]))

    def order(self, block: int) -> Iterator[tuple[int, ...]]:
        """So many channels at a time: for these all taps, of each tap all these channels."""
        channels = range(self.weight.shape[2])
        for first in channels[::block]:
            yield from ((c, *tap) for *tap, c in product(*self.taps, channels[first : first + block]))


def _each(values: Sequence[int] | int | None, dims: int) -> tuple[int, ...]:
    """One number for all dims, or one for each."""
    given = [values or 0] if values is None or isinstance(values, int) else list(values)
    if len(given) not in (1, dims):
        raise ValueError(f"{len(given)} numbers for {dims} dims")
    return tuple(given * (dims // len(given)))


def _problem(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int,
) -> Problem:  # fmt: skip
    n, channels, *sizes = x.shape
    kernel_sizes = weight.shape[2:]
    if len(sizes) not in (1, 2, 3) or len(kernel_sizes) != len(sizes):
        raise ValueError(f"an image with {x.ndim} dims and a weight with {weight.ndim}")
    stride, padding, dilation, extra = (
        _each(v, len(sizes)) for v in (stride, padding, dilation, output_padding)
    )
    if transposed:
        spaced = ((size - 1) * s + 1 for size, s in zip(sizes, stride, strict=True))
        wide = np.zeros(sized(n, channels, *spaced), x.dtype)
        spread: tuple[Any, ...] = (..., *(slice(None, None, s) for s in stride))
        wide[spread] = x
        before = [d * (k - 1) - p for d, k, p in zip(dilation, kernel_sizes, padding, strict=True)]
        around = [(b, b + e) for b, e in zip(before, extra, strict=True)]
        x, stride = wide, _each(1, len(sizes))
        kernel = weight.reshape(groups, channels // groups, *weight.shape[1:]).swapaxes(1, 2)
        kernel = np.flip(kernel, tuple(range(3, kernel.ndim)))
    else:
        around = [(p, p) for p in padding]
        kernel = weight.reshape(groups, -1, *weight.shape[1:])
    sides = zip(around, x.shape[2:], strict=True)
    cut: tuple[Any, ...] = (..., *(slice(max(-a, 0), size - max(-b, 0)) for (a, b), size in sides))
    added = [(max(a, 0), max(b, 0)) for a, b in around]
    kept = x[cut]
    sized(n, channels, *(size + a + b for size, (a, b) in zip(kept.shape[2:], added, strict=True)))
    whole = np.pad(kept, ((0, 0), (0, 0), *added))
    parts = whole.reshape(n, groups, channels // groups, *whole.shape[2:])
    if kernel.shape[2] != parts.shape[2]:
        raise ValueError(f"{channels} channels in {groups} groups meet a weight of {weight.shape}")
    return Problem(parts, kernel, None if bias is None else bias.reshape(groups, -1), stride, dilation)


def _convolution(
    place: Place | None, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, stride: Any, padding: Any,
    dilation: Any, transposed: bool = False, output_padding: Any = 0, groups: int = 1,
) -> np.ndarray:  # fmt: skip
    problem = _problem(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
    if place is None:
        # a transposed kernel adds to what it finds, which is the bias, from one place of the input after another
        return problem.run(HOST, problem.order(ALL if transposed else 1), transposed)
    if transposed:
        return problem.run(place, problem.order(ALL), True)
    block, bias_first = order_of(place, weight.shape, problem.stride, problem.dilation, groups)
    return problem.run(place, problem.order(block), bias_first)


def order_of(
    place: Place, weight: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int
) -> tuple[int, bool]:
    """How many channels the shader that ET-VK chooses takes at a time, and whether it begins with the bias."""
    oc, ic, *taps = weight
    if len(taps) == 1:
        return 1, False
    if oc == groups and ic == 1:
        tiled = tuple(taps) in TILED and tuple(stride) == tuple(dilation)
        return 1, not tiled
    if taps == [1, 1]:
        return 1, False
    if groups == 1 and tuple(dilation) == (1, 1) and (place.mali or oc >= IM2COL_CHANNELS):
        return ALL, False
    return 4, True


def _clamped(place: Place | None, *args: Any) -> np.ndarray:
    """A convolution's arguments, then the least and the greatest value."""
    *given, low, high = args
    return bounded(_convolution(place, *given), low, high)


def _conv2d(
    place: Place | None, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, stride: Any = 1,
    padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> np.ndarray:  # fmt: skip
    return _convolution(place, x, weight, bias, stride, padding, dilation, False, 0, groups)


# --- what ET-VK gets wrong -------------------------------------------------------------------------------


def _groups_ignored(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: Any,
    output_padding: Any, groups: Any, *clamp: Any,
) -> bool:  # fmt: skip
    depthwise = tuple(weight[:2]) == (groups, 1)
    one_tap = tuple(weight[2:]) == (1, 1)
    return len(x) == 4 and groups > 1 and bool(transposed or (one_tap and not depthwise))


def _groups_mixed(*args: Any) -> bool:
    x, weight, groups = args[0], args[1], args[8]
    if len(x) != 4 or groups <= 1 or _groups_ignored(*args) or tuple(weight[:2]) == (groups, 1):
        return False
    return bool(weight[1] % 4 or weight[0] // groups % 4)


DEFECTS = (
    FloatDefect(
        "groups", "upstream ignores the groups of a 1x1 and of a transposed convolution", _groups_ignored
    ),
    FloatDefect(
        "mixed-groups",
        "upstream mixes the channels of groups that have no multiple of 4 of them, going in or coming out",
        _groups_mixed,
    ),
)


def _row(names: str, function: Any, **more: Any) -> Float:
    return Float(names, lambda *args: function(None, *args), function, **more)


def _thin(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, *clamp: Any,
) -> tuple[Any, ...]:  # fmt: skip
    """The convolution of one channel a group, whose result has the same shape."""
    kernel = weight[:groups] if transposed else weight[:, :1]
    window = (stride, padding, dilation, transposed, output_padding, groups)
    return (x[:, :groups], kernel, bias, *window, *clamp)


_ORDER = "fma; bias, channels and taps in the order of the shader that is chosen"
ROWS = (
    _row("convolution", _convolution, order=_ORDER, outline=_thin, defects=DEFECTS),
    _row(
        "conv_with_clamp", _clamped, order=_ORDER + "; min(max(x, low), high)", outline=_thin, defects=DEFECTS
    ),
    _row("conv1d conv2d", _conv2d, order=_ORDER),
)

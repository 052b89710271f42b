"""Pooling windows over images, and the pools: a largest element, or an average row by row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.aten.row import Exact, Float, Place

LEAST = np.float32(-3.402823466e38)


def pair(value: Any, default: Any) -> tuple[int, int]:
    given = default if value is None or (isinstance(value, Sequence) and not value) else value
    if isinstance(given, int):
        return (given, given)
    return (int(given[0]), int(given[-1]))


@dataclass(frozen=True)
class PoolWindow:
    """A pooling window over an image: (height, width) pairs, and the output size that follows."""

    size: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    ceil_mode: bool

    def __post_init__(self) -> None:
        for k, s, p, d in zip(self.kernel, self.stride, self.padding, self.dilation, strict=True):
            if min(k, s, d) < 1 or not 0 <= p <= (d * (k - 1) + 1) // 2:
                raise ValueError(f"no such window: kernel {k}, stride {s}, padding {p}, dilation {d}")
        if min(self.out) < 1:
            raise ValueError(f"the window {self.kernel} is larger than the image {self.size}")

    @property
    def out(self) -> tuple[int, int]:
        return (self._count(0), self._count(1))

    def _count(self, axis: int) -> int:
        stride, padding = self.stride[axis], self.padding[axis]
        span = self.size[axis] + 2 * padding - self.dilation[axis] * (self.kernel[axis] - 1) - 1
        if not self.ceil_mode:
            return span // stride + 1
        count = -(-span // stride) + 1
        return count - 1 if (count - 1) * stride >= self.size[axis] + padding else count  # must begin inside

    def begins(self, axis: int) -> np.ndarray:
        """The first row or column of each window; negative where it begins in the padding."""
        return np.arange(self.out[axis]) * self.stride[axis] - self.padding[axis]

    def _useful(self, axis: int) -> range:
        """The taps that lie in the image for some window. Few, however large the kernel that a file declares."""
        begins, step = self.begins(axis), self.dilation[axis]
        first = max(0, -(int(begins[-1]) // step))
        last = min(self.kernel[axis] - 1, (self.size[axis] - 1 - int(begins[0])) // step)
        return range(first, last + 1)

    def taps(self, x: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """For each tap: values (..., OH, OW), which of them lie in the image, and their places in it (OH, OW)."""
        height, width = self.size
        for i in self._useful(0):
            rows = self.begins(0) + i * self.dilation[0]
            for j in self._useful(1):
                columns = self.begins(1) + j * self.dilation[1]
                inside = np.logical_and.outer(
                    (rows >= 0) & (rows < height), (columns >= 0) & (columns < width)
                )
                r, c = np.ix_(rows.clip(0, height - 1), columns.clip(0, width - 1))
                yield x[..., r, c], inside, np.add.outer(rows * width, columns)


def max_pool2d_with_indices(
    x: np.ndarray,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Of equal values the first wins. A NaN wins over any number, and the last NaN over earlier ones."""
    k = pair(kernel, 1)
    window = PoolWindow(
        x.shape[-2:], k, pair(stride, k), pair(padding, 0), pair(dilation, 1), bool(ceil_mode)
    )
    best = np.zeros((*x.shape[:-2], *window.out), x.dtype)
    index = np.full(best.shape, -1, np.int64)
    for values, inside, places in window.taps(x):
        better = inside & ((index < 0) | (values > best) | (values != values))
        best = np.where(better, values, best)
        index = np.where(better, places, index)
    return best, index


def avg_pool2d(
    x: np.ndarray,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> np.ndarray:
    """Adds one element of the window after another, row by row."""
    k = pair(kernel, 1)
    window = PoolWindow(x.shape[-2:], k, pair(stride, k), pair(padding, 0), (1, 1), bool(ceil_mode))
    total = np.zeros((*x.shape[:-2], *window.out), x.dtype)
    for values, inside, _ in window.taps(x):
        total = np.where(inside, total + values, total)
    if divisor_override:
        return total / x.dtype.type(divisor_override)
    counts = []
    for axis in (0, 1):
        first, edge = window.begins(axis), window.padding[axis] if count_include_pad else 0
        last = np.minimum(first + k[axis], window.size[axis] + edge)
        counts.append((last - np.maximum(first, -edge)).astype(x.dtype))
    return total / np.outer(*counts)


def _max_pool2d_with_indices(place: Place, x: np.ndarray, *args: Any) -> tuple[np.ndarray, np.ndarray]:
    """The shader starts from the least finite number, and from place 0."""
    best, index = max_pool2d_with_indices(x, *args)
    if best.dtype != np.float32:
        return best, index
    return np.maximum(best, LEAST), np.where(best <= LEAST, 0, index)


def max_pool2d(x: np.ndarray, *args: Any) -> np.ndarray:
    return max_pool2d_with_indices(x, *args)[0]


def _max_pool2d(place: Place, x: np.ndarray, *args: Any) -> np.ndarray:
    return _max_pool2d_with_indices(place, x, *args)[0]


_MAX = "from -3.402823466e38, rows outside"
ROWS = (
    Float("max_pool2d_with_indices", max_pool2d_with_indices, _max_pool2d_with_indices, order=_MAX),
    Float("max_pool2d", max_pool2d, _max_pool2d, order=_MAX),
    Float(
        "avg_pool2d",
        avg_pool2d,
        exact=Exact.DIVISION,
        order="from 0, rows outside, taps in the image; / count",
    ),
)

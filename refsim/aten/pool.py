"""Pooling windows over images of any number of dims, and the pools: a largest element, or an average."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from refsim.aten import within
from refsim.aten.row import Exact, Float, Place, sized

LEAST = np.float32(-3.402823466e38)


def each(value: Any, default: Any, dims: int) -> tuple[int, ...]:
    """One number for all dims, or one for each; nothing or an empty list is the default."""
    given = default if value is None or (isinstance(value, Sequence) and not value) else value
    given = [given] if isinstance(given, int) else list(given)
    if len(given) not in (1, dims):
        raise ValueError(f"{len(given)} numbers for {dims} dims")
    return tuple(int(v) for v in given) * (dims // len(given))


@dataclass(frozen=True)
class PoolWindow:
    """A pooling window over an image: a number for each dim, and the output size that follows."""

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool

    @classmethod
    def of(
        cls, size: tuple[int, ...], kernel: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> PoolWindow:  # fmt: skip
        """From a node's arguments."""
        k, dims = each(kernel, 1, len(size)), len(size)
        steps = each(stride, k, dims), each(padding, 0, dims), each(dilation, 1, dims)
        return cls(size, k, *steps, bool(ceil_mode))

    def __post_init__(self) -> None:
        for k, s, p, d in zip(self.kernel, self.stride, self.padding, self.dilation, strict=True):
            if min(k, s, d) < 1 or not 0 <= p <= (d * (k - 1) + 1) // 2:
                raise ValueError(f"no such window: kernel {k}, stride {s}, padding {p}, dilation {d}")
        if min(self.out) < 1:
            raise ValueError(f"the window {self.kernel} is larger than the image {self.size}")

    @property
    def out(self) -> tuple[int, ...]:
        return tuple(map(self._count, range(len(self.size))))

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
        """For each tap: values (..., *out), which of them lie in the image, and their places in it (*out)."""
        axes = range(len(self.size))
        for tap in product(*map(self._useful, axes)):
            at = [self.begins(a) + t * self.dilation[a] for a, t in zip(axes, tap, strict=True)]
            inside = [(p >= 0) & (p < size) for p, size in zip(at, self.size, strict=True)]
            near = (p.clip(0, size - 1) for p, size in zip(at, self.size, strict=True))
            kept: tuple[Any, ...] = (..., *np.ix_(*near))
            places = at[0]
            for p, size in zip(at[1:], self.size[1:], strict=True):
                places = np.add.outer(places * size, p)
            yield x[kept], reduce(np.logical_and.outer, inside), places


def _largest(dims: int) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    def call(x: np.ndarray, *args: Any) -> tuple[np.ndarray, np.ndarray]:
        """Of equal values the first wins. A NaN wins over any number, and the last NaN over earlier ones."""
        window = PoolWindow.of(x.shape[-dims:], *args)
        best = np.zeros(sized(*x.shape[:-dims], *window.out), x.dtype)
        index = np.full(best.shape, -1, np.int64)
        for values, inside, places in window.taps(x):
            better = inside & ((index < 0) | (values > best) | (values != values))
            best = np.where(better, values, best)
            index = np.where(better, places, index)
        return best, index

    return call


def _average(dims: int) -> Callable[..., np.ndarray]:
    def call(
        x: np.ndarray, kernel: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Adds one element of the window after another, row by row."""
        window = PoolWindow.of(x.shape[-dims:], kernel, stride, padding, 1, ceil_mode)
        total = np.zeros(sized(*x.shape[:-dims], *window.out), x.dtype)
        for values, inside, _ in window.taps(x):
            total = np.where(inside, total + values, total)
        if divisor_override:
            return total / x.dtype.type(divisor_override)
        counts = []
        for axis in range(dims):
            first, edge = window.begins(axis), window.padding[axis] if count_include_pad else 0
            last = np.minimum(first + window.kernel[axis], window.size[axis] + edge)
            counts.append((last - np.maximum(first, -edge)).astype(x.dtype))
        return total / reduce(np.multiply.outer, counts)

    return call


max_pool2d_with_indices = _largest(2)


def adaptive_max_pool(x: np.ndarray, size: Any) -> tuple[np.ndarray, np.ndarray]:
    """Windows that overlap where the sizes do not divide; places count in the image, not in the window."""
    dims = len(size)
    image = x.shape[-dims:]
    best = np.zeros(sized(*x.shape[:-dims], *size), x.dtype)
    index = np.zeros(best.shape, np.int64)
    for at in product(*map(range, size)):
        first = [i * n // m for i, n, m in zip(at, image, size, strict=True)]
        last = [-(-(i + 1) * n // m) for i, n, m in zip(at, image, size, strict=True)]
        window: tuple[Any, ...] = (..., *map(slice, first, last))
        part = x[window]
        inside = np.argmax(part.reshape(*x.shape[:-dims], -1), -1)
        place = np.unravel_index(inside, part.shape[-dims:])
        to: tuple[Any, ...] = (..., *at)
        index[to] = np.ravel_multi_index([p + f for p, f in zip(place, first, strict=True)], image)
        best[to] = np.take_along_axis(part.reshape(*inside.shape, -1), inside[..., None], -1)[..., 0]
    return best, index


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
    Float("max_pool3d_with_indices", _largest(3)),
    Float("adaptive_max_pool2d adaptive_max_pool3d", adaptive_max_pool),
    Float(
        "avg_pool2d", _average(2), exact=Exact.DIVISION, order="from 0, rows outside, taps in the image; / count",
        within=within.relative(within.DIVISION),
    ),
    Float("avg_pool3d", _average(3), exact=Exact.DIVISION, order="from 0, planes and rows outside; / count",
          within=within.relative(within.DIVISION)),
)  # fmt: skip

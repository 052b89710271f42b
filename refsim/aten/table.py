"""The ATen operators of real delegates in NumPy, computed in float32 as ExecuTorch's portable kernels do.

`TABLE` finds them by their base name: ``mean`` for aten.mean.dim and aten::mean.out. Each takes ATen's arguments in
order, without the outputs. Tensors are arrays; the result is an array or a tuple of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


def view_copy(x: np.ndarray, size: Sequence[int]) -> np.ndarray:
    return x.reshape(tuple(size)).copy()


def permute_copy(x: np.ndarray, dims: Sequence[int]) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(tuple(dims)))


def _axis(dim: int, rank: int) -> int:
    if not -rank <= dim < rank:
        raise IndexError(f"dim {dim} of a tensor with {rank}")
    return dim % rank


def mean(
    x: np.ndarray, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: Any = None
) -> np.ndarray:
    """Adds one element after another, in the order of memory, as kernels do. NumPy's own sum adds in pairs."""
    if not np.issubdtype(x.dtype, np.floating) or dtype is not None:
        raise TypeError(f"mean of {x.dtype} as dtype {dtype}, only of floats as they are")
    axes = tuple(_axis(d, x.ndim) for d in dim) if dim else tuple(range(x.ndim))
    kept = [d for d in range(x.ndim) if d not in axes]
    rows = x.transpose((*kept, *axes)).reshape([x.shape[d] for d in kept] + [-1])
    total = np.add.accumulate(rows, axis=-1, dtype=x.dtype)[..., -1] / x.dtype.type(rows.shape[-1])
    shape = [1 if d in axes else x.shape[d] for d in range(x.ndim)] if keepdim else [x.shape[d] for d in kept]
    return total.astype(x.dtype).reshape(shape)


def hardtanh(x: np.ndarray, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, x.dtype.type(0))


def add(a: np.ndarray, b: Any, alpha: float = 1) -> np.ndarray:
    scaled = b if alpha == 1 else a.dtype.type(alpha) * np.asarray(b, a.dtype)
    return np.add(a, scaled, dtype=a.dtype)


def mul(a: np.ndarray, b: Any) -> np.ndarray:
    return np.multiply(a, b, dtype=a.dtype)


def cat(tensors: Sequence[np.ndarray], dim: int = 0) -> np.ndarray:
    return np.concatenate(tensors, dim)


def clone(x: np.ndarray, *options: Any) -> np.ndarray:
    return x.copy()


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


TABLE: dict[str, Callable[..., Any]] = {
    "view_copy": view_copy,
    "view": view_copy,
    "permute_copy": permute_copy,
    "permute": permute_copy,
    "mean": mean,
    "hardtanh": hardtanh,
    "relu": relu,
    "add": add,
    "mul": mul,
    "cat": cat,
    "clone": clone,
    "alias_copy": clone,
    "_clone_dim_order": clone,
    "_to_dim_order_copy": clone,
    "lift_fresh_copy": clone,
    "prepack": clone,
    "max_pool2d_with_indices": max_pool2d_with_indices,
    "avg_pool2d": avg_pool2d,
}

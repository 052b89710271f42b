"""The NumPy table: ATen operators that real delegates hold, in float32 as a portable kernel computes them.

Keyed by the base name (``mean`` for aten.mean.dim and aten::mean.out). Each takes the arguments in ATen's
order without the outputs, tensors as arrays, and gives one array or a tuple of arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def view_copy(x: np.ndarray, size: Sequence[int]) -> np.ndarray:
    return x.reshape(tuple(size)).copy()


def permute_copy(x: np.ndarray, dims: Sequence[int]) -> np.ndarray:
    return np.ascontiguousarray(x.transpose(tuple(dims)))


def mean(
    x: np.ndarray, dim: Sequence[int] | None = None, keepdim: bool = False, dtype: Any = None
) -> np.ndarray:
    """One addition after another in the order of memory, as kernels do it; NumPy's own sum pairs them."""
    axes = tuple(d % x.ndim for d in dim) if dim else tuple(range(x.ndim))
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


def _pair(value: Any, default: Any) -> tuple[int, int]:
    given = default if value is None or (isinstance(value, Sequence) and not value) else value
    if isinstance(given, int):
        return (given, given)
    return (int(given[0]), int(given[-1]))


def _windows(
    x: np.ndarray, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, fill: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Windows (..., OH, OW, taps), and the row and column of each tap (OH, taps) and (OW, taps)."""
    k, p, d = _pair(kernel, 1), _pair(padding, 0), _pair(dilation, 1)
    s = _pair(stride, k)
    places = []
    for axis in (0, 1):
        size = x.shape[x.ndim - 2 + axis]
        span = size + 2 * p[axis] - d[axis] * (k[axis] - 1) - 1
        count = -(-span // s[axis]) + 1 if ceil_mode else span // s[axis] + 1
        if ceil_mode and (count - 1) * s[axis] >= size + p[axis]:  # the last window must begin inside
            count -= 1
        places.append(np.arange(count)[:, None] * s[axis] - p[axis] + np.arange(k[axis])[None] * d[axis])
    height, width = x.shape[-2:]
    framed = np.full((*x.shape[:-2], height + 1, width + 1), fill, x.dtype)
    framed[..., :height, :width] = x
    rows, columns = (
        np.where((at >= 0) & (at < size), at, size) for at, size in zip(places, (height, width), strict=True)
    )
    taken = framed[..., rows[:, None, :, None], columns[None, :, None, :]]
    return taken.reshape(*taken.shape[:-2], -1), rows, columns


def max_pool2d_with_indices(
    x: np.ndarray,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    taken, rows, columns = _windows(x, kernel, stride, padding, dilation, ceil_mode, -np.inf)
    best = taken.argmax(-1)
    flat = rows[:, None, :, None] * x.shape[-1] + columns[None, :, None, :]
    flat = flat.reshape(*flat.shape[:2], -1)
    index = np.take_along_axis(np.broadcast_to(flat, taken.shape), best[..., None], -1)[..., 0]
    return taken.max(-1), index.astype(np.int64)


def avg_pool2d(
    x: np.ndarray,
    kernel: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> np.ndarray:
    taken, rows, columns = _windows(x, kernel, stride, padding, 1, ceil_mode, 0.0)
    total = np.add.accumulate(taken, axis=-1, dtype=x.dtype)[..., -1]
    if divisor_override:
        return total / x.dtype.type(divisor_override)
    (kh, kw), (ph, pw), (sh, sw) = _pair(kernel, 1), _pair(padding, 0), _pair(stride, _pair(kernel, 1))
    counts = []
    for at, size, k, p, s in ((rows, x.shape[-2], kh, ph, sh), (columns, x.shape[-1], kw, pw, sw)):
        if count_include_pad:
            begin = np.arange(len(at)) * s - p
            counts.append(np.minimum(begin + k, size + p) - begin)
        else:
            counts.append((at < size).sum(1))
    return (total / np.outer(*counts).astype(x.dtype)).astype(x.dtype)


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
    "max_pool2d_with_indices": max_pool2d_with_indices,
    "avg_pool2d": avg_pool2d,
}

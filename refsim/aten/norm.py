"""Float operators that normalize: softmax over a dim, and norms over channels, groups or the last dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from refsim.aten.elementwise import exp, log
from refsim.aten.reduce import ROW_WORKERS, WORKERS, dealt, in_order, tree
from refsim.aten.row import Exact, Float, Place, axis

F32 = np.float32


# --- softmax ---------------------------------------------------------------------------------------------


def _softmax(logarithm: bool) -> Callable[..., Any]:
    def call(x: np.ndarray, dim: int, half_to_float: Any = False) -> np.ndarray:
        """One addition after another."""
        at = axis(dim, x.ndim)
        moved = np.moveaxis(x, at, 0) if x.ndim else x.reshape(1)
        low = moved - np.max(moved, axis=0)
        powers = exp(low)
        total = in_order(powers)
        result = low - log(total) if logarithm else powers / total
        return np.ascontiguousarray(np.moveaxis(result, 0, at)) if x.ndim else result.reshape(())

    return call


def _device_softmax(logarithm: bool) -> Callable[..., Any]:
    def call(place: Place, x: np.ndarray, dim: int, half_to_float: Any = False) -> np.ndarray:
        """Four partial sums; a packed dim is summed by texels. A sum is at least 1e-37."""
        at = axis(dim, x.ndim)
        moved = np.moveaxis(x, at, 0) if x.ndim else x.reshape(1)
        low = moved - np.max(moved, axis=0)
        powers = exp(low)
        packed = not place.buffer and x.ndim - 1 - at == place.packed
        total = _by_texels(powers) if packed else in_order(in_order(dealt(powers, WORKERS)))
        total = np.maximum(total, F32(1e-37))
        result = low - log(total) if logarithm else powers / total
        if not packed:
            result = np.where(np.isfinite(result), result, F32(0))
        return np.ascontiguousarray(np.moveaxis(result, 0, at)) if x.ndim else result.reshape(())

    return call


def _by_texels(moved: np.ndarray) -> np.ndarray:
    full = len(moved) // 4
    parts = in_order(dealt(moved[: 4 * full].reshape(full, 4, *moved.shape[1:]), WORKERS))
    for element in moved[4 * full :]:
        parts[full % WORKERS, 0] = parts[full % WORKERS, 0] + element
    return in_order(in_order(parts))


# --- over the last dims ----------------------------------------------------------------------------------


def native_layer_norm(
    x: np.ndarray, shape: Sequence[int], weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of elements and of squares, in order; the variance is the difference of their means."""
    lead, n = x.shape[: x.ndim - len(shape)], prod(shape)
    rows = x.reshape(-1, n).T
    middle = in_order(rows) / F32(n)
    variance = in_order(rows * rows) / F32(n) - middle * middle
    deviation = np.sqrt(variance + F32(eps))
    result = _affine((rows - middle) / deviation, weight, bias)
    kept = (*lead, *(1 for _ in shape))
    inverse = (1.0 / deviation.astype(np.float64)).astype(F32)
    return result.T.reshape(x.shape), middle.reshape(kept), inverse.reshape(kept)


def _affine(rows: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None) -> np.ndarray:
    """Times the weight, plus the bias, each by row."""
    scaled = rows if weight is None else rows * weight.reshape(-1, 1)
    return scaled if bias is None else scaled + bias.reshape(-1, 1)


def _device_layer_norm(
    place: Place, x: np.ndarray, shape: Sequence[int], weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """One workgroup per row of the last dim; the variance is the mean of squared deviations."""
    n = x.shape[-1]
    rows = np.ascontiguousarray(x.reshape(-1, n).T)
    lanes = ROW_WORKERS if place.buffer else _lanes(place, x.shape)
    total = _row_total if place.buffer else _neighbours if place.packed else _texel_total
    middle = total(rows, lanes) / F32(n)
    delta = rows - middle
    variance = total(delta * delta, lanes) / F32(n)
    inverse = np.power((variance + F32(eps)).astype(np.float64), -0.5).astype(F32)
    weight = np.ones(n, F32) if weight is None else weight
    bias = np.zeros(n, F32) if bias is None else bias
    if place.buffer:
        scaled = delta * inverse
    else:
        scaled = place.fma(rows, np.broadcast_to(inverse, rows.shape), -inverse * middle)
    result = place.fma(scaled, weight[:, None], bias[:, None])
    kept = (*x.shape[:-1], 1)
    return result.T.reshape(x.shape), middle.reshape(kept), inverse.reshape(kept)


def _row_total(rows: np.ndarray, lanes: int) -> np.ndarray:
    return tree(in_order(dealt(rows, lanes)))


def _neighbours(rows: np.ndarray, lanes: int) -> np.ndarray:
    """Lanes in turn, then neighbours: p[i] += p[i + 1], p[i] += p[i + 2], .."""
    parts = in_order(dealt(rows, lanes))
    while len(parts) > 1:
        parts = parts[::2] + parts[1::2]
    result: np.ndarray = parts[0]
    return result


def _texel_total(rows: np.ndarray, lanes: int) -> np.ndarray:
    """The same over texels of four elements, then the four in turn."""
    return in_order(_neighbours(dealt(rows, 4), lanes))


def _lanes(place: Place, shape: Sequence[int]) -> int:
    """The local size along x that ET-VK gives a grid of this tensor's texels."""
    w, h, c, n = [*reversed(shape), 1, 1, 1][:4]
    grid = [w, h, c]
    grid[place.packed] = -(-grid[place.packed] // 4)
    grid[2] *= n
    order = sorted(range(3), key=lambda d: -grid[d])
    second, third = grid[order[1]], grid[order[2]]
    if third > 1:
        sizes = (8, min(4, second), min(2, third))
    elif second == 1:
        sizes = (64, 1, 1)
    else:
        sizes = (16, 4, 1) if second % 4 == 0 else (32, 2, 1)
    return sizes[order.index(0)]


# --- over channels ---------------------------------------------------------------------------------------


def _by_channel(values: np.ndarray | None, x: np.ndarray, default: float) -> np.ndarray:
    held = np.full(x.shape[1], default, x.dtype) if values is None else values
    return held.reshape(1, -1, *[1] * (x.ndim - 2))


def batch_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, mean: np.ndarray, var: np.ndarray,
    momentum: float, eps: float,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """Inverse deviations in binary64, rounded once; the two other results are empty."""
    inverse = (1.0 / np.sqrt(var.astype(np.float64) + eps)).astype(x.dtype)
    scaled = (x - _by_channel(mean, x, 0)) * _by_channel(inverse, x, 1) * _by_channel(weight, x, 1)
    empty = np.zeros(0, x.dtype)
    return scaled + _by_channel(bias, x, 0), empty, empty.copy()


def _device_batch_norm(
    place: Place, x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, mean: np.ndarray, var: np.ndarray,
    momentum: float, eps: float,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    deviation = _by_channel(np.sqrt(var + F32(eps)), x, 1)
    scaled = (x - _by_channel(mean, x, 0)) / deviation
    empty = np.zeros(0, x.dtype)
    result = place.fma(scaled, _by_channel(weight, x, 1), _by_channel(bias, x, 0))
    return result, empty, empty.copy()


def group_norm(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, n: int, c: int, inner: int, groups: int,
    eps: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Sums in binary32, the rest in binary64."""
    rows = x.reshape(n * groups, -1).T
    count = rows.shape[0]
    middle = in_order(rows).astype(np.float64) / count
    variance = in_order(rows * rows).astype(np.float64) / count - middle * middle
    inverse = 1.0 / np.sqrt(variance + eps)
    per_channel = np.repeat(inverse.reshape(n, groups), c // groups, 1)
    scale = per_channel * (1.0 if weight is None else weight.astype(np.float64))
    shift = -scale * np.repeat(middle.reshape(n, groups), c // groups, 1)
    shift = shift + (0.0 if bias is None else bias.astype(np.float64))
    spread = [1] * (x.ndim - 2)
    result = scale.reshape(n, c, *spread) * x.astype(np.float64) + shift.reshape(n, c, *spread)
    first, second = middle.reshape(n, groups).astype(x.dtype), inverse.reshape(n, groups).astype(x.dtype)
    return result.astype(x.dtype), first, second


_EXP = "3 + 2|x| ulp of exp"
ROWS = (
    Float(
        "softmax _softmax", _softmax(False), _device_softmax(False), Exact.FUNCTION,
        "four partial sums of exp(x - max); / max(sum, 1e-37)", _EXP + ", 2.5 ulp of division",
    ),
    Float(
        "log_softmax _log_softmax", _softmax(True), _device_softmax(True), Exact.FUNCTION,
        "the same sum; x - max - log(sum)", _EXP + ", 3 ulp of log",
    ),
    Float(
        "native_layer_norm", native_layer_norm, _device_layer_norm, Exact.FUNCTION,
        "lanes in turn, then a tree; (v * r - r * mean) * w + b, r = pow(var + eps, -0.5)", "that of pow",
    ),
    Float(
        "_native_batch_norm_legit_no_training native_batch_norm", batch_norm, _device_batch_norm, Exact.FUNCTION,
        "((v - mean) / sqrt(var + eps)) * w + b", "that of sqrt, 2.5 ulp of division",
    ),
    Float("native_group_norm", group_norm, exact=Exact.FUNCTION, bound="that of sqrt; the shader's order is not kept"),
)  # fmt: skip

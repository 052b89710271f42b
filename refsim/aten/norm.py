"""Float operators that normalize: softmax over a dim, and norms over channels, groups or the last dim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from refsim.aten import flat, within
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


#: Where the search for the largest begins, but not that along a dim of a texture that is not packed.
_LEAST = F32(-3.402823e38)


def _device_softmax(logarithm: bool) -> Callable[..., Any]:
    def call(place: Place, x: np.ndarray, dim: int, half_to_float: Any = False) -> np.ndarray:
        """Four partial sums; a packed dim is summed by texels. A sum is at least 1e-37."""
        at = axis(dim, x.ndim)
        moved = np.moveaxis(x, at, 0) if x.ndim else x.reshape(1)
        packed = not place.buffer and x.ndim - 1 - at == place.packed
        most = np.max(moved, axis=0)
        low = moved - (np.maximum(most, _LEAST) if packed or place.buffer else most)
        powers = exp(low)
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
    lanes = ROW_WORKERS if place.buffer else lanes_of(place, x.shape)
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


def lanes_of(place: Place, shape: Sequence[int]) -> int:
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


def batch_norm_of_batch(
    x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, training: bool, momentum: float, eps: float
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """Of the batch's own means and variances, as an instance norm: sums by image, then over images."""
    n, c = x.shape[:2]
    elements = x.reshape(n, c, -1)
    count = x.dtype.type(n * elements.shape[2])
    middle, squares = (
        in_order(in_order(np.moveaxis(part, 2, 0))) / count for part in (elements, elements * elements)
    )
    deviation = np.sqrt((squares - middle * middle).astype(np.float64) + eps)
    inverse = (1.0 / deviation).astype(x.dtype)
    scaled = (x - _by_channel(middle, x, 0)) * _by_channel(inverse, x, 1) * _by_channel(weight, x, 1)
    return scaled + _by_channel(bias, x, 0), middle, inverse


# --- over groups -----------------------------------------------------------------------------------------


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
    first, second = middle.reshape(n, groups).astype(x.dtype), inverse.reshape(n, groups).astype(x.dtype)
    if weight is None and bias is None:
        plain = (rows.astype(np.float64) - middle) * inverse
        return plain.T.reshape(x.shape).astype(x.dtype), first, second
    per_channel = np.repeat(inverse.reshape(n, groups), c // groups, 1)
    scale = per_channel * (1.0 if weight is None else weight.astype(np.float64))
    shift = -scale * np.repeat(middle.reshape(n, groups), c // groups, 1)
    shift = shift + (0.0 if bias is None else bias.astype(np.float64))
    spread = [1] * (x.ndim - 2)
    result = scale.reshape(n, c, *spread) * x.astype(np.float64) + shift.reshape(n, c, *spread)
    return result.astype(x.dtype), first, second


def _device_group_norm(
    place: Place, x: np.ndarray, weight: np.ndarray | None, bias: np.ndarray | None, n: int, c: int, inner: int,
    groups: int, eps: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Each of 64 lanes adds a run of texels, pixel by pixel and in each pixel by channel; then a tree."""
    if x.ndim != 4:
        return group_norm(x, weight, bias, n, c, inner, groups, eps)
    depth = c // groups
    totals = [_group_totals(place, x[:, g * depth : (g + 1) * depth], g * depth) for g in range(groups)]
    sums, squares = (np.stack(parts, 1) for parts in zip(*totals, strict=True))
    count = F32(depth * inner)
    middle = sums / count
    variance = place.fma(-middle, middle, squares / count)
    inverse = F32(1) / np.sqrt(variance + F32(eps))
    mean, scale = (np.repeat(v, depth, 1)[:, :, None, None] for v in (middle, inverse))
    result = place.fma(
        (x - mean) * scale, np.broadcast_to(_by_channel(weight, x, 1), x.shape),
        np.broadcast_to(_by_channel(bias, x, 0), x.shape),
    )  # fmt: skip
    return result, middle, inverse


def _group_totals(place: Place, part: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray]:
    """The sums of one group's elements and of their squares. Texels hold four channels, counted from channel 0."""
    n, depth = part.shape[:2]
    begin, end = first // 4, -(-(first + depth) // 4)
    held = np.full((n, (end - begin) * 4, *part.shape[2:]), F32(-0.0))  # a sum does not notice a -0
    held[:, first - 4 * begin : first - 4 * begin + depth] = part
    texels = np.moveaxis(held.reshape(n, end - begin, 4, -1), (3, 1, 2), (0, 1, 2)).reshape(-1, 4, n)
    run = -(-len(texels) // ROW_WORKERS)
    missing = np.full((run * ROW_WORKERS - len(texels), 4, n), F32(-0.0))
    lanes = np.concatenate([texels, missing]).reshape(ROW_WORKERS, run * 4, n).swapaxes(0, 1)
    squares = np.zeros(lanes.shape[1:], F32)
    for row in lanes:
        squares = place.fma(row, row, squares)
    return tree(in_order(lanes)), tree(squares)


# --- over the last dim -----------------------------------------------------------------------------------


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """Squares in the order of memory."""
    rows = x.reshape(-1, x.shape[-1]).T
    inverse = F32(1) / np.sqrt(in_order(rows * rows) / F32(len(rows)) + F32(eps))
    return (rows * inverse * weight[:, None]).T.reshape(x.shape)


def _device_rms_norm(place: Place, x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """Lane t of 64 takes elements t, t + 64, .. of a buffer, texels of a texture; then a tree."""
    rows = x.reshape(-1, x.shape[-1]).T
    if place.buffer:
        parts = np.zeros((ROW_WORKERS, rows.shape[1]), F32)
        for row in dealt(rows, ROW_WORKERS):
            parts = place.fma(row, row, parts)
    else:
        squares = dealt(rows * rows, 4)  # a texel's dot product, here by component in turn
        parts = in_order(dealt(in_order(squares.swapaxes(0, 1)), ROW_WORKERS))
    inverse = (1.0 / np.sqrt((tree(parts) / F32(len(rows)) + F32(eps)).astype(np.float64))).astype(F32)
    return (rows * inverse * weight[:, None]).T.reshape(x.shape)


_EXP = "3 + 2|x| ulp of exp"
ROWS = (
    Float(
        "softmax _softmax", _softmax(False), _device_softmax(False), Exact.FUNCTION,
        "four partial sums of exp(x - max); / max(sum, 1e-37)", _EXP + ", 2.5 ulp of division", within.softmax,
        flat=flat.softmax(False),
    ),
    Float(
        "log_softmax _log_softmax", _softmax(True), _device_softmax(True), Exact.FUNCTION,
        "the same sum; x - max - log(sum)", _EXP + ", 3 ulp of log", within.log_softmax, flat=flat.softmax(True),
    ),
    Float(
        "native_layer_norm", native_layer_norm, _device_layer_norm, Exact.FUNCTION,
        "lanes in turn, then a tree; (v * r - r * mean) * w + b, r = pow(var + eps, -0.5)", "that of pow",
        within.layer_norm, flat=flat.layer_norm,
    ),
    Float(
        "_native_batch_norm_legit_no_training native_batch_norm", batch_norm, _device_batch_norm, Exact.FUNCTION,
        "((v - mean) / sqrt(var + eps)) * w + b", "that of sqrt, 2.5 ulp of division", within.batch_norm,
    ),
    Float(
        "_native_batch_norm_legit.no_stats _native_batch_norm_legit.no_stats_out", batch_norm_of_batch,
        exact=Exact.FUNCTION, bound="ET-VK has no shader for it; exact on the host",
    ),
    Float(
        "native_group_norm", group_norm, _device_group_norm, Exact.FUNCTION,
        "64 lanes in runs of texels, then a tree; squares / n - mean^2; ((v - mean) * (1 / sqrt(var + eps))) * w + b",
        "that of sqrt, 2.5 ulp of division", within.group_norm,
    ),
    Float(
        "rms_norm", rms_norm, _device_rms_norm, Exact.FUNCTION, "64 lanes in turn, then a tree; (x * r) * w",
        "that of inversesqrt and of dot", within.relative(16 * within.ULP),
    ),
)  # fmt: skip

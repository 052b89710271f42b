"""Normalizations as the shaders of a runtime with flat storage compute them: in one pass over the values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from refsim.aten.elementwise import exp, log
from refsim.aten.row import axis

F32 = np.float32
#: Invocations that share a row of a layer norm, each with four neighbours at a time.
WORKERS = 64
#: What a running maximum begins with.
_LEAST = F32(-3.4e38)


def layer_norm(
    x: np.ndarray, shape: Sequence[int], weight: np.ndarray | None, bias: np.ndarray | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Welford's mean and squared deviations of each invocation, then merged in pairs; (v - mean) * r * w + b."""
    n = prod(shape)
    rows = np.ascontiguousarray(x.reshape(-1, n).T)
    count, mean, squares = _welford(rows)
    half = WORKERS // 2
    while half:
        _merge(count, mean, squares, half)
        half //= 2
    middle = mean[0]
    inverse = F32(1) / np.sqrt(squares[0] / F32(n) + F32(eps))
    result = (rows - middle) * inverse
    if weight is not None:
        result = result * weight.reshape(-1, 1)
    if bias is not None:
        result = result + bias.reshape(-1, 1)
    lead = (*x.shape[: x.ndim - len(shape)], *(1 for _ in shape))
    return result.T.reshape(x.shape), middle.reshape(lead), inverse.reshape(lead)


def _welford(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    count = np.zeros((WORKERS, 1), F32)
    mean, squares = np.zeros((2, WORKERS, rows.shape[1]), F32)
    for at, values in enumerate(rows):
        lane = at // 4 % WORKERS
        count[lane] += F32(1)
        delta = values - mean[lane]
        mean[lane] = mean[lane] + delta / count[lane]
        squares[lane] = squares[lane] + delta * (values - mean[lane])
    return count, mean, squares


def _merge(count: np.ndarray, mean: np.ndarray, squares: np.ndarray, half: int) -> None:
    """The upper half of the first ``2 * half`` rows, into the lower half."""
    first, second = count[:half].copy(), count[half : 2 * half]
    total = first + second
    held = np.where(total > 0, total, F32(1))
    delta = mean[half : 2 * half] - mean[:half]
    mean[:half] = mean[:half] + delta * (second / held)
    squares[:half] = squares[:half] + squares[half : 2 * half] + delta * delta * (first * second / held)
    count[:half] = total


def softmax(logarithm: bool) -> Callable[..., Any]:
    """A running maximum, and a sum that is scaled anew where it grows."""

    def call(x: np.ndarray, dim: int, half_to_float: bool = False) -> np.ndarray:
        lines = np.moveaxis(x, axis(dim, x.ndim), 0) if x.ndim else x.reshape(1)
        most, total = np.full(lines.shape[1:], _LEAST), np.zeros(lines.shape[1:], F32)
        for values in lines:
            larger = values > most
            total = np.where(larger, total * exp(most - values), total)
            most = np.where(larger, values, most)
            total = total + exp(values - most)
        found = (lines - most) - log(total) if logarithm else exp(lines - most) / total
        return np.moveaxis(found, 0, axis(dim, x.ndim)) if x.ndim else found.reshape(())

    return call

"""How far a device's own functions may be off, in numbers: Vulkan's bounds, carried through each operator.

Each function gets the right result and the arguments in ATen's order, and gives the largest error of each element.
Bounds are to first order; an operation that rounds once more than another device's counts as an ulp. Source: the table
of precisions in the Vulkan specification's appendix on SPIR-V.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
Within = Callable[..., Array]

ULP = 2.0**-23
DIVISION = 2.5 * ULP
INVERSE_SQRT = 2 * ULP
SQRT = INVERSE_SQRT + DIVISION  # inherited from 1 / inversesqrt()
SINE = 2.0**-11  # in [-pi, pi]; nothing is said beyond
NEAR_ONE = 2.0**-21  # of log in [0.5, 2], absolute
LN_2 = float(np.log(2.0))


def allows(within: Within, right: Array, actual: Array, *args: Any) -> Array:
    """Whether each element may be a device's: within the bound, rounded once more, or flushed where it is denormal."""
    wide = right.astype(np.float64)
    with np.errstate(all="ignore"):
        most = within(wide, *args) + ULP * np.abs(wide)
        near = np.abs(wide - actual) <= np.maximum(most, np.finfo(np.float32).tiny)
    return near | (right == actual) | (np.isnan(right) & np.isnan(actual))


def relative(share: float) -> Within:
    """A share of the result."""
    return lambda right, *args: share * np.abs(right)


def power(x: Array) -> Array:
    """Of exp(x), as a share."""
    return (3 + 2 * np.abs(x)) * ULP


def logarithm(value: Array, of: Array) -> Array:
    """Of log(of) or log2(of), absolute."""
    return np.where((of >= 0.5) & (of <= 2), NEAR_ONE, 3 * ULP * np.abs(value))


def exp(right: Array, x: Array) -> Array:
    return np.abs(right) * power(x)


def elu(right: Array, x: Array, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    below = np.abs(scale * alpha) * np.exp(np.minimum(x * input_scale, 0)) * (power(x * input_scale) + ULP)
    return np.where(x < 0, below, 0) + ULP * np.abs(right)


def sigmoid(right: Array, x: Array) -> Array:
    return np.abs(right) * (power(x) * (1 - right) + DIVISION + ULP)


def silu(right: Array, x: Array) -> Array:
    return np.abs(right) * (power(x) + DIVISION + 2 * ULP)


def tanh(right: Array, x: Array) -> Array:
    """sinh(x) / cosh(x), each half the sum of two powers, for |x| <= 15."""
    return 2 * (power(np.minimum(np.abs(x), 15)) + ULP) + DIVISION


def gelu(right: Array, x: Array, approximate: str = "none") -> Array:
    inner = 0.8 * (np.abs(x) + 0.044715 * np.abs(x) ** 3)
    return np.abs(x) / 2 * (tanh(right, inner) + 2 * ULP * np.minimum(inner, 15)) + 2 * ULP * np.abs(right)


def log(right: Array, x: Array) -> Array:
    return logarithm(right, x)


def log10(right: Array, x: Array) -> Array:
    return LN_2 * logarithm(right / LN_2, x) + ULP * np.abs(right)


def sine(right: Array, x: Array) -> Array:
    return np.where(np.abs(x) <= np.pi, SINE, np.inf)


def pow_(right: Array, a: Array, b: Any) -> Array:
    """exp2(b * log2(a)) of what is above 0."""
    log2 = np.log2(np.where(a == 0, 1, np.abs(a)))
    exponent = np.abs(b) * logarithm(log2, np.abs(a)) + ULP * np.abs(b * log2)
    return np.abs(right) * (LN_2 * exponent + power(b * log2))


def softmax(right: Array, x: Array, dim: int, half_to_float: Any = False) -> Array:
    return np.abs(right) * (2 * power(np.ptp(x, axis=dim, keepdims=True)) + DIVISION + 2 * ULP)


def log_softmax(right: Array, x: Array, dim: int, half_to_float: Any = False) -> Array:
    spread = np.ptp(x, axis=dim, keepdims=True)
    return power(spread) + NEAR_ONE + 4 * ULP * (np.abs(right) + spread)


def layer_norm(
    right: Array, x: Array, shape: Sequence[int], weight: Array | None, bias: Array | None, eps: float
) -> Array:
    return _normalized(right, x, (-1,), 1 if weight is None else weight, eps)


def group_norm(
    right: Array, x: Array, weight: Array | None, bias: Array | None, n: int, c: int, area: int, groups: int, eps: float
) -> Array:  # fmt: skip
    parts = x.reshape(n, groups, -1)
    scale = np.ones(c) if weight is None else weight
    each = np.broadcast_to(scale.reshape(1, c, 1), (n, c, area)).reshape(parts.shape)
    return _normalized(right.reshape(parts.shape), parts, (-1,), each, eps).reshape(right.shape)


def batch_norm(
    right: Array, x: Array, weight: Array | None, bias: Array | None, mean: Array, variance: Array, *rest: Any
) -> Array:
    along = (1, -1, *(1,) * (x.ndim - 2))
    factor = (1 if weight is None else weight) / np.sqrt(variance.astype(np.float64) + rest[-1])
    term = np.abs((x - mean.reshape(along)) * factor.reshape(along))
    return term * (SQRT + DIVISION + 3 * ULP) + 2 * ULP * np.abs(right)


def quotient(right: Array, a: Array, b: Any, rounding_mode: str | None = None) -> Array:
    """a / b; a device that rounds down may find the other side of a whole number."""
    return 3 * ULP * np.abs(right) + (rounding_mode is not None)


def mixed(right: Array, x: Array, *args: Any) -> Array:
    """mix() three times over, at coordinates that round; neighbours may be as large as the tensor's largest."""
    return np.full(right.shape, (8 + 2 * max(x.shape[-2:])) * ULP * np.abs(x).max(initial=0.0))


def _normalized(right: Array, x: Array, axes: tuple[int, ...], weight: Any, eps: float) -> Array:
    """(x - mean) * (var + eps)^-0.5 * weight: means are divisions, and squares of deviations or their difference."""
    wide = x.astype(np.float64)
    mean = wide.mean(axes, keepdims=True)
    variance = wide.var(axes, keepdims=True) + eps
    inverse = variance**-0.5
    squares = DIVISION * (np.square(wide).mean(axes, keepdims=True) + 2 * np.square(mean)) / variance
    share = pow_(np.ones(()), variance, -0.5) + squares / 2 + DIVISION
    term = np.abs(wide - mean) * share + np.abs(mean) * DIVISION + 4 * ULP * (np.abs(wide) + np.abs(mean))
    return term * inverse * np.abs(weight) + 2 * ULP * np.abs(right)

"""Bounds of a device's own functions: noise as large as Vulkan allows stays inside, larger noise does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from refsim import aten
from refsim.aten import within
from refsim.aten.table import TABLE
from refsim.core.layout import C

Array = np.ndarray
X = np.random.default_rng(1).uniform(-6, 6, (2, 8, 5, 7)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.01)
WEIGHT, BIAS, MEAN, VARIANCE = np.random.default_rng(2).uniform(0.2, 2, (4, 8)).astype(np.float32)


class Device:
    """Functions in binary64, each off by a random part of ``times`` its bound."""

    def __init__(self, times: float) -> None:
        self.times, self.rng = times, np.random.default_rng(3)

    def off(self, shape: tuple[int, ...]) -> Array:
        return self.times * self.rng.uniform(-1, 1, shape)

    def exp(self, x: Array) -> Array:
        return np.exp(x) * (1 + within.power(x) * self.off(x.shape))

    def log(self, x: Array) -> Array:
        return np.log(x) + within.logarithm(np.log(x), x) * self.off(x.shape)

    def log2(self, x: Array) -> Array:
        return np.log2(x) + within.logarithm(np.log2(x), x) * self.off(x.shape)

    def power(self, a: Array, b: float) -> Array:
        exponent = b * self.log2(a)
        return np.exp2(exponent) * (1 + within.power(exponent) * self.off(a.shape))

    def sqrt(self, x: Array) -> Array:
        return np.sqrt(x) * (1 + within.SQRT * self.off(x.shape))

    def over(self, a: Any, b: Any) -> Array:
        found = np.asarray(a / b)
        return found * (1 + within.DIVISION * self.off(found.shape))

    def tanh(self, x: Array) -> Array:
        up, down = self.exp(x), self.exp(-x)
        return self.over(up - down, up + down)

    def mean(self, x: Array, axis: Any) -> Array:
        return self.over(x.sum(axis, keepdims=True), np.prod([x.shape[a] for a in np.atleast_1d(axis)]))


def softmax(d: Device, x: Array) -> Array:
    powers = d.exp(x - x.max(1, keepdims=True))
    return d.over(powers, powers.sum(1, keepdims=True))


def layer_norm(d: Device, x: Array) -> Array:
    mean = d.mean(x, -1)
    inverse = d.power(d.mean((x - mean) ** 2, -1) + 1e-5, -0.5)
    return (x - mean) * inverse * WEIGHT[:7] + BIAS[:7]


def group_norm(d: Device, x: Array) -> Array:
    parts = x.reshape(2, 2, -1)
    mean = d.mean(parts, -1)
    variance = d.mean(parts**2, -1) - mean**2
    found = (parts - mean) * d.over(1, d.sqrt(variance + 1e-5))
    return found.reshape(x.shape) * WEIGHT[:, None, None] + BIAS[:, None, None]


def batch_norm(d: Device, x: Array) -> Array:
    w, b, mean, variance = (row.astype(np.float64)[:, None, None] for row in (WEIGHT, BIAS, MEAN, VARIANCE))
    return d.over(x - mean, d.sqrt(variance + 1e-5)) * w + b


#: Operator -> what a device computes, the operator's first argument, and the others.
FORMULAS: dict[str, tuple[Callable[[Device, Array], Array], Array, tuple[Any, ...]]] = {
    "exp": (lambda d, x: d.exp(x), X, ()),
    "log": (lambda d, x: d.log(x), POSITIVE, ()),
    "log10": (lambda d, x: d.log(x) * np.float32(0.4342944819), POSITIVE, ()),
    "elu": (lambda d, x: np.where(x > 0, x, 0.7 * (d.exp(np.minimum(x, 0)) - 1)), X, (0.7, 1, 1)),
    "sigmoid": (lambda d, x: d.over(1, 1 + d.exp(-x)), X, ()),
    "silu": (lambda d, x: x * d.over(1, 1 + d.exp(-x)), X, ()),
    "tanh": (lambda d, x: d.tanh(x), X, ()),
    "gelu": (
        lambda d, x: x / 2 * (1 + d.tanh(0.7978845608 * (x + 0.044715 * x**3))), X / np.float32(3), ("tanh",),
    ),
    "sin": (lambda d, x: np.sin(x) + within.SINE * d.off(x.shape), X / np.float32(2), ()),
    "sqrt": (lambda d, x: d.sqrt(x), POSITIVE, ()),
    "rsqrt": (lambda d, x: d.over(1, d.sqrt(x)), POSITIVE, ()),
    "reciprocal": (lambda d, x: d.over(1, x), POSITIVE, ()),
    "div": (lambda d, x: d.over(x, 3.1), X, (np.float32(3.1),)),
    "pow": (lambda d, x: d.power(x, 2.7), POSITIVE, (np.float32(2.7),)),
    "mean": (lambda d, x: d.mean(x, (2, 3)), POSITIVE, ((-1, -2), True, None)),
    "softmax": (softmax, X, (1, False)),
    "log_softmax": (
        lambda d, x: x - x.max(1, keepdims=True) - d.log(d.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)),
        X, (1, False),
    ),
    "native_layer_norm": (layer_norm, X, ([7], WEIGHT[:7], BIAS[:7], 1e-5)),
    "native_group_norm": (group_norm, X, (WEIGHT, BIAS, 2, 8, 35, 2, 1e-5)),
    "_native_batch_norm_legit_no_training": (batch_norm, X, (WEIGHT, BIAS, MEAN, VARIANCE, 0.1, 1e-5)),
}  # fmt: skip
EACH = pytest.mark.parametrize("name", FORMULAS)


def allowed(name: str, times: float) -> Array:
    """Whether each element of a device with so much noise is allowed."""
    formula, x, args = FORMULAS[name]
    right = aten.find(f"aten.{name}.default", name).run([x, *args], name, aten.Place(packed=C))[0]
    row = TABLE[name]
    assert row.within is not None
    return within.allows(row.within, right, formula(Device(times), x.astype(np.float64)), x, *args)


@EACH
def test_what_vulkan_allows_is_allowed(name: str) -> None:
    assert allowed(name, 1.0).all()


@EACH
def test_what_is_far_beyond_is_not(name: str) -> None:
    assert not allowed(name, 60.0).all()


def test_each_bound_is_tried_or_named_here() -> None:
    tried = {id(TABLE[name]) for name in FORMULAS}
    rest = {name for name, row in TABLE.items() if row.within is not None and id(row) not in tried}
    same = {
        "cos",
        "avg_pool2d",
        "avg_pool3d",
        "linalg_vector_norm",
        "norm",
        "hardswish",
        "rms_norm",
    }  # a share
    bilinear = {f"upsample_bilinear2d{form}" for form in ("", ".vec", ".vec_out")}
    assert rest <= same | bilinear | {"grid_sampler_2d", "adaptive_avg_pool2d", "_adaptive_avg_pool2d"}, rest

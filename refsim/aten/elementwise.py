"""Float operators on the elements of one tensor: activations, functions, conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from refsim.aten import within
from refsim.aten.row import Exact, Float, Place, axis, contiguous, pointwise
from refsim.core.dtypes import BY_PROGRAM_CODE

F32 = np.float32
_LARGEST = np.finfo(np.float32).max


def dtype_of(code: int) -> np.dtype[Any]:
    """The dtype of a code in a serialized graph or plan."""
    return BY_PROGRAM_CODE[code].numpy


# --- one argument ----------------------------------------------------------------------------------------


def real(x: np.ndarray) -> np.ndarray:
    """Integers as binary32, for operators that compute in floats only."""
    return x if np.issubdtype(x.dtype, np.floating) else x.astype(F32)


def nearest(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function computed in binary64 and rounded once: the same on every machine, unlike NumPy's binary32 ones."""

    def call(x: np.ndarray, *args: Any) -> np.ndarray:
        x = real(x)
        return np.asarray(function(x.astype(np.float64), *args)).astype(x.dtype)

    return call


exp, tanh, log = map(nearest, (np.exp, np.tanh, np.log))
erf = nearest(np.vectorize(math.erf, otypes=[np.float64]))
expm1 = nearest(np.expm1)


def bounded(x: np.ndarray, low: Any, high: Any) -> np.ndarray:
    """min(max(x, low), high), the bounds rounded to the tensor's dtype; NaN stays."""
    if low is None and high is None:
        raise TypeError("neither a least nor a greatest value")
    x = x if low is None else np.maximum(x, _bound(low, x.dtype))
    return x.copy() if high is None else np.minimum(x, _bound(high, x.dtype))


def _bound(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    """A bound in the tensor's dtype; an infinite one of integers is the last there is."""
    if dtype.kind in "iu" and isinstance(value, float):
        value = min(max(value, np.iinfo(dtype).min), np.iinfo(dtype).max)
    return np.asarray(value).astype(dtype)


def clamp(x: np.ndarray, low: Any = None, high: Any = None) -> np.ndarray:
    return bounded(x, low, high)


def hardtanh(x: np.ndarray, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return bounded(x, low, high)


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, x.dtype.type(0))


def relu6(x: np.ndarray) -> np.ndarray:
    return bounded(x, 0.0, 6.0)


def hardswish(x: np.ndarray) -> np.ndarray:
    t = x.dtype.type
    inner = (x * (x + t(3))) / t(6)
    return np.where(x <= t(-3), t(0), np.where(x >= t(3), x, inner))


#: What spirv-opt makes of a division by 6.
SIXTH = F32(1) / F32(6)


def _hardswish(place: Place, x: np.ndarray) -> np.ndarray:
    return np.where(x <= -3, F32(0), np.where(x >= 3, x, (x * SIXTH) * (x + F32(3))))


def hardsigmoid(x: np.ndarray) -> np.ndarray:
    t = x.dtype.type
    return bounded(x + t(3), 0.0, 6.0) / t(6)


def _hardsigmoid(place: Place, x: np.ndarray) -> np.ndarray:
    """mix() of a truth value, of which Mesa makes a choice: infinities give 0 and 1, and NaN gives 0."""
    line = place.fma(x, np.full(x.shape, SIXTH), np.full(x.shape, F32(0.5)))
    return np.where(np.abs(x) <= 3, line, (x >= 0).astype(x.dtype))


def leaky_relu(x: np.ndarray, slope: float = 0.01) -> np.ndarray:
    return np.where(x >= 0, x, x * x.dtype.type(slope))


def _leaky_relu(place: Place, x: np.ndarray, slope: float = 0.01) -> np.ndarray:
    return x * ((x > 0).astype(x.dtype) + F32(slope) * (x <= 0).astype(x.dtype))


def prelu(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    shape = [1] * x.ndim
    if weight.size > 1:
        shape[min(1, x.ndim - 1)] = -1
    return np.where(x > 0, x, weight.reshape(shape if x.ndim else ()) * x)


def elu(x: np.ndarray, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> np.ndarray:
    t = x.dtype.type
    return np.where(x <= 0, expm1(x * t(input_scale)) * t(alpha * scale), x * t(scale))


def sigmoid(x: np.ndarray) -> np.ndarray:
    x = real(x)
    one = x.dtype.type(1)
    return one / (one + exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def _tanh(place: Place, x: np.ndarray) -> np.ndarray:
    return tanh(bounded(x, -15.0, 15.0))


def gelu(x: np.ndarray, approximate: str = "none") -> np.ndarray:
    """In binary64, as the portable kernel's constants make it, but for the part that it keeps in binary32."""
    if approximate == "tanh":
        beta = F32(math.sqrt(2.0 / math.pi))
        inner = beta * (x + F32(0.044715) * ((x * x) * x))
        result = 0.5 * x.astype(np.float64) * (1.0 + tanh(inner).astype(np.float64))
    else:
        wide = x.astype(np.float64)
        result = 0.5 * wide * (1.0 + np.vectorize(math.erf, otypes=[np.float64])(wide * math.sqrt(0.5)))
    return np.where(np.isinf(x), np.maximum(x, x.dtype.type(0)), result.astype(x.dtype))


GELU = F32(np.sqrt(F32(2) / F32(3.141593)))


def _gelu(place: Place, x: np.ndarray, approximate: str = "none") -> np.ndarray:
    inner = GELU * place.fma((F32(0.044715) * x) * x, x, x)
    return (F32(0.5) * x) * (F32(1) + tanh(inner))


def reciprocal(x: np.ndarray) -> np.ndarray:
    x = real(x)
    return x.dtype.type(1) / x


def sqrt(x: np.ndarray) -> np.ndarray:
    return np.sqrt(real(x))


def rsqrt(x: np.ndarray) -> np.ndarray:
    x = real(x)
    return x.dtype.type(1) / np.sqrt(x)


def round_(x: np.ndarray, decimals: int = 0) -> np.ndarray:
    if not np.issubdtype(x.dtype, np.floating):
        return x.copy()
    scale = x.dtype.type(10.0 ** abs(decimals))
    if decimals < 0:
        return np.rint(x / scale) * scale
    return np.rint(x * scale) / scale if decimals else np.rint(x)


def _log10(place: Place, x: np.ndarray) -> np.ndarray:
    return log(x) * F32(0.4342944819)


def hardshrink(x: np.ndarray, size: float = 0.5) -> np.ndarray:
    return np.where(np.abs(x) <= x.dtype.type(size), x.dtype.type(0), x)


def _hardshrink(place: Place, x: np.ndarray, size: float = 0.5) -> np.ndarray:
    """A product with 0 or 1: an infinity stays, and a negative number becomes -0."""
    return x * ((x > F32(size)).astype(x.dtype) + (x < F32(-size)).astype(x.dtype))


def logit(x: np.ndarray, eps: float | None = None) -> np.ndarray:
    x = real(x)
    one = x.dtype.type(1)
    x = x if eps is None else bounded(x, eps, 1 - eps)
    return log(x / (one - x))


def glu(x: np.ndarray, dim: int = -1) -> np.ndarray:
    first, second = np.split(x, 2, axis(dim, x.ndim))
    return first * sigmoid(second)


def same_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """floor, ceil and trunc of integers are the integers."""
    return lambda x: function(x) if np.issubdtype(x.dtype, np.floating) else x.copy()


# --- copies ----------------------------------------------------------------------------------------------


def clone(x: np.ndarray, *options: Any) -> np.ndarray:
    return contiguous(x)


def to_copy(x: np.ndarray, dtype: Any = None, *options: Any) -> np.ndarray:
    """A conversion; a portable kernel finds the dtype in its output, and its second argument is another one."""
    if isinstance(dtype, int) and not isinstance(dtype, bool):
        return x.astype(dtype_of(dtype))
    return contiguous(x)


_HOST = "ET-VK has no shader for it; the C library's on the host"
_EXP, _DIV = "3 + 2|x| ulp of exp", Exact.DIVISION
_FUN = Exact.FUNCTION
_CLAMP = "min(max(x, low), high)"

POINTWISE = pointwise(
    Float("relu", relu, order="min(max(x, 0), inf)"),
    Float("relu6", relu6, order=_CLAMP),
    Float("hardtanh", hardtanh, order=_CLAMP),
    Float("clamp", clamp, order=_CLAMP),
    Float(
        "hardswish", hardswish, _hardswish, Exact.ORDER, "0 up to -3, x from 3, else (x * (1 / 6)) * (x + 3)",
        within=within.relative(2 * within.ULP),
    ),
    Float("hardsigmoid", hardsigmoid, _hardsigmoid, order="fma(x, 1 / 6, 0.5) for |x| <= 3, else x >= 0"),
    Float("leaky_relu", leaky_relu, _leaky_relu, order="x * ((x > 0) + slope * (x <= 0))"),
    Float("elu", elu, exact=_FUN, order="expm1 below 0", bound=_EXP, within=within.elu),
    Float(
        "sigmoid", sigmoid, exact=_FUN, order="1 / (1 + exp(-x))", bound=_EXP + ", 2.5 ulp of division",
        within=within.sigmoid,
    ),
    Float(
        "silu", silu, exact=_FUN, order="x * sigmoid(x)", bound=_EXP + ", 2.5 ulp of division", within=within.silu,
    ),
    Float("tanh", tanh, _tanh, _FUN, "tanh(clamp(x, -15, 15))", "that of sinh / cosh", within.tanh),
    Float(
        "gelu", gelu, _gelu, _FUN, "(0.5 * x) * (1 + tanh(c * fma((0.044715 * x) * x, x, x)))", "that of tanh",
        within.gelu,
        note="the shader has the tanh form only, whatever `approximate` says",
    ),
    Float("exp", exp, exact=_FUN, bound=_EXP, within=within.exp),
    Float("log", log, exact=_FUN, bound="3 ulp; 2^-21 in [0.5, 2]", within=within.log),
    Float("log10", nearest(np.log10), _log10, _FUN, "log(x) * 0.4342944819", "that of log", within.log10),
    Float("logit", logit, exact=_FUN, bound=_HOST),
    Float("hardshrink", hardshrink, _hardshrink, order="x * ((x > size) + (x < -size))"),
    Float("sin", nearest(np.sin), exact=_FUN, bound="2^-11 in [-pi, pi]", within=within.sine),
    Float("cos", nearest(np.cos), exact=_FUN, bound="2^-11 in [-pi, pi]", within=within.sine),
    *(
        Float(name, nearest(function), exact=_FUN, bound=_HOST)
        for name, function in (
            ("expm1", np.expm1), ("log1p", np.log1p), ("log2", np.log2), ("tan", np.tan), ("sinh", np.sinh),
            ("cosh", np.cosh), ("asin", np.arcsin), ("acos", np.arccos), ("atan", np.arctan), ("asinh", np.arcsinh),
            ("acosh", np.arccosh), ("atanh", np.arctanh),
        )
    ),
    Float("erf", erf, exact=_FUN, bound=_HOST),
    Float("sqrt", sqrt, exact=_FUN, bound="that of 1 / inversesqrt", within=within.relative(within.SQRT)),
    Float("rsqrt", rsqrt, exact=_FUN, order="1 / sqrt(x)", bound="that of sqrt, 2.5 ulp of division",
          within=within.relative(within.SQRT + within.DIVISION)),
    Float("reciprocal", reciprocal, exact=_DIV, within=within.relative(within.DIVISION)),
    Float("abs", np.abs),
    Float("neg", np.negative),
    Float("sign", np.sign),
    Float("floor", same_dtype(np.floor)),
    Float("ceil", same_dtype(np.ceil)),
    Float("trunc", same_dtype(np.trunc)),
    Float("round", round_, order="ties to even"),
    Float("isinf", np.isinf),
    Float("isnan", np.isnan),
    Float(
        "clone clone_copy alias alias_copy detach detach_copy contiguous lift_fresh lift_fresh_copy prepack dropout "
        "_clone_dim_order",
        clone,
    ),
    Float("_to_copy to _to_dim_order_copy", to_copy),
)  # fmt: skip

ROWS = (
    *POINTWISE,
    Float("prelu _prelu_kernel", prelu, order="x above 0, else weight * x"),
    Float("glu", glu, exact=_FUN, bound=_HOST),
)

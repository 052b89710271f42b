"""Float operators on the elements of two tensors: arithmetic with broadcasting, comparisons, choices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refsim.aten import within
from refsim.aten.row import Exact, Float, Place, pointwise

F32 = np.float32


#: Truth values, integers, floats.
_KINDS = {"b": 0, "i": 1, "u": 1, "f": 2}


def _kind(value: Any) -> int:
    return _KINDS[np.asarray(value).dtype.kind]


def promoted(*values: Any) -> np.dtype[Any]:
    """The dtype in which ATen computes.

    Tensors with dims decide, then those without, then plain numbers; a later group counts where its kind is higher.
    """
    arrays = [v for v in values if isinstance(v, np.ndarray)]
    defaults = (np.dtype(bool), np.dtype(np.int64), np.dtype(F32))
    groups = (
        [v.dtype for v in arrays if v.ndim],
        [v.dtype for v in arrays if not v.ndim],
        [defaults[_kind(v)] for v in values if not isinstance(v, np.ndarray)],
    )
    found: np.dtype[Any] | None = None
    for group in groups:
        for dtype in group[:1]:
            for other in group[1:]:
                dtype = _wider(dtype, other)
            if found is None or _KINDS[dtype.kind] > _KINDS[found.kind]:
                found = dtype
    if found is None:
        raise TypeError("no values")
    return found


def _wider(a: np.dtype[Any], b: np.dtype[Any]) -> np.dtype[Any]:
    if a.kind == "f" or b.kind == "f":
        return max((d for d in (a, b) if d.kind == "f"), key=lambda d: d.itemsize)
    return np.promote_types(a, b)


def _as(value: Any, dtype: np.dtype[Any]) -> np.ndarray:
    return np.asarray(value).astype(dtype)


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(a: Any, b: Any) -> np.ndarray:
        dtype = promoted(a, b)
        return np.asarray(function(_as(a, dtype), _as(b, dtype))).astype(dtype)

    return call


def _sum(sign: int) -> Callable[..., Any]:
    """a + alpha * b, or a - alpha * b: the product is rounded, and exact for an alpha of 1."""

    def call(a: Any, b: Any, alpha: float = 1) -> np.ndarray:
        dtype = promoted(a, b)
        scaled = _as(b, dtype) if alpha == 1 else _as(alpha, dtype) * _as(b, dtype)
        result = _as(a, dtype) + scaled if sign > 0 else _as(a, dtype) - scaled
        return np.asarray(result, dtype)

    return call


def _contracted(sign: int) -> Callable[..., Any]:
    """The same as a device computes it, which may fuse the product and the sum."""
    plain = _sum(sign)

    def call(place: Place, a: Any, b: Any, alpha: float = 1) -> np.ndarray:
        dtype = promoted(a, b)
        if alpha == 1 or dtype != F32:
            result: np.ndarray = plain(a, b, alpha)
            return result
        a, b = np.broadcast_arrays(_as(a, dtype), _as(b, dtype))
        return place.fma(np.full(b.shape, F32(sign * alpha)), b, a)

    return call


def _flushed(value: Any, place: Place) -> Any:
    """A float as a device's arithmetic takes or gives it: a denormal is 0 under a profile that flushes."""
    if not place.profile.flush_denormals or getattr(value, "dtype", None) != F32:
        return value
    return np.where(np.abs(value) < np.finfo(F32).tiny, F32(0), value)


def _flushing(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """The same function of a place and two tensors, of which it reads no denormals, and writes none."""

    def call(place: Place, a: Any, b: Any, *more: Any) -> np.ndarray:
        given = (_flushed(value, place) for value in (a, b))
        result: np.ndarray = _flushed(function(place, *given, *more), place)
        return result

    return call


def _everywhere(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """A function that only flushes inside a delegate, and else is the same there."""
    return _flushing(lambda place, *args: function(*args))


add, sub, mul = _sum(1), _sum(-1), _arithmetic(np.multiply)


def rsub(a: Any, b: Any, alpha: float = 1) -> np.ndarray:
    result: np.ndarray = sub(np.asarray(b, promoted(a, b)), a, alpha)
    return result


def div(a: Any, b: Any, mode: str | None = None) -> np.ndarray:
    dtype = promoted(a, b)
    if mode is None:
        dtype = dtype if dtype.kind == "f" else np.dtype(F32)
        return np.asarray(_as(a, dtype) / _as(b, dtype), dtype)
    if mode not in ("floor", "trunc"):
        raise TypeError(f"rounding mode {mode!r}")
    if mode == "floor":
        return floor_divide(a, b)
    if dtype.kind != "f":
        return np.trunc(_as(a, np.dtype(np.float64)) / _as(b, np.dtype(np.float64))).astype(dtype)
    return np.asarray(np.trunc(_as(a, dtype) / _as(b, dtype)), dtype)


def floor_divide(a: Any, b: Any, mode: str | None = None) -> np.ndarray:
    """Python's: without the remainder there is nothing to round, so that a == (a // b) * b + remainder."""
    dtype = promoted(a, b)
    a, b = _as(a, dtype), _as(b, dtype)
    if dtype.kind != "f":
        return np.asarray(a // b, dtype)
    rest = np.fmod(a, b)
    whole = (a - rest) / b
    whole = np.where((rest != 0) & (np.signbit(b) != np.signbit(rest)), whole - dtype.type(1), whole)
    infinite = np.where(np.signbit(a), dtype.type(-np.inf), dtype.type(np.inf))
    return np.asarray(np.where(b == 0, infinite, whole), dtype)


def _div(place: Place, a: Any, b: Any, mode: str | None = None) -> np.ndarray:
    quotient = div(a, b)
    return quotient if mode is None else np.floor(quotient)


def _floor_divide(place: Place, a: Any, b: Any, mode: str | None = None) -> np.ndarray:
    return _div(place, a, b, "floor") if promoted(a, b).kind == "f" else floor_divide(a, b)


def remainder(a: Any, b: Any) -> np.ndarray:
    """With the divisor's sign for floats. The portable kernel takes C's operator for integers, so theirs differs."""
    dtype = promoted(a, b)
    a, b = _as(a, dtype), _as(b, dtype)
    rest = np.fmod(a, b)
    if dtype.kind != "f":
        return np.asarray(rest, dtype)
    return np.asarray(np.where(((a < 0) != (b < 0)) & (rest != 0), rest + b, rest), dtype)


def atan2(a: Any, b: Any) -> np.ndarray:
    dtype = promoted(a, b)
    dtype = dtype if dtype.kind == "f" else np.dtype(F32)
    wide = np.dtype(np.float64)
    return np.asarray(np.arctan2(_as(a, dtype).astype(wide), _as(b, dtype).astype(wide))).astype(dtype)


def pow_(a: Any, b: Any) -> np.ndarray:
    dtype = promoted(a, b)
    if dtype.kind == "f":
        return np.asarray(np.power(_as(a, np.dtype(np.float64)), _as(b, np.dtype(np.float64))), dtype)
    return np.asarray(np.power(_as(a, dtype), _as(b, dtype)), dtype)


def _pow(place: Place, a: np.ndarray, b: Any) -> np.ndarray:
    """A base of 0 gives 1 for an exponent of 0, else 0; a negative one the sign for odd exponents."""
    y = np.asarray(b, np.float64)
    size = np.asarray(np.power(np.abs(a).astype(np.float64), y), a.dtype)
    whole = np.rint(y)
    odd = (np.abs(y - whole) < 1e-5) & (np.fmod(whole, 2) == 1)
    result = np.where((a < 0) & odd, -size, size)
    return np.where(a == 0, np.where(y == 0, a.dtype.type(1), a.dtype.type(0)), result)


def _compared(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(a: Any, b: Any) -> np.ndarray:
        dtype = promoted(a, b)
        return np.asarray(function(_as(a, dtype), _as(b, dtype)))

    return call


def _equal(place: Place, a: Any, b: Any) -> np.ndarray:
    dtype = promoted(a, b)
    if dtype.kind != "f" or not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return np.asarray(_as(a, dtype) == _as(b, dtype))
    return np.asarray(np.abs(_as(a, dtype) - _as(b, dtype)) < F32(1e-5))


def _logical(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: np.asarray(function(*(np.asarray(v).astype(bool) for v in values)))


def _bitwise(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: np.asarray(function(_as(a, promoted(a, b)), _as(b, promoted(a, b))))


def where(condition: np.ndarray, a: Any, b: Any) -> np.ndarray:
    dtype = promoted(a, b)
    return np.where(condition.astype(bool), _as(a, dtype), _as(b, dtype))


def masked_fill(x: np.ndarray, mask: np.ndarray, value: Any) -> np.ndarray:
    return np.where(mask.astype(bool), np.asarray(value).astype(x.dtype), x)


ROWS = pointwise(
    Float("add", add, _flushing(_contracted(1)), order="a + alpha * b"),
    Float("sub", sub, _flushing(_contracted(-1)), order="a - alpha * b"),
    Float("rsub", rsub, order="b - alpha * a"),
    Float("mul", mul, _everywhere(mul)),
    Float(
        "div", div, _flushing(_div), Exact.DIVISION,
        "a / b, floor(a / b)", within=within.quotient, note="the shader takes the floor, whatever the rounding mode",
    ),
    Float("floor_divide", floor_divide, _floor_divide, Exact.DIVISION, "floor(a / b)"),
    Float("pow", pow_, _pow, Exact.FUNCTION, "pow(|a|, b), sign by odd b", "that of exp2(b * log2(a))", within.pow_),
    Float("minimum min.other", _arithmetic(np.minimum)),
    Float("maximum max.other", _arithmetic(np.maximum)),
    Float("remainder", remainder, exact=Exact.DIVISION),
    Float("atan2", atan2, exact=Exact.FUNCTION, bound="ET-VK has no shader for it; the C library's on the host"),
    Float("fmod", _arithmetic(np.fmod), exact=Exact.DIVISION),
    Float(
        "eq", _compared(np.equal), _equal, order="|a - b| < 1e-5 of two float tensors",
        note="the shader takes two float tensors for equal where they differ by less than 1e-5",
    ),
    Float("ne", _compared(np.not_equal)),
    Float("lt", _compared(np.less)),
    Float("le", _compared(np.less_equal)),
    Float("gt", _compared(np.greater)),
    Float("ge", _compared(np.greater_equal)),
    Float("logical_not", _logical(np.logical_not)),
    Float("logical_and", _logical(np.logical_and)),
    Float("logical_or", _logical(np.logical_or)),
    Float("logical_xor", _logical(np.logical_xor)),
    Float("bitwise_not", np.invert),
    Float("bitwise_and", _bitwise(np.bitwise_and)),
    Float("bitwise_or", _bitwise(np.bitwise_or)),
    Float("bitwise_xor", _bitwise(np.bitwise_xor)),
    Float("bitwise_left_shift __lshift__", _bitwise(np.left_shift)),
    Float("bitwise_right_shift __rshift__", _bitwise(np.right_shift)),
    Float("where", where),
    Float("masked_fill", masked_fill),
)  # fmt: skip

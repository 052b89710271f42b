"""Quantize and dequantize as plain operators: outside delegates, and on weights inside them."""

from __future__ import annotations

from typing import Any

import numpy as np

from refsim.aten.elementwise import dtype_of
from refsim.aten.row import Float, axis

F32 = np.float32


def _quantized(x: np.ndarray, inverse: Any, zp: Any, low: int, high: int, dtype: Any) -> np.ndarray:
    """rint(x * (1 / scale)) + zp, clamped; NaN counts as 0, as everywhere here."""
    levels = np.nan_to_num(np.rint(x * inverse), nan=0.0, posinf=2.0**31, neginf=-(2.0**31))
    held = dtype_of(dtype) if isinstance(dtype, int) else np.dtype(np.int8)
    return np.clip(levels.astype(np.float64) + zp, low, high).astype(held)


def _number(value: Any) -> Any:
    """A number, or a tensor that holds one."""
    return value.reshape(-1)[0] if isinstance(value, np.ndarray) else value


def quantize_per_tensor(
    x: np.ndarray, scale: Any, zp: Any, low: int, high: int, dtype: Any = None
) -> np.ndarray:  # fmt: skip
    return _quantized(x, F32(1) / F32(_number(scale)), int(_number(zp)), low, high, dtype)


def dequantize_per_tensor(x: np.ndarray, scale: Any, zp: Any, *options: Any) -> np.ndarray:
    return (x.astype(np.int32) - int(_number(zp))).astype(F32) * F32(_number(scale))


def _along(values: np.ndarray, x: np.ndarray, dim: int) -> np.ndarray:
    shape = [1] * x.ndim
    shape[axis(dim, x.ndim)] = -1
    return values.reshape(shape)


def quantize_per_channel(
    x: np.ndarray, scales: np.ndarray, zps: np.ndarray, dim: int, low: int, high: int, dtype: Any = None
) -> np.ndarray:
    inverse = F32(1) / scales.astype(F32)
    return _quantized(x, _along(inverse, x, dim), _along(zps, x, dim).astype(np.int64), low, high, dtype)


def dequantize_per_channel(
    x: np.ndarray, scales: np.ndarray, zps: np.ndarray | None, dim: int, *options: Any
) -> np.ndarray:
    """The dtype that is named is the input's and may be missing; the result is binary32."""
    whole = x.astype(np.int32)
    whole = whole if zps is None else whole - _along(zps, x, dim).astype(np.int32)
    return whole.astype(F32) * _along(scales.astype(F32), x, dim)


ROWS = (
    Float("quantize_per_tensor", quantize_per_tensor, order="rint(x * (1 / scale)) + zp, clamped"),
    Float("dequantize_per_tensor", dequantize_per_tensor, order="(q - zp) * scale"),
    Float("quantize_per_channel", quantize_per_channel, note="no shader: ET-VK stops when it loads the file"),
    Float(
        "dequantize_per_channel", dequantize_per_channel, note="no shader: ET-VK stops when it loads the file"
    ),
)

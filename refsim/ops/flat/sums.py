"""Flat meanings of the operators that add up int8 products: convolutions and linear layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from refsim.core.qmath import wrap32
from refsim.ops.base import conv
from refsim.ops.base.target import Target
from refsim.ops.flat.base import F32, PRODUCTS, FlatOp, flat, inverse, requant

Shapes = tuple[tuple[int, ...], ...]
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Window:
    """What `conv.accumulate` asks of a convolution. The zero point is 0: it was subtracted from the values."""

    kernel_size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    transposed: bool = False
    in_zp: int = 0

    def source(self, axis: int, out_count: int, tap: int, in_count: int) -> np.ndarray:
        """The input row or column that each output position reads at a tap; in_count if there is none."""
        places, step = np.arange(out_count), self.stride[axis]
        if self.transposed:
            scaled = places + self.padding[axis] - tap
            at, hits = scaled // step, scaled % step == 0
        else:
            at, hits = places * step - self.padding[axis] + tap * self.dilation[axis], True
        return np.where(hits & (at >= 0) & (at < in_count), at, in_count)


def _real(
    acc: np.ndarray, in_scale: float, scales: np.ndarray, bias: np.ndarray | None, dim: int
) -> np.ndarray:
    """(f32(acc) * s_in) * ws[oc], + b[oc]: in this order. The sum wraps as int32 does."""
    spread = [1] * acc.ndim
    spread[dim] = acc.shape[dim]
    count = acc.shape[dim]
    v = (wrap32(acc).astype(F32) * F32(in_scale)) * scales[:count].reshape(spread)
    return v if bias is None else v + bias[:count].reshape(spread)


def _logical(weight: np.ndarray, kernel: tuple[int, int], channels: int) -> np.ndarray:
    """Rows of taps as (OC, KH, KW, channels); a row may be longer than its taps."""
    return weight[:, : kernel[0] * kernel[1] * channels].reshape(len(weight), *kernel, channels)


def _depthwise(weight: np.ndarray, kernel: tuple[int, int], channels: int) -> np.ndarray:
    return np.moveaxis(weight, -1, 0)[..., None]


def convolution(
    weights: Callable[[np.ndarray, tuple[int, int], int], np.ndarray], transposed: bool, target: Target,
    shapes: Shapes, x: np.ndarray, in_scale: float, in_zp: int, weight: np.ndarray, scales: np.ndarray,
    out_scale: float, out_zp: int, kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int],
    dilation: tuple[int, int], bias: np.ndarray | None = None,
) -> Arrays:  # fmt: skip
    """``weights`` gives them as (OC, KH, KW, channels)."""
    found: Any = Window(kernel, stride, padding, dilation, transposed)
    logical = weights(weight, kernel, x.shape[1])
    acc = conv.accumulate(found, x.astype(np.int32) - in_zp, logical, (shapes[0][2], shapes[0][3]))
    return (requant(_real(acc, in_scale, scales, bias, 1), inverse(out_scale), out_zp),)


def _sums(x: np.ndarray, in_zp: int, weight: np.ndarray) -> np.ndarray:
    """Sums in binary64 are exact: at most 2^16 a product, and a file has less than 2^37 of them."""
    rows = x.reshape(-1, x.shape[-1]).astype(np.float64) - in_zp
    return (rows @ weight.astype(np.float64).T).astype(np.int64)


def linear(
    target: Target, shapes: Shapes, x: np.ndarray, in_scale: float, in_zp: int, weight: np.ndarray,
    scales: np.ndarray, out_scale: float, out_zp: int, bias: np.ndarray | None = None,
) -> Arrays:  # fmt: skip
    v = _real(_sums(x, in_zp, weight), in_scale, scales, bias, 1)
    return (requant(v, inverse(out_scale), out_zp),)


def float_linear(
    target: Target, shapes: Shapes, x: np.ndarray, in_scale: float, in_zp: int, weight: np.ndarray,
    scales: np.ndarray, bias: np.ndarray | None = None,
) -> Arrays:  # fmt: skip
    """The real value itself. The activation must be int8."""
    return (_real(_sums(x, in_zp, weight), in_scale, scales, bias, 1),)


_WEIGHTED = "x:t in_scale:d in_zp:i weight:t sums:- scales:t"
_REQUANTIZED = f"{_WEIGHTED} out_scale:d out_zp:i bias:t"
_WINDOW = "kernel:l stride:l padding:l dilation:l groups:- activation:-"
_TRANSPOSED = _WINDOW.replace("padding:l", "padding:l output_padding:-")
_CONVOLUTIONS = {"q8ta_conv2d": _logical, "q8ta_conv2d_pw": _logical, "q8ta_conv2d_dw": _depthwise}

ROWS: tuple[FlatOp, ...] = (
    *(
        flat(
            f"et_vk.{name}.default",
            f"{_REQUANTIZED} {_WINDOW}",
            partial(convolution, weights, False),
            PRODUCTS,
        )
        for name, weights in _CONVOLUTIONS.items()
    ),
    flat(
        "et_vk.q8ta_conv2d_transposed.default",
        f"{_REQUANTIZED} {_TRANSPOSED}",
        partial(convolution, _logical, True),
        PRODUCTS,
    ),
    flat("et_vk.q8ta_linear.default", f"{_REQUANTIZED} activation:-", linear, PRODUCTS),
    flat("et_vk.q8ta_linear_gemv.default", f"{_REQUANTIZED} activation:-", linear, PRODUCTS),
    flat(
        "et_vk.linear_q8ta_q8csw.default",
        f"{_WEIGHTED} bias:t",
        float_linear,
        "(sum * input scale) * weight scale, in this order",
    ),
)

"""Flat meanings of the operators that work element by element."""

from __future__ import annotations

import numpy as np

from refsim.core.qmath import mul_add
from refsim.ops.base.target import Target
from refsim.ops.flat.base import F32, INVERSE, FlatOp, flat, inverse, real, requant

Shapes = tuple[tuple[int, ...], ...]
Arrays = tuple[np.ndarray, ...]


def quantize(target: Target, shapes: Shapes, x: np.ndarray, scale: float, zp: int) -> Arrays:
    """requant(x); the range and the dtype that a file names are not read."""
    return (requant(x, inverse(scale), zp),)


def dequantize(target: Target, shapes: Shapes, x: np.ndarray, scale: float, zp: int) -> Arrays:
    return (real(x, zp, scale),)


def add(
    target: Target, shapes: Shapes, a: np.ndarray, b: np.ndarray, a_scale: float, a_zp: int, b_scale: float,
    b_zp: int, out_scale: float, out_zp: int, alpha: float,
) -> Arrays:  # fmt: skip
    """Alpha is always multiplied. Neither shader compiler forbids a driver to fuse the first product with the sum."""
    addend = (F32(alpha) * real(b, b_zp, b_scale)).ravel()
    steps = (a.astype(np.int32) - np.int32(a_zp)).astype(F32).ravel()
    y = mul_add(steps, np.full(steps.shape, F32(a_scale)), addend, target.profile.flags)
    return (requant(y, inverse(out_scale), out_zp),)


def relu(
    target: Target, shapes: Shapes, x: np.ndarray, in_scale: float, in_zp: int, out_scale: float, out_zp: int
) -> Arrays:
    return (requant(np.maximum(real(x, in_zp, in_scale), F32(0)), inverse(out_scale), out_zp),)


def pixel_shuffle(
    target: Target, shapes: Shapes, x: np.ndarray, in_scale: float, in_zp: int, out_inv_scale: float,
    out_zp: int, upscale: int,
) -> Arrays:  # fmt: skip
    """The inverse is that of the file; nothing is left out where scales agree."""
    *outer, channels, height, width = x.shape
    r = upscale
    tiles = x.reshape(-1, channels // (r * r), r, r, height, width).transpose(0, 1, 4, 2, 5, 3)
    moved = tiles.reshape(*outer, channels // (r * r), height * r, width * r)
    return (requant(real(moved, in_zp, in_scale), F32(out_inv_scale), out_zp),)


def clone(target: Target, shapes: Shapes, x: np.ndarray) -> Arrays:
    """A copy of the bytes: both lie in the same order."""
    return (x,)


#: Why NaN, infinities and the like give other bytes than on ET-VK; other shader compilers convert them otherwise, too.
CLAMPED = "a float beyond int32, or NaN, is clamped before it is converted"
_QUANTIZED = "x:t scale:d zp:i qmin:- qmax:- dtype:-"
_ADDED = "a:t b:t a_scale:d a_zp:i b_scale:d b_zp:i out_scale:d out_zp:i alpha:d"

ROWS: tuple[FlatOp, ...] = (
    flat("quantized_decomposed.quantize_per_tensor.default", _QUANTIZED, quantize, f"{INVERSE}; {CLAMPED}"),
    flat("quantized_decomposed.dequantize_per_tensor.default", f"{_QUANTIZED} out_dtype:-", dequantize),
    flat("et_vk.q8ta_add.default", _ADDED, add, INVERSE),
    flat("et_vk.q8ta_relu.default", "x:t in_scale:d in_zp:i out_scale:d out_zp:i", relu, INVERSE),
    flat(
        "et_vk.q8ta_pixel_shuffle.default",
        "x:t in_scale:d in_zp:i out_inv_scale:d out_zp:i upscale:i",
        pixel_shuffle,
    ),
    flat("aten.clone.default", "x:t memory_format:-", clone),
)

"""Upsampling of images. ET-VK's nearest neighbour is not ATen's: it rounds where ATen takes the floor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refsim.aten import within
from refsim.aten.row import Exact, Float, Place, contiguous, sized
from refsim.core.qmath import round_half

F32 = np.float32


def given_sizes(
    x: np.ndarray, size: Sequence[int] | None, scales: Sequence[float | None] | None
) -> tuple[int, int]:
    """The output's height and width: given, or the input's times the scales."""
    if size is not None:
        height, width = size[0], size[1]
    elif scales is not None:
        height, width = (int(n * s) for n, s in zip(x.shape[-2:], scales, strict=True))
    else:
        raise ValueError("neither a size nor scales")
    sized(*x.shape[:-2], height, width)
    return height, width


def steps(
    x: np.ndarray, out: tuple[int, int], scales: Sequence[float | None] | None, align: bool
) -> list[np.float32]:  # fmt: skip
    """Input elements per output element, in binary32."""
    if align:
        return [F32(n - 1) / F32(m - 1) if m > 1 else F32(0) for n, m in zip(x.shape[-2:], out, strict=True)]
    given = scales or (None, None)
    return [
        F32(n) / F32(m) if s is None else F32(1.0 / s)
        for n, m, s in zip(x.shape[-2:], out, given, strict=True)
    ]


def nearest(
    x: np.ndarray, size: Sequence[int] | None, scales: Sequence[float | None] | None = None
) -> np.ndarray:  # fmt: skip
    out = given_sizes(x, size, scales)
    places = [
        np.minimum(np.floor(np.arange(m, dtype=F32) * step).astype(np.int64), n - 1)
        for m, n, step in zip(out, x.shape[-2:], steps(x, out, scales, False), strict=True)
    ]
    return contiguous(x[..., places[0][:, None], places[1]])


def _centres(place: Place, count: int, step: np.float32, align: bool = False) -> np.ndarray:
    """Where the middle of each output element lies, in input elements."""
    at = np.arange(count, dtype=F32)
    if align:
        return at * step
    return place.fma(at + F32(0.5), np.full(count, step), np.full(count, F32(-0.5)))


def _nearest(
    place: Place, x: np.ndarray, size: Sequence[int] | None, scales: Sequence[float | None] | None = None
) -> np.ndarray:
    out = given_sizes(x, size, scales)
    places = [
        np.clip(round_half(_centres(place, m, step), place.profile.flags).astype(np.int64), 0, n - 1)
        for m, n, step in zip(out, x.shape[-2:], steps(x, out, None, False), strict=True)
    ]
    return contiguous(x[..., places[0][:, None], places[1]])


def bilinear(
    x: np.ndarray, size: Sequence[int] | None, align: bool, scales: Sequence[float | None] | None = None
) -> np.ndarray:
    out = given_sizes(x, size, scales)
    (top, bottom, fy), (left, right, fx) = (
        _neighbours(m, n, step, align)
        for m, n, step in zip(out, x.shape[-2:], steps(x, out, scales, align), strict=True)
    )
    fy, one = fy[:, None], F32(1)
    upper = x[..., top[:, None], left] * (one - fx) + x[..., top[:, None], right] * fx
    lower = x[..., bottom[:, None], left] * (one - fx) + x[..., bottom[:, None], right] * fx
    return upper * (one - fy) + lower * fy


def _neighbours(
    count: int, size: int, step: np.float32, align: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The elements before and after each output element, and the weight of the latter."""
    at = np.arange(count, dtype=F32)
    if count == size:
        return np.arange(count), np.arange(count), np.zeros(count, F32)
    where = step * at if align else np.maximum(step * (at + F32(0.5)) - F32(0.5), F32(0))
    first = np.minimum(np.floor(where).astype(np.int64), size - 1)
    weight = np.clip(where - first.astype(F32), F32(0), F32(1))
    return first, first + (first < size - 1), weight


def mix(a: np.ndarray, b: np.ndarray, t: np.ndarray) -> np.ndarray:
    """GLSL's mix()."""
    return a * (F32(1) - t) + b * t


def _bilinear(
    place: Place, x: np.ndarray, size: Sequence[int] | None, align: bool, scales: Sequence[float | None] | None = None
) -> np.ndarray:  # fmt: skip
    """The weight is the distance to the clamped neighbour, so that it is negative before the first element."""
    out = given_sizes(x, size, scales)
    corners = []
    for m, n, step in zip(out, x.shape[-2:], steps(x, out, None, align), strict=True):
        where = _centres(place, m, step, align)
        low, high = (np.clip(v(where), 0, n - 1) for v in (np.floor, np.ceil))
        corners.append((low.astype(np.int64), high.astype(np.int64), where - low))
    (top, bottom, fy), (left, right, fx) = corners

    upper = mix(x[..., top[:, None], left], x[..., top[:, None], right], fx)
    lower = mix(x[..., bottom[:, None], left], x[..., bottom[:, None], right], fx)
    return mix(upper, lower, fy[:, None])


_NEAREST: dict[str, Any] = {
    "order": "clamp(round((o + 0.5) * step - 0.5))",
    "note": "the shader rounds where ATen takes floor(o * step): other elements where the factor is not whole",
}
_BILINEAR: dict[str, Any] = {
    "order": "mix(mix(00, 10, fx), mix(01, 11, fx), fy)",
    "exact": Exact.FUNCTION,
    "bound": "how a device computes mix(): a * (1 - t) + b * t here",
    "within": within.mixed,
}
ROWS = (
    Float("upsample_nearest2d.vec upsample_nearest2d.vec_out", nearest, _nearest, **_NEAREST),
    Float(
        "upsample_nearest2d",
        lambda x, size, *scales: nearest(x, size, scales or None),
        lambda place, x, size, *scales: _nearest(place, x, size),
        **_NEAREST,
    ),
    Float("upsample_bilinear2d.vec upsample_bilinear2d.vec_out", bilinear, _bilinear, **_BILINEAR),
    Float(
        "upsample_bilinear2d",
        lambda x, size, align, *scales: bilinear(x, size, align, scales or None),
        lambda place, x, size, align, *scales: _bilinear(place, x, size, align),
        **_BILINEAR,
    ),
)

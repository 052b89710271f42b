"""Float operators that read images between their pixels: grids of places, and shrinking with anti-aliasing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from refsim.aten import within
from refsim.aten.row import Exact, Float, Place, contiguous
from refsim.aten.upsample import given_sizes, mix

F32 = np.float32
BILINEAR, NEAREST, BICUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)


# --- grid_sampler_2d -------------------------------------------------------------------------------------


def _unnormalized(at: np.ndarray, size: int, align: bool) -> np.ndarray:
    """From -1 .. 1 to pixels: the middles of the outer ones if ``align``, else their outer edges."""
    t = at.dtype.type
    return ((at + t(1)) / t(2)) * t(size - 1) if align else ((at + t(1)) * t(size) - t(1)) / t(2)


def _clipped(at: np.ndarray, size: int) -> np.ndarray:
    return np.minimum(np.maximum(at, at.dtype.type(0)), at.dtype.type(size - 1))


def _reflected(at: np.ndarray, size: int, align: bool) -> np.ndarray:
    """Back and forth between the middles of the outer pixels, or between their outer edges."""
    t = at.dtype.type
    low, span = (t(0), t(size - 1)) if align else (t(-0.5), t(size))
    if not span:
        return np.zeros_like(at)
    far = np.abs(at - low)
    extra = np.fmod(far, span)
    return np.where(np.floor(far / span) % 2 == 0, extra + low, span - extra + low)


def _source(at: np.ndarray, size: int, padding: int, align: bool) -> np.ndarray:
    at = _unnormalized(at, size, align)
    if padding == REFLECTION:
        at = _reflected(at, size, align)
    return at if padding == ZEROS else _clipped(at, size)


def _whole(at: np.ndarray) -> np.ndarray:
    """As an index; what is no number lies outside every image."""
    return np.nan_to_num(at, nan=-(2.0**31), posinf=2.0**31, neginf=-(2.0**31)).astype(np.int64)


def _pixels(x: np.ndarray, rows: np.ndarray, columns: np.ndarray, zeros: bool) -> np.ndarray:
    """(N, C, OH, OW) of ``x`` (N, C, H, W) at places (N, OH, OW), which are 0 or the nearest pixel outside it."""
    h, w = x.shape[-2:]
    batch = np.arange(len(x))[:, None, None]
    found = np.moveaxis(x, 1, -1)[batch, rows.clip(0, h - 1), columns.clip(0, w - 1)]
    if zeros:
        inside = (rows >= 0) & (rows < h) & (columns >= 0) & (columns < w)
        found = np.where(inside[..., None], found, x.dtype.type(0))
    return np.moveaxis(found, -1, 1)


def grid_sampler_2d(x: np.ndarray, grid: np.ndarray, mode: int, padding: int, align: bool) -> np.ndarray:
    """``x`` (N, C, H, W) at ``grid`` (N, OH, OW, 2), which has (x, y) from -1 to 1."""
    if x.ndim != 4 or grid.ndim != 4 or grid.shape[-1] != 2 or len(grid) != len(x):
        raise ValueError(f"a grid of {grid.shape} for {x.shape}")
    if mode not in (BILINEAR, NEAREST, BICUBIC) or padding not in (ZEROS, BORDER, REFLECTION):
        raise ValueError(f"no such sampling: mode {mode}, padding {padding}")
    h, w = x.shape[-2:]
    if mode == BICUBIC:
        return _bicubic(x, grid, padding, align)
    columns, rows = (_source(grid[..., d], size, padding, align) for d, size in ((0, w), (1, h)))
    zeros = padding == ZEROS
    if mode == NEAREST:
        return contiguous(_pixels(x, _whole(np.rint(rows)), _whole(np.rint(columns)), zeros))
    left, top = _whole(np.floor(columns)), _whole(np.floor(rows))
    after_x, after_y = ((first + 1).astype(x.dtype) - at for first, at in ((left, columns), (top, rows)))
    before_x, before_y = columns - left.astype(x.dtype), rows - top.astype(x.dtype)
    corners = (
        (top, left, after_x * after_y), (top, left + 1, before_x * after_y),
        (top + 1, left, after_x * before_y), (top + 1, left + 1, before_x * before_y),
    )  # fmt: skip
    parts = [_pixels(x, r, c, zeros) for r, c, _ in corners]
    total = _weighted(parts, [weight[:, None] for _, _, weight in corners])
    # those outside are not added to a sum that starts from 0
    return total + x.dtype.type(0) if zeros else total


def _cubic(t: np.ndarray) -> list[np.ndarray]:
    """Weights of four pixels in a row; `t` is the distance from the second."""
    f = t.dtype.type
    a = f(-0.75)

    def near(d: np.ndarray) -> np.ndarray:
        return ((a + f(2)) * d - (a + f(3))) * d * d + f(1)

    def far(d: np.ndarray) -> np.ndarray:
        return ((a * d - f(5) * a) * d + f(8) * a) * d - f(4) * a

    rest = f(1) - t
    return [far(t + f(1)), near(t), near(rest), far(rest + f(1))]


def _bicubic(x: np.ndarray, grid: np.ndarray, padding: int, align: bool) -> np.ndarray:
    h, w = x.shape[-2:]
    columns, rows = (_unnormalized(grid[..., d], size, align) for d, size in ((0, w), (1, h)))
    left, top = np.floor(columns), np.floor(rows)
    across, down = (
        [weight[:, None] for weight in _cubic(at - first)] for at, first in ((columns, left), (rows, top))
    )

    def place(first: np.ndarray, i: int, size: int) -> np.ndarray:
        at = (first + first.dtype.type(i)).astype(x.dtype)
        return _whole(_clipped(_reflected(at, size, align), size) if padding == REFLECTION else at)

    lines = []
    for i in range(-1, 3):
        parts = [_pixels(x, place(top, i, h), place(left, j, w), padding == ZEROS) for j in range(-1, 3)]
        lines.append(_weighted(parts, across))
    return _weighted(lines, down)


def _weighted(parts: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> np.ndarray:
    total = parts[0] * weights[0]
    for part, weight in zip(parts[1:], weights[1:], strict=True):
        total = total + part * weight
    return total


def _device_grid_sampler(
    place: Place, x: np.ndarray, grid: np.ndarray, mode: int, padding: int, align: bool
) -> np.ndarray:  # fmt: skip
    """The shader has one form: bilinear, border, corners aligned."""
    if (mode, padding, bool(align)) != (BILINEAR, BORDER, True):
        return grid_sampler_2d(x, grid, mode, padding, align)
    ends = []
    for d, size in ((1, x.shape[-2]), (0, x.shape[-1])):
        at = _clipped((grid[..., d] + F32(1)) * F32(0.5) * F32(size - 1), size)
        low = np.floor(at).astype(np.int64)
        ends.append((low, np.minimum(low + 1, size - 1), (at - low.astype(F32))[:, None]))
    (top, bottom, fy), (left, right, fx) = ends
    upper, lower = (mix(_pixels(x, r, left, False), _pixels(x, r, right, False), fx) for r in (top, bottom))
    return mix(upper, lower, fy)


# --- shrinking -------------------------------------------------------------------------------------------


def upsample_bilinear2d_aa(
    x: np.ndarray, size: Sequence[int] | None, align: bool, scales: Sequence[float | None] | None = None
) -> np.ndarray:
    """A triangle as wide as an output pixel: one addition after another, each product rounded twice."""
    out = given_sizes(x, size, scales)
    given = [s or m / n for s, m, n in zip(scales or (None, None), out, x.shape[-2:], strict=True)]
    rows, columns = (
        [
            _triangle(i, n, F32((n - 1) / (m - 1) if align and m > 1 else 0.0 if align else 1 / s))
            for i in range(m)
        ]
        for m, n, s in zip(out, x.shape[-2:], given, strict=True)
    )
    result = np.zeros((*x.shape[:-2], *out), x.dtype)
    for i, (top, down) in enumerate(rows):
        for j, (left, across) in enumerate(columns):
            total = np.zeros(x.shape[:-2], x.dtype)
            for r, a in enumerate(down):
                for c, b in enumerate(across):
                    total = total + x[..., top + r, left + c] * a * b
            result[..., i, j] = total
    return result


def _triangle(i: int, size: int, step: np.float32) -> tuple[int, list[np.float32]]:
    """The first input pixel of an output pixel, and the weights from there on."""
    half, one = F32(0.5), F32(1)
    centre = step * (F32(i) + half)
    support = max(step, one)
    first = max(int(centre - support + half), 0)
    last = min(int(centre + support + half), size)
    narrower = one / step if step >= one else one
    weights = [max(one - abs((F32(p) - centre + half) * narrower), F32(0)) for p in range(first, last)]
    total = F32(0)
    for weight in weights:
        total = total + weight
    if not total > 0:
        return max(0, min(int(centre), size - 1)), [one]
    return first, [weight / total for weight in weights]


# --- anchors ---------------------------------------------------------------------------------------------


def grid_priors(x: np.ndarray, stride: int, offset: float) -> np.ndarray:
    """(H * W, 2): the middle of each pixel, x before y, in the image that ``stride`` times that pixel is."""
    h, w = x.shape[-2:]
    at = np.stack([np.tile(np.arange(w), h), np.repeat(np.arange(h), w)], 1).astype(F32)
    return (at + F32(offset)) * F32(stride)


def _no_list(function: Callable[..., Any]) -> Callable[..., Any]:
    """The overload whose two scales are arguments of their own."""
    return lambda x, size, align, *scales: function(x, size, align, scales or None)


_MIX = "how a device computes mix(): a * (1 - t) + b * t here"
ROWS = (
    Float(
        "grid_sampler_2d", grid_sampler_2d, _device_grid_sampler, Exact.FUNCTION,
        "mix(mix(00, 10, fx), mix(01, 11, fx), fy) at ((g + 1) * 0.5) * (size - 1)", _MIX, within.mixed,
    ),
    Float("_upsample_bilinear2d_aa.vec", partial(upsample_bilinear2d_aa)),
    Float("_upsample_bilinear2d_aa", _no_list(upsample_bilinear2d_aa)),
    Float("grid_priors", grid_priors, order="(i + offset) * stride"),
)  # fmt: skip

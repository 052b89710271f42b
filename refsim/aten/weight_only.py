"""Matrix products of a float tensor and whole-number weights, whose scales come after the sum."""

from __future__ import annotations

import numpy as np

from refsim.aten.matrix import HOST, chain
from refsim.aten.reduce import in_order
from refsim.aten.row import Float, Place
from refsim.core.layout import W

#: Invocations that share the products of one row.
WORKERS = 8


def weight_int8pack_mm(x: np.ndarray, weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """``x`` (.., M, K), ``weight`` int8 (N, K), ``scales`` (N,)."""
    return chain(HOST, x, weight.T.astype(x.dtype)) * scales


def _device_int8pack(place: Place, x: np.ndarray, weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """One chain over k; texel by texel for one row, and where the sizes do not fill texels."""
    columns = weight.T.astype(x.dtype)
    if not _tiled(place, x, columns):
        return (
            chain(place, x, columns) if place.buffer else in_order(_by_texels(place, x, columns))
        ) * scales
    return (_one_row(place, x, columns) if x.shape[-2] == 1 else chain(place, x, columns)) * scales


def linear_qcs4w(x: np.ndarray, weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """``weight`` uint8 (N, K / 2): eight more than each weight, the even k in the upper half of a byte."""
    return chain(HOST, x, _halves(weight).astype(x.dtype) - x.dtype.type(8)) * scales


def _device_qcs4w(place: Place, x: np.ndarray, weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Several rows multiply by the halves as they are, and take out eight times the row's sum at the end."""
    columns = _halves(weight).astype(x.dtype)
    if x.shape[-2] == 1:
        return _one_row(place, x, columns - x.dtype.type(8)) * scales
    texels = np.moveaxis(x.reshape(*x.shape[:-1], -1, 4), (-1, -2), (0, 1))
    row = in_order(((texels[0] + texels[1]) + texels[2]) + texels[3])[..., None]
    sums = chain(place, x, columns)
    eight = np.full(sums.shape, x.dtype.type(-8))
    return place.fma(np.broadcast_to(row, sums.shape), eight, sums) * scales


def _halves(weight: np.ndarray) -> np.ndarray:
    """(K, N) of a weight whose bytes hold two."""
    return np.stack([weight >> 4, weight & 15], -1).reshape(len(weight), -1).T


def _tiled(place: Place, x: np.ndarray, columns: np.ndarray) -> bool:
    k, n = columns.shape
    return k % 4 == 0 and n % 4 == 0 and place.packed == W and (x.ndim < 3 or len(x) == 1)


def _one_row(place: Place, x: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Each worker adds every eighth texel; then the workers in turn."""
    texels = _by_texels(place, x, columns)
    return in_order(np.stack([in_order(texels[worker::WORKERS]) for worker in range(WORKERS)]))


def _by_texels(place: Place, x: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """(texels, .., M, N): the products of four neighbours along k, added up."""
    missing = -x.shape[-1] % 4
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
    columns = np.pad(columns, [(0, missing), (0, 0)])
    rows = np.moveaxis(x.reshape(*x.shape[:-1], -1, 4), (-1, -2), (0, 1))[..., None]
    taps = columns.reshape(-1, 4, *[1] * (x.ndim - 1), columns.shape[1]).swapaxes(0, 1)
    total = rows[0] * taps[0]
    for k in range(1, 4):
        a, b = np.broadcast_arrays(rows[k], taps[k])
        total = place.fma(a, b, total)
    return total


_CHAIN = "fma over k from 0, or for one row four at a time by eight workers"
ROWS = (
    Float("_weight_int8pack_mm", weight_int8pack_mm, _device_int8pack, order=_CHAIN + "; * scale"),
    Float("linear_qcs4w", linear_qcs4w, _device_qcs4w, order=_CHAIN + "; - 8 * sum of x; * scale"),
)

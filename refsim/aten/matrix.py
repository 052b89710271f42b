"""Matrix products in float: one chain of products and sums over k, as portable kernels and ET-VK's shaders do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refsim.aten.arithmetic import promoted
from refsim.aten.reduce import in_order
from refsim.aten.row import Exact, Float, Place

#: Outside a delegate nothing is fused.
HOST = Place()


def chain(place: Place, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(.., M, K) times (.., K, N): from 0, out = fma(a[k], b[k], out) for k ascending."""
    if a.shape[-1] != b.shape[-2]:
        raise ValueError(f"{a.shape[-1]} columns meet {b.shape[-2]} rows")
    dtype = promoted(a, b)
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.zeros((*lead, a.shape[-2], b.shape[-1]), dtype)
    a, b = np.ascontiguousarray(np.moveaxis(a, -1, 0)), np.ascontiguousarray(np.moveaxis(b, -2, 0))
    for column, row in zip(a, b, strict=True):
        out = place.fma(column[..., :, None], row[..., None, :], out)
    return out


def _mm(place: Place, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"product of tensors with {a.ndim} and {b.ndim} dims, need 2")
    return chain(place, a, b)


def _bmm(place: Place, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.ndim != 3 or b.ndim != 3:
        raise ValueError(f"product of tensors with {a.ndim} and {b.ndim} dims, need 3")
    return chain(place, a, b)


def _matmul(place: Place, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Vectors take part as a row or a column, which goes away again."""
    result = chain(place, a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b)
    result = result[..., 0, :] if a.ndim == 1 else result
    return result[..., 0] if b.ndim == 1 else result


def _linear(place: Place, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    product = _matmul(place, x, weight.T)
    return product if bias is None else product + bias


def _addmm(
    place: Place, bias: np.ndarray, a: np.ndarray, b: np.ndarray, beta: float = 1, alpha: float = 1
) -> np.ndarray:
    product = chain(place, a, b)
    t = product.dtype.type
    added = np.broadcast_to(bias if beta == 1 else t(beta) * bias, product.shape)
    return product + added if alpha == 1 else place.fma(np.full(product.shape, t(alpha)), product, added)


def cdist(a: np.ndarray, b: np.ndarray, p: float = 2.0, mode: Any = None) -> np.ndarray:
    """(.., P, M) and (.., R, M) to (.., P, R): the p-norm of each difference, summed in the order of memory."""
    return _norm(np.abs(a[..., :, None, :] - b[..., None, :, :]), p)


def pdist(x: np.ndarray, p: float = 2.0) -> np.ndarray:
    first, second = np.triu_indices(len(x), 1)
    return _norm(np.abs(x[first] - x[second]), p)


def _norm(apart: np.ndarray, p: float) -> np.ndarray:
    rows, t = np.moveaxis(apart, -1, 0), apart.dtype.type
    if p == 0:
        return in_order((rows != 0).astype(apart.dtype))
    if p == float("inf"):
        return np.max(rows, axis=0, initial=t(0))
    if p in (1, 2):
        return in_order(rows) if p == 1 else np.sqrt(in_order(rows * rows))
    powers = np.power(rows.astype(np.float64), p).astype(apart.dtype)
    return np.power(in_order(powers).astype(np.float64), 1.0 / p).astype(apart.dtype)


def row(name: str, function: Callable[..., Any], order: str, **more: Any) -> Float:
    """A row whose two meanings differ in fusing only."""
    return Float(name, lambda *args: function(HOST, *args), function, order=order, **more)


def thin(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factors with a K of 1: their product has the same shape."""
    return a[..., :1], b[..., :1, :] if b.ndim > 1 else b[:1]


_CHAIN = "fma over k from 0"
ROWS = (
    row("mm", _mm, _CHAIN, outline=thin),
    row("bmm", _bmm, _CHAIN, outline=thin),
    row("matmul", _matmul, _CHAIN, outline=thin),
    row("linear", _linear, _CHAIN + "; + bias", outline=lambda x, w, *bias: (x[..., :1], w[..., :1], *bias)),
    row(
        "addmm baddbmm", _addmm, _CHAIN + "; alpha * product + beta * bias",
        outline=lambda bias, a, b, *factors: (bias, *thin(a, b), *factors),
    ),
    Float("_cdist_forward", cdist, exact=Exact.FUNCTION, bound="ET-VK has no shader for it; exact for p of 0, 1, 2"),
    Float("_pdist_forward", pdist, exact=Exact.FUNCTION, bound="ET-VK has no shader for it; exact for p of 0, 1, 2"),
)  # fmt: skip

"""Matrix products in float: one chain of products and sums over k, as portable kernels and ET-VK's shaders do it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refsim.aten.arithmetic import promoted
from refsim.aten.row import Float, Place

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


def _int8pack(place: Place, x: np.ndarray, weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """A linear whose int8 weights are scaled after the chain."""
    return chain(place, x, weight.T.astype(x.dtype)) * scales


def row(name: str, function: Callable[..., Any], order: str, **more: Any) -> Float:
    """A row whose two meanings differ in fusing only."""
    return Float(name, lambda *args: function(HOST, *args), function, order=order, **more)


_CHAIN = "fma over k from 0"
ROWS = (
    row("mm", _mm, _CHAIN),
    row("bmm", _bmm, _CHAIN),
    row("matmul", _matmul, _CHAIN),
    row("linear", _linear, _CHAIN + "; + bias"),
    row("_weight_int8pack_mm", _int8pack, _CHAIN + "; * scale"),
    row("addmm baddbmm", _addmm, _CHAIN + "; alpha * product + beta * bias"),
)

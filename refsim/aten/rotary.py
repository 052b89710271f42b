"""Rotary embeddings: pairs of elements turned by an angle that depends on their row."""

from __future__ import annotations

import numpy as np

from refsim.aten.matrix import HOST
from refsim.aten.row import Float, Place


def _turned(
    place: Place, a: np.ndarray, b: np.ndarray, cos: np.ndarray, sin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(a * cos - b * sin, a * sin + b * cos); the second product is rounded before it is added."""
    cos, sin = np.broadcast_to(cos, a.shape), np.broadcast_to(sin, a.shape)
    return place.fma(a, cos, -(b * sin)), place.fma(a, sin, b * cos)


def _neighbours(place: Place, x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Pairs are neighbours."""
    result = np.empty_like(x)
    result[..., ::2], result[..., 1::2] = _turned(place, x[..., ::2], x[..., 1::2], cos, sin)
    return result


def _rows(table: np.ndarray, count: int, start: int = 0) -> np.ndarray:
    """The rows of a table that belong to ``count`` positions from ``start`` on, alike for all heads."""
    if not 0 <= start <= len(table) - count:
        raise ValueError(f"positions {start} to {start + count} of {len(table)}")
    return table[start : start + count, None]


def rotary(
    place: Place, q: np.ndarray, k: np.ndarray, cos: np.ndarray, sin: np.ndarray
) -> tuple[np.ndarray, ...]:
    """``q``, ``k`` (batch, positions, heads, D); ``cos``, ``sin`` (positions, D / 2)."""
    return tuple(_neighbours(place, x, _rows(cos, x.shape[1]), _rows(sin, x.shape[1])) for x in (q, k))


def rotary_halves(
    place: Place, q: np.ndarray, k: np.ndarray, cos: np.ndarray, sin: np.ndarray, start: int
) -> tuple[np.ndarray, ...]:
    """Pairs stand half a row apart; ``cos``, ``sin`` (positions, R), of which the first half counts. The rest stays."""
    half = cos.shape[-1] // 2
    found = []
    for x in (q, k):
        c, s = (_rows(table, x.shape[1], start)[..., :half] for table in (cos, sin))
        a, b = x[..., :half], x[..., half : 2 * half]
        c, s = np.broadcast_to(c, a.shape), np.broadcast_to(s, a.shape)
        turned = place.fma(a, c, -(b * s)), place.fma(b, c, a * s)
        found.append(np.concatenate([*turned, x[..., 2 * half :]], -1))
    return tuple(found)


def rotary_interleaved(place: Place, x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """``x`` (batch, positions, D); ``angles`` hold a cosine and a sine for each pair."""
    pairs = angles.reshape(x.shape[-2], -1, 2)
    return _neighbours(place, x, pairs[..., 0], pairs[..., 1])


_ORDER = "a * cos - b * sin, a * sin + b * cos"
ROWS = (
    Float("apply_rotary_emb", lambda *args: rotary(HOST, *args), rotary, order=_ORDER),
    Float(
        "apply_rotary_emb_hf",
        lambda *args: rotary_halves(HOST, *args),
        rotary_halves,
        order="a * cos - b * sin, b * cos + a * sin",
    ),
    Float(
        "apply_rotary_emb_interleaved",
        lambda *args: rotary_interleaved(HOST, *args),
        rotary_interleaved,
        order=_ORDER,
    ),
)

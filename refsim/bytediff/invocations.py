"""Who writes what: the coordinates of a buffer's places, and the GPU workgroup and invocation behind a word."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.core import index
from refsim.core.launch import Launch, Triple
from refsim.core.tensor import TensorDesc
from refsim.ops.base.registry import OPS

Coordinates = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Writer:
    """The point of the dispatch's domain that writes a word; the workgroup, and the invocation in it."""

    point: Triple
    workgroup: Triple
    invocation: Triple


def coordinates(desc: TensorDesc) -> Coordinates:
    """(n, c, h, w) of every element place of a buffer, padding included: int64 arrays, in physical order."""
    places = np.arange(desc.buffer_numel, dtype=np.int64)
    w, h, c, n = (np.broadcast_to(a, places.shape) for a in index.coord(desc.meta, 0, desc.hashed, places))
    return n, c, h, w


def domain_points(launch: Launch) -> np.ndarray:
    """The point (x, y, z) of the launch's domain that writes each word of its output: int64 (3, words)."""
    words = np.arange(launch.out.words, dtype=np.int64)
    return np.stack([np.broadcast_to(along, words.shape) for along in _point(launch, words)])


def writer(launch: Launch, word: int) -> Writer:
    """Who writes one word of the launch's output."""
    point = _triple(_point(launch, np.int64(word)))
    group, invocation = launch.invocation(point)
    return Writer(point, _triple(group), _triple(invocation))


def _point(launch: Launch, words: np.ndarray | np.int64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    out = launch.out
    w, h, c, n = index.coord(out.meta, 0, out.hashed, words * (4 if out.is_int8 else 1))
    point = OPS[launch.shader].point
    assert point is not None
    return point(launch, words, w, h, c, n)


def _triple(values: object) -> Triple:
    x, y, z = (int(value) for value in values)  # type: ignore[attr-defined]
    return x, y, z

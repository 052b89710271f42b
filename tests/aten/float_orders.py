"""Orders of additions in which invocations of ET-VK's shaders work, played by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from refsim import aten
from refsim.core.layout import C, H, W
from refsim.core.qmath import fused
from refsim.core.rng import Rng

F32 = np.float32


def run(name: str, *args: object, place: aten.Place | None = None) -> np.ndarray:
    return aten.find(name, "node 3").run(args, "node 3", place)[0]


def values(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Of magnitudes so different that another order of additions shows."""
    rng = Rng(seed)
    return (rng.uniform(-1.0, 1.0, shape) * 2.0 ** rng.ints(0, 12, shape)).astype(np.float32)


def in_turn(parts: list[np.float32]) -> np.float32:
    total = parts[0]
    for part in parts[1:]:
        total = F32(total + part)
    return total


def tree(parts: list[np.float32]) -> np.float32:
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [F32(a + b) for a, b in zip(parts[:half], parts[half:], strict=True)]
    return parts[0]


def neighbours(parts: list[np.float32]) -> np.float32:
    while len(parts) > 1:
        parts = [F32(a + b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def worker(row: np.ndarray, first: int, step: int) -> np.float32:
    total = F32(0)
    for value in row[first::step]:
        total = F32(total + value)
    return total


def by_four(row: np.ndarray) -> np.float32:
    return in_turn([worker(row, t, 4) for t in range(4)])


def by_texels(row: np.ndarray) -> np.float32:
    """A packed dim: whole texels dealt to four workers, the rest to component x of the worker in turn."""
    full = len(row) // 4
    parts = [[worker(row[: 4 * full].reshape(-1, 4)[:, c], t, 4) for c in range(4)] for t in range(4)]
    for value in row[4 * full :]:
        parts[full % 4][0] = F32(parts[full % 4][0] + value)
    return in_turn([in_turn([parts[t][c] for t in range(4)]) for c in range(4)])


def by_lanes(row: np.ndarray) -> np.float32:
    return tree([worker(row, t, 64) for t in range(64)])


def product_chain(pairs: list[tuple[np.float32, np.float32]], start: np.float32, fuse: bool) -> np.float32:
    total = start
    for a, b in pairs:
        total = fused(a, b, total) if fuse else F32(F32(a * b) + total)
    return total


ROWS: dict[str, tuple[aten.Place, int, Callable[[np.ndarray], np.float32]]] = {
    "not packed": (aten.Place(packed=C), 3, by_four),
    "not packed, height": (aten.Place(packed=W), 2, by_four),
    "packed width": (aten.Place(packed=W), 3, by_texels),
    "packed height": (aten.Place(packed=H), 2, by_texels),
    "packed channels": (aten.Place(packed=C), 1, by_texels),
    "row of a buffer": (aten.Place(packed=W, buffer=True), 3, by_lanes),
}

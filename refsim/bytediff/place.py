"""Where a byte lies: coordinate, word, lane, block, and the GPU workgroup and invocation that write it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim import index
from refsim.launch import Launch
from refsim.op import OPS
from refsim.tensor import TensorDesc

Coordinates = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Place:
    """One byte of a buffer. ``nchw`` may lie beyond the tensor's sizes: then it is padding."""

    byte: int
    word: int
    lane: int
    block: int
    nchw: tuple[int, int, int, int]
    workgroup: tuple[int, int, int] | None = None
    invocation: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        n, c, h, w = self.nchw
        return (
            f"byte {self.byte} n={n} c={c} h={h} w={w} word {self.word} lane {self.lane} block {self.block}"
        )


def coordinates(desc: TensorDesc) -> Coordinates:
    """(n, c, h, w) of every element place of a buffer, padding included: int64 arrays, in physical order."""
    places = np.arange(desc.buffer_numel, dtype=np.int64)
    w, h, c, n = (np.broadcast_to(a, places.shape) for a in index.coord(desc.meta, 0, desc.hashed, places))
    return n, c, h, w


def domain_points(launch: Launch) -> np.ndarray:
    """The point (x, y, z) of the launch's domain that writes each word of its output: int64 (3, words)."""
    out = launch.out
    words = np.arange(out.words, dtype=np.int64)
    first = words * (4 if out.is_int8 else 1)
    w, h, c, n = index.coord(out.meta, 0, out.hashed, first)
    point = OPS[launch.shader].point
    assert point is not None
    return np.stack(np.broadcast_arrays(words, *point(launch, words, w, h, c, n))[1:])


def place(desc: TensorDesc, byte: int, launch: Launch | None = None) -> Place:
    """Where one byte of a buffer lies; with the launch that wrote the buffer, also who wrote it."""
    width = 1 if desc.is_int8 else 4
    w, h, c, n = (int(along) for along in index.coord(desc.meta, 0, desc.hashed, byte // width))
    word = byte // 4
    group = invocation = None
    if launch is not None:
        point = OPS[launch.shader].point
        assert point is not None
        first = 4 * word // width
        at = (int(along) for along in index.coord(desc.meta, 0, desc.hashed, first))
        groups, locals_ = launch.invocation(point(launch, word, *at))
        group, invocation = _triple(groups), _triple(locals_)
    block = byte // width // desc.layout.block_numel
    return Place(byte, word, byte % 4, block, (n, c, h, w), group, invocation)


def _triple(values: list[int]) -> tuple[int, int, int]:
    x, y, z = (int(value) for value in values)
    return x, y, z

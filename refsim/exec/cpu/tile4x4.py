"""Tiles of four pixels by four channel words: one vector of sixteen words, read from and written to any layout.

Words 4c to 4c + 3 of the vector are channel word c of the four pixels: the order in which `TILED` layouts lie in
memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from refsim.exec.cpu.ir import I32, Function, Value, vec
from refsim.exec.cpu.strides import NHWC, TILED

#: 4x4 words transposed: an involution.
TRANSPOSE4 = tuple(4 * (k % 4) + k // 4 for k in range(16))


@dataclass(frozen=True)
class Side:
    """One tensor inside a kernel: the kind of its layout, its strides and sizes; ``row`` points at a row."""

    kind: str
    pixel4_stride: Value
    pixel_stride: Value
    word_stride: Value
    width: Value
    words: Value


def concat(parts: list[Value]) -> Value:
    """Vectors one behind the other; their number is a power of two."""
    while len(parts) > 1:
        parts = [a.concat(b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    (whole,) = parts
    return whole


def quarters(vector: Value) -> list[Value]:
    """The four quarters of a vector."""
    size = vector.type.lanes // 4
    return [vector.shuffle(range(size * k, size * k + size)) for k in range(4)]


def zipped(vectors: list[Value], stages: int, size: int) -> list[Value]:
    """Interleave vectors k and n/2 + k within each 16 bytes, which gives vectors 2k and 2k + 1; so many times.

    Vectors are of bytes, elements have ``size`` bytes. log2(m) stages over m vectors transpose squares of m x m
    elements.
    """
    n = len(vectors) // 2
    for _ in range(stages):
        pairs = zip(vectors[:n], vectors[n:], strict=True)
        vectors = [_interleaved(a, b, size, half) for a, b in pairs for half in (0, 8)]
    return vectors


def _interleaved(a: Value, b: Value, size: int, half: int) -> Value:
    starts = [first + half + k for first in range(0, a.type.lanes, 16) for k in range(0, 8, size)]
    order = [at + k for start in starts for at in (start, start + a.type.lanes) for k in range(size)]
    return a.shuffle(order, b)


def pieces(side: Side, row: Value, pixel4: Value, word: Value, *, alone: bool = False) -> list[Value]:
    """Where the four pieces of 16 bytes of a tile lie: one per pixel in `NHWC` layouts, else one per channel word.

    ``alone``: the loop over words has no other tiles, so that registers can hold where its four pixels begin.
    """
    step = side.pixel_stride if side.kind == NHWC else side.word_stride
    apart = alone and side.kind == NHWC
    at = [
        row
        + (pixel4 * side.pixel4_stride if apart else pixel4 * side.pixel4_stride + word * side.word_stride)
    ]
    for _ in range(3):
        at.append(at[-1] + step)
    return [place + word * 4 for place in at] if apart else at


def load(fn: Function, side: Side, row: Value, pixel4: Value, word: Value) -> Value:
    """A tile that lies wholly inside the tensor."""
    at = pieces(side, row, pixel4, word, alone=True)
    if side.kind == TILED:
        return fn.load(at[0], vec(I32, 16))
    found = concat([fn.load(a, vec(I32, 4)) for a in at])
    return found.shuffle(TRANSPOSE4) if side.kind == NHWC else found


def load_clamped(fn: Function, side: Side, row: Value, pixel4: Value, word: Value) -> Value:
    """A tile of which some pixels or words may lie outside the tensor; for those it holds any other words.

    May read up to 60 bytes behind the row's last byte, which guard words allow.
    """
    if side.kind == TILED:
        return load(fn, side, row, pixel4, word)
    if side.kind == NHWC:
        pixels = [(pixel4 * 4 + j).min(side.width - 1) for j in range(4)]
        return concat(
            [fn.load(row + (p * side.pixel_stride + word * 4), vec(I32, 4)) for p in pixels]
        ).shuffle(TRANSPOSE4)
    words = [(word + j).min(side.words - 1) for j in range(4)]
    return concat([fn.load(row + (pixel4 * 16 + w * side.word_stride), vec(I32, 4)) for w in words])


def store(fn: Function, side: Side, tile: Value, row: Value, pixel4: Value, word: Value) -> None:
    """A tile that lies wholly inside the tensor."""
    at = pieces(side, row, pixel4, word, alone=True)
    if side.kind == TILED:
        fn.store(tile, at[0])
        return
    ordered = tile.shuffle(TRANSPOSE4) if side.kind == NHWC else tile
    for piece, a in zip(quarters(ordered), at, strict=True):
        fn.store(piece, a)


def store_inside(fn: Function, side: Side, tile: Value, row: Value, pixel4: Value, word: Value) -> None:
    """Only those words of a tile that lie inside the tensor."""
    at = pieces(side, row, pixel4, word, alone=True)
    pixels, words = side.width - pixel4 * 4, side.words - word
    ordered = tile.shuffle(TRANSPOSE4) if side.kind == NHWC else tile
    across, along = (pixels, words) if side.kind == NHWC else (words, pixels)
    for j, piece in enumerate(quarters(ordered)):

        def line(piece: Value = piece, to: Value = at[j]) -> None:
            def singly() -> None:
                for k in range(4):
                    fn.when(along > k, partial(fn.store, piece.shuffle([k]), to + 4 * k))

            fn.when(along >= 4, lambda: fn.store(piece, to), singly)

        fn.when(across > j, line)

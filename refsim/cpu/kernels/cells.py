"""Cells: four pixels by four channel words, one vector of sixteen words, read from and written to any layout.

Lane group c (of four words) is channel word c of the four pixels: the order in which blocks lie in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from refsim.cpu.ir import I32, Function, Value, vec
from refsim.cpu.view import BLOCKS, ROWS

#: 4x4 words transposed: an involution.
TRANSPOSE4 = tuple(4 * (k % 4) + k // 4 for k in range(16))


@dataclass(frozen=True)
class Side:
    """One tensor inside a kernel: the kind of its layout, its strides and sizes; ``row`` points at a row."""

    kind: str
    quad_stride: Value
    pixel_stride: Value
    word_stride: Value
    width: Value
    words: Value


def join(parts: list[Value]) -> Value:
    """Four vectors behind each other."""
    return parts[0].concat(parts[1]).concat(parts[2].concat(parts[3]))


def quarters(vector: Value) -> list[Value]:
    """The four quarters of a vector."""
    size = vector.type.lanes // 4
    return [vector.shuffle(range(size * k, size * k + size)) for k in range(4)]


def _addresses(side: Side, row: Value, quad: Value, word: Value) -> list[Value]:
    """Where the four pieces of 16 bytes lie: pixels of a layout of rows, else channel words."""
    if side.kind == ROWS:
        return [row + ((quad * 4 + j) * side.pixel_stride + word * 4) for j in range(4)]
    if side.kind == BLOCKS:
        return [row + (quad * side.quad_stride + (word + j) * 16) for j in range(4)]
    return [row + (quad * 16 + (word + j) * side.word_stride) for j in range(4)]


def load(fn: Function, side: Side, row: Value, quad: Value, word: Value) -> Value:
    """Cells that lie wholly inside the tensor."""
    at = _addresses(side, row, quad, word)
    if side.kind == BLOCKS:
        return fn.load(at[0], vec(I32, 16))
    found = join([fn.load(a, vec(I32, 4)) for a in at])
    return found.shuffle(TRANSPOSE4) if side.kind == ROWS else found


def load_clamped(fn: Function, side: Side, row: Value, quad: Value, word: Value) -> Value:
    """Cells of which some pixels or words may lie outside: what is read for those is any word of the buffer.

    May read up to 60 bytes behind the row's last byte, which guard words allow.
    """
    if side.kind == BLOCKS:
        return load(fn, side, row, quad, word)
    if side.kind == ROWS:
        pixels = [(quad * 4 + j).min(side.width - 1) for j in range(4)]
        return join([fn.load(row + (p * side.pixel_stride + word * 4), vec(I32, 4)) for p in pixels]).shuffle(
            TRANSPOSE4
        )
    words = [(word + j).min(side.words - 1) for j in range(4)]
    return join([fn.load(row + (quad * 16 + w * side.word_stride), vec(I32, 4)) for w in words])


def store(fn: Function, side: Side, cells: Value, row: Value, quad: Value, word: Value) -> None:
    """Cells that lie wholly inside the tensor."""
    at = _addresses(side, row, quad, word)
    if side.kind == BLOCKS:
        fn.store(cells, at[0])
        return
    ordered = cells.shuffle(TRANSPOSE4) if side.kind == ROWS else cells
    for piece, a in zip(quarters(ordered), at, strict=True):
        fn.store(piece, a)


def store_inside(fn: Function, side: Side, cells: Value, row: Value, quad: Value, word: Value) -> None:
    """Only the words inside the tensor."""
    at = _addresses(side, row, quad, word)
    pixels, words = side.width - quad * 4, side.words - word
    ordered = cells.shuffle(TRANSPOSE4) if side.kind == ROWS else cells
    across, along = (pixels, words) if side.kind == ROWS else (words, pixels)
    for j, piece in enumerate(quarters(ordered)):

        def line(piece: Value = piece, to: Value = at[j]) -> None:
            def singly() -> None:
                for k in range(4):
                    fn.when(along > k, partial(fn.store, piece.shuffle([k]), to + 4 * k))

            fn.when(along >= 4, lambda: fn.store(piece, to), singly)

        fn.when(across > j, line)

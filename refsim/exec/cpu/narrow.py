"""Four vectors of 32-bit lanes narrowed to one vector of bytes, and the order in which the bytes come out.

The fastest instructions for this (packssdw, packsswb) work inside pieces of 128 bits. Of piece n of the result, bytes
4v to 4v + 3 come from piece n of vector v. A kernel whose channels have to come out in order therefore keeps channel
16n + 4v + j in lane 4n + j of vector v: see `order`.
"""

from __future__ import annotations

import numpy as np

from refsim.core.errors import ParameterError
from refsim.exec.cpu.ir import I8, I16, I32, Function, Type, Value, vec

#: Vectors that become one vector of bytes.
VECTORS = 4

_PACKS = {
    ("packssdw", 128): "llvm.x86.sse2.packssdw.128",
    ("packssdw", 256): "llvm.x86.avx2.packssdw",
    ("packssdw", 512): "llvm.x86.avx512.packssdw.512",
    ("packsswb", 128): "llvm.x86.sse2.packsswb.128",
    ("packsswb", 256): "llvm.x86.avx2.packsswb",
    ("packsswb", 512): "llvm.x86.avx512.packsswb.512",
}


def order(lanes: int) -> np.ndarray:
    """For each lane of `VECTORS` vectors, the place of its byte in the result: int64 (vectors, lanes)."""
    vector, lane = np.indices((VECTORS, lanes))
    return 16 * (lane // 4) + 4 * vector + lane % 4


def narrow(fn: Function, vectors: list[Value], packs: bool, offset: Value | None = None) -> Value:
    """Four vectors of 32-bit integers as one of bytes, saturated; ``packs``: by instructions of x86.

    ``offset``: a 16-bit integer of at most 255 in magnitude, added to each before it becomes a byte.
    """
    if len(vectors) != VECTORS:
        raise ParameterError("narrow", "not the number of vectors", got=len(vectors), need=VECTORS)
    halves = [_halved(fn, "packssdw", I16, pair, packs) for pair in (vectors[:2], vectors[2:])]
    if offset is not None:
        kind = halves[0].type
        name, added = f"llvm.sadd.sat.v{kind.lanes}i16", offset.splat(kind.lanes)
        halves = [fn.call(name, kind, half, added) for half in halves]
    return _halved(fn, "packsswb", I8, halves, packs)


def in_order(made: Value) -> Value:
    """Bytes that `narrow` made, in the order of the vectors and of their lanes."""
    words = made.bits(vec(I32, made.type.lanes // 4))
    pieces = words.type.lanes // VECTORS
    return words.shuffle([4 * n + v for v in range(VECTORS) for n in range(pieces)]).bits(made.type)


def narrow_in_order(fn: Function, vectors: list[Value], packs: bool = True) -> Value:
    """`narrow` for vectors whose lanes follow each other: the bytes are put in order."""
    return in_order(narrow(fn, vectors, packs))


_TO_I32 = {
    4: "llvm.x86.sse2.cvtps2dq",
    8: "llvm.x86.avx.cvt.ps2dq.256",
    16: "llvm.x86.avx512.mask.cvtps2dq.512",
}


def nearest(fn: Function, x: Value) -> Value:
    """Floats as 32-bit integers, rounded to nearest even, by instructions of x86; too large ones become -2**31."""
    lanes, kind = x.type.lanes, vec(I32, x.type.lanes)
    if lanes < 16:
        return fn.call(_TO_I32[lanes], kind, x)
    as_set = fn.const(4, I32)  # the processor's rounding mode
    return fn.call(_TO_I32[lanes], kind, x, fn.const(0, kind), fn.const(-1, I16), as_set)


def _halved(fn: Function, name: str, element: Type, pair: list[Value], packs: bool) -> Value:
    """Two vectors as one of elements half as wide: piece n holds that of the first, then that of the second."""
    wide = pair[0].type
    if packs:
        return fn.call(_PACKS[name, wide.bits * wide.lanes], vec(element, 2 * wide.lanes), *pair)
    most = (1 << (element.bits - 1)) - 1
    low, high = (v.max(-most - 1).min(most).trunc(element) for v in pair)
    piece = 128 // wide.bits
    starts = [start + which for start in range(0, wide.lanes, piece) for which in (0, wide.lanes)]
    return low.shuffle([start + k for start in starts for k in range(piece)], high)

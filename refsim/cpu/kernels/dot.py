"""Dot products of four int8 channels into 32-bit lanes: how each kind of instruction wants its operands.

One *unit* is four input channels of one pixel against four weights of each output channel. The pixel's side is read
from packed pixel rows and repeated in every lane; the weights' side is a vector per unit, one output channel a lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from refsim.cpu.ir import I8, I16, I32, Function, Value, vec
from refsim.cpu.kernels.pack import BYTES_PER_WORD, S16, U8


@dataclass(frozen=True)
class Dot:
    """``element`` of the packed pixels, and bytes of a weight unit a lane.

    ``offset`` is what the elements have added to them: 128 for unsigned bytes, to be taken out of the sums.
    """

    name: str
    element: str
    weight_bytes: int
    offset: int

    @property
    def pixel_bytes(self) -> int:
        return BYTES_PER_WORD[self.element]


MADDWD = Dot("maddwd", S16, 8, 0)  # pairs of 16-bit products, portable
MADDWD8 = Dot("maddwd8", S16, 4, 0)  # the same, weights widened as they are read: half the bytes
DPBUSD = Dot("dpbusd", U8, 4, 128)  # four byte products at once
DOTS = {dot.name: dot for dot in (MADDWD, MADDWD8, DPBUSD)}


def madd_pairs(fn: Function, a: Value, b: Value) -> Value:
    """Sums of neighbouring products of 16-bit integers: in the form that compilers turn into one instruction."""
    lanes = a.type.lanes
    product = a.sext(I32) * b.sext(I32)
    return product.shuffle(range(0, lanes, 2)) + product.shuffle(range(1, lanes, 2))


def dpbusd(fn: Function, total: Value, a: Value, b: Value) -> Value:
    """total + the sum of four products, unsigned bytes of a by signed bytes of b (all as words)."""
    bits = 32 * total.type.lanes
    return fn.call(f"llvm.x86.avx512.vpdpbusd.{bits}", total.type, total, a, b)


#: A step takes this much of a pixel: four bytes, or two 16-bit integers.
STEP_BYTES = 4


def halves(dot: Dot) -> int:
    """Steps of one unit: four byte products are one, 16-bit products come in two pairs."""
    return 1 if dot is DPBUSD else 2


def weights_at(fn: Function, dot: Dot, at: Value, lanes: int, vectors: int) -> list[Value]:
    """The weights of one step of a unit: a vector per `lanes` channels."""
    if dot is DPBUSD:
        return [fn.load(at + v * 4 * lanes, vec(I32, lanes)) for v in range(vectors)]
    size = dot.weight_bytes // 2 * lanes
    kind = vec(I8, 2 * lanes) if dot is MADDWD8 else vec(I16, 2 * lanes)
    found = [fn.load(at + v * size, kind) for v in range(vectors)]
    return [w.sext(I16) for w in found] if dot is MADDWD8 else found


def accumulate(
    fn: Function, dot: Dot, totals: Sequence[Value], pixel: Value, weights: Sequence[Value]
) -> list[Value]:
    """Add one step of one pixel, which `pixel` points at, to the sums of its channels."""
    lanes = totals[0].type.lanes
    a = fn.load(pixel, I32).splat(lanes)
    if dot is DPBUSD:
        return [dpbusd(fn, t, a, w) for t, w in zip(totals, weights, strict=True)]
    pairs = a.bits(vec(I16, 2 * lanes))
    return [t + madd_pairs(fn, pairs, w) for t, w in zip(totals, weights, strict=True)]


def lay_out(dot: Dot, weight: np.ndarray, lanes: int, vectors: int) -> np.ndarray:
    """Weights (output channels, units, 4) as panels of ``lanes * vectors`` channels, zero-padded, as bytes.

    int8; for 16-bit products also int16.
    Panel, unit, half, vector, lane, and what a lane takes of the half.
    """
    channels, units, _ = weight.shape
    panel = lanes * vectors
    panels = -(-channels // panel)
    padded = np.zeros((panels * panel, units, 4), weight.dtype)
    padded[:channels] = weight
    steps = halves(dot)
    split = padded.reshape(panels, vectors, lanes, units, steps, 4 // steps)
    ordered = np.ascontiguousarray(split.transpose(0, 3, 4, 1, 2, 5))
    if dot is MADDWD:
        ordered = ordered.astype(np.int16)
    return ordered.view(np.uint8).reshape(-1)

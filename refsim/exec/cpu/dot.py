"""Dot products of int8 values into 32-bit lanes: how each kind of instruction wants its operands.

Along K, the dim that is summed over, values come in groups of four: a *k4* is four input channels of one pixel against
four weights of each output channel. The pixel's four values are read from NHWC scratch and repeated in every lane; the
weights are a vector per k4, with one output channel in each lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from refsim.exec.cpu.ir import I8, I16, I32, Function, Value, vec
from refsim.exec.cpu.nhwc.kernel import BYTES_PER_WORD, S16, U8


@dataclass(frozen=True)
class Dot:
    """One way to multiply: ``element`` of the packed pixels, bytes of the weights of a k4 in a lane.

    ``offset`` is what the elements have added to them: 128 for unsigned bytes, to be taken out of the sums. ``steps``:
    instructions' worth of operands that a k4 is split into. For estimates: instructions of a step (``slots``),
    registers needed beside those of sums and weights (``spare``).
    """

    name: str
    element: str
    weight_bytes: int
    offset: int
    steps: int
    slots: float
    spare: int

    @property
    def pixel_bytes(self) -> int:
        return BYTES_PER_WORD[self.element]


MADDWD = Dot("maddwd", S16, 8, 0, 2, 1.5, 2)  # pairs of 16-bit products, portable
MADDWD8 = Dot("maddwd8", S16, 4, 0, 2, 1.5, 2)  # the same, weights widened as they are read: half the bytes
DPBUSD = Dot("dpbusd", U8, 4, 128, 1, 1, 1)  # four byte products at once
MADDUBS = Dot("maddubs", U8, 4, 128, 1, 3, 2)  # pairs of them in 16 bits, saturated: for `safe` weights
DOTS = {dot.name: dot for dot in (MADDWD, MADDWD8, DPBUSD, MADDUBS)}


def madd_pairs(fn: Function, a: Value, b: Value) -> Value:
    """Sums of neighbouring products of 16-bit integers: in the form that compilers turn into one instruction."""
    lanes = a.type.lanes
    product = a.sext(I32) * b.sext(I32)
    return product.shuffle(range(0, lanes, 2)) + product.shuffle(range(1, lanes, 2))


def dpbusd(fn: Function, total: Value, a: Value, b: Value) -> Value:
    """total + the sum of four products, unsigned bytes of a by signed bytes of b (all as words)."""
    bits = 32 * total.type.lanes
    return fn.call(f"llvm.x86.avx512.vpdpbusd.{bits}", total.type, total, a, b)


_MADDUBS = {
    128: "llvm.x86.ssse3.pmadd.ub.sw.128",
    256: "llvm.x86.avx2.pmadd.ub.sw",
    512: "llvm.x86.avx512.pmaddubs.w.512",
}
_MADDWD = {128: "llvm.x86.sse2.pmadd.wd", 256: "llvm.x86.avx2.pmadd.wd", 512: "llvm.x86.avx512.pmaddw.d.512"}


def maddubs(fn: Function, total: Value, a: Value, b: Value) -> Value:
    """total + the sum of four products, unsigned bytes of a by signed bytes of b (all as words), of `safe` weights."""
    lanes = total.type.lanes
    octets, pairs = vec(I8, 4 * lanes), vec(I16, 2 * lanes)
    sums = fn.call(_MADDUBS[32 * lanes], pairs, a.bits(octets), b.bits(octets))
    return total + fn.call(_MADDWD[32 * lanes], total.type, sums, fn.const(1, pairs))


BYTE_DOTS = {DPBUSD: dpbusd, MADDUBS: maddubs}

#: The most that neighbouring weights of one sign may add up to: 255 times as much is below 2**15.
SAFE = 128


def safe(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights (..., 4) as two parts that add up to them, of neither of which a pair's sum can saturate.

    The second part holds something only where a pair of the first alone could.
    """
    pairs = weight.reshape(*weight.shape[:-1], 2, 2).astype(np.int16)
    most = np.maximum(np.maximum(pairs, 0).sum(-1), np.maximum(-pairs, 0).sum(-1))
    first = np.where((most > SAFE)[..., None], pairs.clip(-SAFE // 2, SAFE // 2), pairs)
    parts = (part.astype(np.int8).reshape(weight.shape) for part in (first, pairs - first))
    return tuple(parts)  # type: ignore[return-value]


#: A step takes this much of a pixel: four bytes, or two 16-bit integers.
STEP_BYTES = 4


def weights_at(fn: Function, dot: Dot, at: Value, lanes: int, vectors: int) -> list[Value]:
    """Load the weights of one step of a k4: a vector for each `lanes` channels."""
    if dot in BYTE_DOTS:
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
    if dot in BYTE_DOTS:
        return [BYTE_DOTS[dot](fn, t, a, w) for t, w in zip(totals, weights, strict=True)]
    pairs = a.bits(vec(I16, 2 * lanes))
    return [t + madd_pairs(fn, pairs, w) for t, w in zip(totals, weights, strict=True)]


def lay_out(dot: Dot, weight: np.ndarray, lanes: int, vectors: int) -> np.ndarray:
    """Weights (output channels, k4s, 4) as panels of ``lanes * vectors`` channels, zero-padded, as bytes.

    int8; for 16-bit products also int16.
    Panel, k4, half, vector, lane, and what a lane takes of the half.
    """
    channels, k4s, _ = weight.shape
    panel = lanes * vectors
    panels = -(-channels // panel)
    padded = np.zeros((panels * panel, k4s, 4), weight.dtype)
    padded[:channels] = weight
    split = padded.reshape(panels, vectors, lanes, k4s, dot.steps, 4 // dot.steps)
    ordered = np.ascontiguousarray(split.transpose(0, 3, 4, 1, 2, 5))
    if dot is MADDWD:
        ordered = ordered.astype(np.int16)
    return ordered.view(np.uint8).reshape(-1)

"""Operations on bytes as tables: made from what the operation gives for every byte, or pair of bytes, and proven there.

Whatever the formula, the integers that a sum of two scaled inputs rounds to are n(a, b) = x(a) + y(b) + carry(a, b),
where a carry is 0 or 1; and of two values of a, one has all the carries of the other: its fraction is larger. So a's
are ranked by how many carries they have, and b's by how many a's give them one. Rounding in binary32 may leave no such
order, ties to even leave none: then the kernel over all pairs does not give the formula's bytes, and nothing is made.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from refsim.exec.cpu.elementwise import proof
from refsim.exec.cpu.elementwise.kernel import COPY
from refsim.exec.cpu.elementwise.lut_kernel import LUT, PAIRS, THEN
from refsim.exec.cpu.elementwise.prepack import Elementwise
from refsim.exec.cpu.epilogue import RANGE
from refsim.exec.cpu.isa import Isa

#: How far a whole number reaches with one table and with a rest in another; a carry comes on top of a's.
NARROW, WIDE = (-128, 127), (-256, 254)
#: What may be added to the whole numbers of a and taken from b's.
SHIFTS = np.arange(-1024, 1024, dtype=np.int16)


def find(e: Elementwise, isa: Isa) -> Elementwise | str:
    """The operation by tables, or why not."""
    if e.op == COPY:
        return "bytes stay as they are"
    if not isa.lookup:
        return f"{isa.name} looks up no bytes"
    n = proof.integers(e)
    expected = proof.saturated(e, n)
    if n.ndim == 1:
        return replace(e, op=LUT, clamp=RANGE, luts=expected)
    made = _pairs(e, n + int(e.values["zp"]))
    exact = made is not None and np.array_equal(proof.computed(made, isa), expected)
    return made if made is not None and exact else "no tables give every pair its byte"


def then(e: Elementwise, table: np.ndarray) -> Elementwise:
    """The operation by tables, and what a table of 256 bytes gives for its result."""
    if e.op == LUT:
        return replace(e, luts=table[e.luts.view(np.uint8)])
    return replace(e, op=THEN[e.op], luts=np.concatenate([e.luts, table[None]]))


def _pairs(e: Elementwise, n: np.ndarray) -> Elementwise | None:
    """The tables that give n[a, b], saturated, if any do; the fewest that can."""
    x = n[:, 0]
    y = (n - x[:, None]).min(0)
    carry = n - x[:, None] - y
    carries, carried = (carry.sum(axis, dtype=np.int16) for axis in (1, 0))
    more = 256 - np.searchsorted(np.sort(carries), carries, side="right")  # how many have more carries
    for op, wide in PAIRS.items():
        (low, high), reach = (WIDE if letter in wide else NARROW for letter in "ab")
        fits = _fits(x, y, SHIFTS, (low, high - carry.max())) & _fits(y, x, -SHIFTS, reach)
        if fits.any():
            shift = SHIFTS[fits.argmax()]
            sums = {"a": x + shift, "b": y - shift}
            wholes = [sums["a"].clip(-128, 127 - carry.max()), sums["b"].clip(-128, 127)]
            rests = [(sums[letter] - wholes["ab".index(letter)]).clip(-128, 127) for letter in wide]
            luts = np.stack([more, carried, *wholes, *rests]).astype(np.int8)
            return replace(e, op=op, clamp=RANGE, luts=luts)
    return None


def _fits(x: np.ndarray, y: np.ndarray, shift: np.ndarray, reach: tuple[int, int]) -> np.ndarray:
    """Whether x + shift may be clipped to its reach: it stays within, or every sum with y - shift saturates."""
    low, high = reach
    return ((x.min() + shift >= low) | (y.max() - shift + 1 <= -128 - low)) & (
        (x.max() + shift <= high) | (y.min() - shift >= 127 - high)
    )

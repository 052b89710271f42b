"""Sums of two scaled bytes in two fused operations, where that gives the bytes of the formula's six roundings.

y = a * A + (b * B + C), A and B the inputs' scales in steps of the output. Of all 65,536 pairs it rounds one or two to
another integer than the formula does, or none; so constants a little off are tried until all pairs are right.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from refsim.exec.cpu.elementwise import proof
from refsim.exec.cpu.elementwise.kernel import FMA, INPUTS
from refsim.exec.cpu.elementwise.prepack import Elementwise
from refsim.exec.cpu.epilogue import RANGE
from refsim.exec.cpu.isa import Isa

#: Places in the last bit by which A and B move, in this order; then C moves against what is wrong, by so much a try.
MOVES = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))
TRIES, STEP = 4, 2.0**-18


def find(e: Elementwise, isa: Isa) -> Elementwise | str:
    """The operation in fused arithmetic, or why not."""
    if INPUTS[e.op] != 2:
        return "one input"
    if not isa.fma:
        return f"{isa.name} fuses nothing"
    expected = proof.saturated(e, proof.integers(e)).astype(np.int16)
    v = {name: np.float64(value) for name, value in e.values.items()}
    with np.errstate(over="ignore", invalid="ignore"):
        scales = np.array([v["a_scale"] * v["inv"], v["alpha"] * v["b_scale"] * v["inv"]], np.float32)
        for moves in MOVES:
            a, b = (scales.view(np.int32) + np.array(moves, np.int32)).view(np.float32)
            offset = -(v["a_zp"] * a + v["b_zp"] * b)
            for _ in range(TRIES):
                constants = {"a_scale": a, "b_scale": b, "alpha": np.float32(offset)}
                made = replace(e, op=FMA, clamp=RANGE, values={**e.values, **constants})
                wrong = proof.computed(made, isa) - expected
                if not wrong.any():
                    return made
                if wrong.min() < 0 < wrong.max():
                    break
                offset -= STEP * np.sign(wrong.max() + wrong.min())
    return "no constants give every pair its byte"

"""The styles of a case's data: what kind of values its inputs hold.

``random`` is uniform. ``position`` encodes in each value its own position, so that a value in the wrong place always
shows. ``ties`` lands on halves if the scales are powers of two. ``near_ties`` puts many sums within an ulp of a tie.
``saturation`` consists of extremes. ``cancelling`` stays close to one extreme, so that sums grow beyond 2**24 and the
zero point or the bias takes nearly all of them away again. ``far_bias`` nearly equals one value, so that the bias may
take away some 2**24 steps of the output: there binary32 holds whole steps, and no parts of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from refsim.core.rng import Rng


def positions(count: int, number: int = 0) -> np.ndarray:
    """int64 in [-125, 125]: the index in NCHW order modulo the prime 251, with another start for each input."""
    return (np.arange(count) + 17 * number) % 251 - 125


#: What values of the style ``cancelling`` lie around: a zero point of the same value leaves little of any sum.
CANCELLED = -126


def _nearly_constant(rng: Rng, count: int) -> np.ndarray:
    """The cancelled value, and one in a thousand beside it: sums differ by a weight or two."""
    return CANCELLED + (rng.ints(0, 1023, (count,)) < 1) * rng.choices([-1, 1], (count,))


def _extremes(rng: Rng, count: int) -> np.ndarray:
    """-128 and 127 at random, after a first quarter of only -128, which gives the largest sums."""
    values = rng.choices([-128, 127], (count,))
    values[: count // 4] = -128
    return values


#: Style -> steps of the quantized range (int64) for a count of elements and the input's number.
STYLES: dict[str, Callable[[Rng, int, int], np.ndarray]] = {
    "random": lambda rng, count, number: rng.ints(-128, 127, (count,)),
    "position": lambda rng, count, number: positions(count, number),
    "ties": lambda rng, count, number: rng.ints(-40, 40, (count,)),
    "near_ties": lambda rng, count, number: rng.ints(-128, 127, (count,)),
    "saturation": lambda rng, count, number: _extremes(rng, count),
    "cancelling": lambda rng, count, number: CANCELLED + rng.ints(-2, 2, (count,)),
    "far_bias": lambda rng, count, number: _nearly_constant(rng, count),
}

#: The styles that the spread cases of the corpus run through.
SPREAD = ("random", "position", "ties", "near_ties", "saturation")

#: Style -> what a float input holds, in steps; "random" is `Rng.floats`.
FLOAT_STYLES: dict[str, Callable[[Rng, int], np.ndarray]] = {
    "position": lambda rng, count: positions(count).astype(np.float64),
    "ties": lambda rng, count: rng.ints(-200, 200, (count,)) + 0.5,
    "near_ties": lambda rng, count: (
        rng.ints(-140, 140, (count,)) + 0.5 + rng.ints(-4, 4, (count,)) * 2.0**-24
    ),
    "saturation": lambda rng, count: rng.ints(-600, 600, (count,)) * 1.0,
}

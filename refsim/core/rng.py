"""Rng: random choices that are the same with every version of NumPy.

It uses only the raw stream of PCG64, which NumPy guarantees. NumPy's distributions may change between releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeVar

import numpy as np

from refsim.core import size_limit

T = TypeVar("T")


class Rng:
    """A seeded source of choices and arrays."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def raw(self, count: int) -> np.ndarray:
        """uint64, uniform over all values. LimitError for more than `refsim.core.size_limit` allows."""
        size_limit.check(f"{count} random values", 8 * count)
        return np.asarray(self._bits.random_raw(count), np.uint64)

    def ints(self, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
        """int64 in [low, high], both included; the bias of the modulus is below 2**-40 for such ranges."""
        span = np.uint64(high - low + 1)
        return (self.raw(prod(shape)) % span).astype(np.int64).reshape(shape) + low

    def integer(self, low: int, high: int) -> int:
        """One integer in [low, high], both included."""
        # as `ints` draws one, without the arrays
        return low + int(self._bits.random_raw()) % (high - low + 1)

    def choice(self, options: Sequence[T]) -> T:
        return options[self.integer(0, len(options) - 1)]

    def choices(self, options: Sequence[int], shape: tuple[int, ...]) -> np.ndarray:
        """int64, each one of the options."""
        return np.array(options, np.int64)[self.ints(0, len(options) - 1, shape)]

    def chance(self, percent: int) -> bool:
        """True with a probability of ``percent`` in a hundred."""
        return self.integer(1, 100) <= percent

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> np.ndarray:
        """float64, uniform in [low, high)."""
        unit = (self.raw(prod(shape)) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return (low + (high - low) * unit).reshape(shape)

    def int8(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.ints(-128, 127, shape).astype(np.int8)

    # --- quantization parameters as tests want them: asymmetric, distinct, with the extremes ---

    def scale(self) -> float:
        """A scale: usually moderate, sometimes a power of two (for ties) or an extreme."""
        kind = self.integer(0, 19)
        if kind == 0:
            return 2.0 ** self.integer(-60, 60)
        if kind < 6:
            return self.choice([0.5, 0.25, 1.0, 0.125, 2.0])
        return self.scale_moderate()

    def scale_moderate(self) -> float:
        """A scale of the sizes that real models have."""
        return float(np.float32(self.uniform(0.002, 0.2, (1,))[0]))

    def zero_point(self) -> int:
        return self.choice([-128, -1, 0, 1, 127, self.integer(-128, 127), self.integer(-128, 127)])

    def floats(self, scale: float, shape: tuple[int, ...]) -> np.ndarray:
        """float32 values to quantize with this scale: mostly in range, some ties, huge values, NaN and infinities."""
        count = prod(shape)
        steps = self.uniform(-160.0, 160.0, (count,))
        kind = self.ints(0, 31, (count,))
        steps = np.where(kind < 8, np.floor(steps) + 0.5, steps)
        values = (steps * np.float64(np.float32(scale))).astype(np.float32)
        special = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e-40, -0.0, 3e38], np.float32)
        picked = special[self.ints(0, len(special) - 1, (count,))]
        return np.where(kind == 31, picked, values).astype(np.float32).reshape(shape)

"""What stands for NumPy and for refsim's own leaf functions where a kernel runs as plain Python on single numbers.

NumPy's functions take a microsecond for a scalar; a search calls them a million times. These give the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from refsim.core import jit, lanes, qmath


class Word(int):
    """An int32, of which kernels also want the bits as a float."""

    def view(self, kind: Any) -> Any:
        """The number of another type with the same bits."""
        return np.int32(self).view(kind)


def _whole(value: Any) -> int:
    """A number without its fraction; what is no number, or not finite, is the least int32, as on most processors."""
    try:
        return int(value)
    except (ValueError, OverflowError):
        return -(1 << 31)


def int32(value: Any) -> Word:
    """`np.int32`, which wraps."""
    return Word((_whole(value) + (1 << 31) & 0xFFFFFFFF) - (1 << 31))


def maximum(a: Any, b: Any) -> Any:
    """`np.maximum`: NaN, if one is."""
    return a if a > b or a != a else b


def minimum(a: Any, b: Any) -> Any:
    """`np.minimum`: NaN, if one is."""
    return a if a < b or a != a else b


class Scalars:
    """The functions of NumPy that kernels call, for single numbers; the loop over work items takes a list of them."""

    float32, float64, zeros, inf, nan = np.float32, np.float64, np.zeros, np.inf, np.nan
    abs, copysign, isinf = abs, np.copysign, np.isinf
    trunc, floor, ceil, rint = np.trunc, np.floor, np.ceil, np.rint
    int32, int64 = staticmethod(int32), staticmethod(_whole)
    maximum, minimum = staticmethod(maximum), staticmethod(minimum)

    @staticmethod
    def ndindex(items: Any) -> Any:
        """The work items themselves."""
        return items


def select(condition: Any, if_true: Any, if_false: Any) -> Any:
    """`refsim.core.jit.select` of scalars."""
    return if_true if condition else if_false


#: What copies of kernels call instead of functions that are no place for an edit.
LEAVES: dict[Any, Any] = {jit.select: select, lanes.as_f32: lru_cache(1 << 15)(lanes.as_f32)} | {
    f: f for f in (jit.widen, jit.float64_bits, qmath.fused, lanes.f32_bits)
}


# --- what only wrong kernels do ---------------------------------------------------------------------------


def half(value: Any) -> Any:
    """A float rounded to binary16."""
    return np.float32(np.float16(value))


def wrapped16(value: Any) -> Any:
    """An integer in 16 bits that wrap."""
    return (value + 32768 & 65535) - 32768


def saturated16(value: Any) -> Any:
    """An integer in 16 bits that saturate."""
    return min(max(value, -32768), 32767)


def half_sum(value: Any) -> Any:
    """An integer rounded to binary16; what is infinite there saturates any output."""
    held = float(np.float16(value))
    return int(min(max(held, -(1 << 30)), 1 << 30))


def half_up(value: Any) -> Any:
    """Rounded, halves upwards."""
    return np.floor(value + np.float32(0.5))


def half_away(value: Any) -> Any:
    """Rounded, halves away from 0."""
    return np.copysign(np.floor(abs(value) + np.float32(0.5)), value)


def half_cast(value: Any) -> Any:
    """A half added and the fraction cut off, as a cast does: wrong for negative numbers."""
    return np.trunc(value + np.float32(0.5))


#: The names that edits use for these.
ADDED: dict[str, Callable[..., Any]] = {
    f"edit_{f.__name__}": f for f in (half, half_sum, wrapped16, saturated16, half_up, half_away, half_cast)
} | {"edit_fused": qmath.fused}

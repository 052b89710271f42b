"""The four int8 lanes of a 32-bit word, lowest byte first; plain arithmetic for Python, NumPy and kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from refsim.core.jit import jitable


@jitable
def lane(word: Any, k: Any) -> Any:
    """Lane k of a word, sign-extended; bits above the word are ignored."""
    return (((word >> (8 * k)) & 255) ^ 128) - 128


@jitable
def insert(word: Any, k: Any, q: Any) -> Any:
    """The word with the int8 value q in lane k. That lane must be 0 before; wrap the result when you store it."""
    return word | (np.int64(q) & 255) << (8 * k)


@jitable
def splat(q: Any) -> Any:
    """One int8 value in all four lanes."""
    return (q & 255) * 0x01010101


@jitable
def dot4(a: Any, b: Any) -> Any:
    """Sum of the lane-wise products of two words (OpSDot without saturation)."""
    return (
        lane(a, 0) * lane(b, 0) + lane(a, 1) * lane(b, 1) + lane(a, 2) * lane(b, 2) + lane(a, 3) * lane(b, 3)
    )


@jitable
def add_dot4(acc: Any, word: Any, weight: Any, at: Any) -> Any:
    """Four sums, each with the products of a word and one of four words of weights, from ``at`` on."""
    w0, w1, w2, w3 = weight[at], weight[at + 1], weight[at + 2], weight[at + 3]
    return acc[0] + dot4(word, w0), acc[1] + dot4(word, w1), acc[2] + dot4(word, w2), acc[3] + dot4(word, w3)


@jitable
def add_lanes(acc: Any, a: Any, b: Any) -> Any:
    """Four sums, each with the product of one lane of two words."""
    return (
        acc[0] + lane(a, 0) * lane(b, 0),
        acc[1] + lane(a, 1) * lane(b, 1),
        acc[2] + lane(a, 2) * lane(b, 2),
        acc[3] + lane(a, 3) * lane(b, 3),
    )


@jitable
def as_f32(word: Any) -> Any:
    """The binary32 number whose bits an int32 word holds."""
    return np.int32(word).view(np.float32)


@jitable
def f32_bits(value: Any) -> Any:
    """The bits of a binary32 number as an int32 word."""
    return np.float32(value).view(np.int32)

"""Signed 4-bit weights: as a file stores them, as kernels read them, and the scales of their groups.

A file has a byte for two neighbours along K: the element with the even number in the low nibble, each stored as its
value plus 8. Kernels read blocks of 8 rows and 4 columns, as four words: byte b of a word holds column b of the block
for two rows. Which two is what the rows of `NibbleBlocks` say; upstream has two ways. A group of neighbours along K
shares one scale.

Source: ET-VK's prepacking of 4-bit weights, seen through recordings of the operators that read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from refsim.core import qmath, size_limit
from refsim.core.errors import ParameterError, ShapeError
from refsim.core.jit import jitable
from refsim.core.qmath import SCALE_RANGE
from refsim.core.rng import Rng
from refsim.ops.base.arg import Arrays
from refsim.ops.base.styles import positions

QMIN, QMAX = -8, 7
ZERO = 8  # what a nibble holds for the value 0
ROWS, COLUMNS = 8, 4  # of a block
WORDS = 4  # of a block


# --- as a file stores them -------------------------------------------------------------------------------


def unpacked(weight: np.ndarray) -> np.ndarray:
    """int8 [N, K] in [-8, 7] of the bytes [N, K / 2] of a file."""
    nibbles = np.stack([weight & 15, weight >> 4], -1).reshape(weight.shape[0], -1)
    values: np.ndarray = nibbles.astype(np.int8) - np.int8(ZERO)
    return values


def packed(values: np.ndarray) -> np.ndarray:
    """The bytes of a file (uint8 [N, K / 2]) of values [N, K] in [-8, 7]; K is even. The inverse of `unpacked`."""
    if values.shape[-1] % 2:
        raise ShapeError("4-bit weights", "do not fill whole bytes", got=values.shape, need="an even K")
    nibbles = (values.astype(np.int16) + ZERO).astype(np.uint8)
    pairs: np.ndarray = nibbles[:, 0::2] | nibbles[:, 1::2] << 4
    return pairs


# --- as kernels read them --------------------------------------------------------------------------------


@dataclass(frozen=True)
class NibbleBlocks:
    """How blocks of 8 rows and 4 columns lie in words.

    ``low`` and ``high``: the rows of a block that word 0, 1, 2 and 3 hold in their low and in their high nibbles.
    ``columns_first``: the blocks of one strip of 8 rows are neighbours (upstream: a texture with k4 along x and n8
    along y); else those of one strip of 4 columns are (upstream: a buffer, n8 fastest).
    Rows beyond the weight's hold the value 0.
    """

    name: str
    low: tuple[int, int, int, int]
    high: tuple[int, int, int, int]
    columns_first: bool

    def words(self, values: np.ndarray) -> np.ndarray:
        """int32 words of values [N, K] in [-8, 7]; K is a multiple of 4."""
        rows, k = values.shape
        strips, columns = -(-rows // ROWS), k // COLUMNS
        nibbles = np.full((strips * ROWS, k), ZERO, np.uint8)
        nibbles[:rows] = values.astype(np.int16) + ZERO
        blocks = nibbles.reshape(strips, ROWS, columns, COLUMNS)
        pairs = (
            blocks[:, self.low, :, :] | blocks[:, self.high, :, :] << 4
        )  # strip, word, column of blocks, byte
        order = (0, 2, 1, 3) if self.columns_first else (2, 0, 1, 3)
        return np.ascontiguousarray(pairs.transpose(order)).reshape(-1).view(np.int32)

    def values(self, words: np.ndarray, rows: int, k: int) -> np.ndarray:
        """int8 [rows, k] of such words. The inverse of `words`."""
        strips, columns = -(-rows // ROWS), k // COLUMNS
        grid = (strips, columns) if self.columns_first else (columns, strips)
        found = np.ascontiguousarray(words, np.int32).view(np.uint8).reshape(*grid, WORDS, COLUMNS)
        pairs = found.transpose((0, 2, 1, 3) if self.columns_first else (1, 2, 0, 3))
        blocks = np.empty((strips, ROWS, columns, COLUMNS), np.uint8)
        blocks[:, self.low, :, :], blocks[:, self.high, :, :] = pairs & 15, pairs >> 4
        nibbles = blocks.reshape(strips * ROWS, k)[:rows]
        values: np.ndarray = nibbles.astype(np.int8) - np.int8(ZERO)
        return values


#: A word holds row i and row i + 4 of a block: the embedding and the linear with quantized activations read it.
HALVES = NibbleBlocks("halves", (0, 1, 2, 3), (4, 5, 6, 7), columns_first=True)
#: A word holds two neighbouring rows: the linear with float activations reads it.
PAIRS = NibbleBlocks("pairs", (0, 2, 4, 6), (1, 3, 5, 7), columns_first=False)


@jitable
def halves_place(row: Any, k: Any, columns: Any) -> Any:
    """(word, shift) of the nibble of an element in `HALVES`; ``columns``: blocks along K."""
    return (row // 8 * columns + k // 4) * 4 + row % 4, 8 * (k % 4) + row % 8 // 4 * 4


@jitable
def pairs_place(row: Any, k: Any, strips: Any) -> Any:
    """(word, shift) of the nibble of an element in `PAIRS`; ``strips``: blocks along N."""
    return (k // 4 * strips + row // 8) * 4 + row % 8 // 2, 8 * (k % 4) + 4 * (row % 2)


@jitable
def nibble(word: Any, shift: Any) -> Any:
    """The signed value of the nibble at a shift."""
    return ((word >> shift) & 15) - 8


# --- what an operator says of such a weight ----------------------------------------------------------------


@dataclass(frozen=True)
class GroupedWeight:
    """How an operator uses a 4-bit weight, for those who look for the cause of wrong bytes.

    ``blocks``: how its kernel's words lie. ``values(call)``: the signed values [rows, K] and the scales [rows, groups].
    ``compute(call, arrays, values, scales)``: the output for other values and scales; values may have any range.
    ``orders(call, arrays)``: the outputs of sums in other orders, each with what to call it. ``lanes(call)``: how many
    partial sums of floats an output has, 1 for a single chain.
    """

    blocks: NibbleBlocks
    values: Callable[[Any], tuple[np.ndarray, np.ndarray]]
    compute: Callable[[Any, Arrays, np.ndarray, np.ndarray], np.ndarray]
    orders: Callable[[Any, Arrays], Iterator[tuple[str, np.ndarray]]] | None = None
    lanes: Callable[[Any], int] | None = None


def order_name(lanes: int) -> str:
    """What to call the order of sums that so many lanes share."""
    return "one chain over K" if lanes == 1 else f"a tree of {lanes} lanes"


# --- groups ----------------------------------------------------------------------------------------------


def check_groups(where: str, k: int, group: int) -> int:
    """The number of groups along K; ParameterError unless the size of a group divides K."""
    if group < 1 or k % group:
        raise ParameterError(
            where, "group_size does not divide K", got=f"{group}, K = {k}", need="a divisor of K"
        )
    return k // group


def check_weight(where: str, weight: np.ndarray, rows: int, k: int) -> None:
    """ShapeError unless the bytes of a file are those of ``rows`` rows of ``k`` elements."""
    if weight.shape != (rows, k // 2) or k % 2:
        raise ShapeError(where, "weight has the wrong shape", got=weight.shape, need=f"({rows}, {k} / 2)")


def check_scales(where: str, scales: np.ndarray, need: tuple[int, int]) -> None:
    """ShapeError for another shape; ParameterError unless every scale is 0 or has a magnitude in [2**-60, 2**60]: no
    product is denormal then."""
    if scales.shape != need:
        raise ShapeError(where, "scales have the wrong shape", got=scales.shape, need=need)
    low, high = SCALE_RANGE
    with np.errstate(invalid="ignore"):  # a signalling NaN is refused below
        magnitude = np.abs(scales.astype(np.float64))
    bad = ~((magnitude == 0) | (magnitude >= low) & (magnitude <= high))
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        allowed = "0, or a magnitude in [2**-60, 2**60]"
        raise ParameterError(where, f"scales{list(at)} is out of range", got=float(scales[at]), need=allowed)


def check_bias(where: str, bias: np.ndarray | None, out: int) -> None:
    """ShapeError or ParameterError for a bias of another shape, or one that is out of range."""
    if bias is not None:
        if bias.shape != (out,):
            raise ShapeError(where, "bias has the wrong shape", got=bias.shape, need=(out,))
        qmath.check_bias(where, bias)


def dequantized(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """float32 [N, K]: every value times the scale of its group, rounded once. ``scales``: float32 [N, K / group]."""
    group = values.shape[1] // scales.shape[1]
    product: np.ndarray = values.astype(np.float32) * np.repeat(scales, group, axis=1)
    return product


# --- random data -----------------------------------------------------------------------------------------


def random_values(style: str, rng: Rng, shape: tuple[int, int], negated: bool = False) -> np.ndarray:
    """Weights [N, K] (int64) in the style of a case (`refsim.ops.base.styles`); ``negated``: of the other sign."""
    size_limit.check("weights", 8 * shape[0] * shape[1])
    values = _values(style, rng, shape)
    return -1 - values if negated else values


def _values(style: str, rng: Rng, shape: tuple[int, int]) -> np.ndarray:
    if style == "position":  # the neighbours along both dims differ, in every block and between blocks
        count = shape[0] * shape[1]
        numbers = np.arange(count)
        values: np.ndarray = ((numbers * 7 + numbers // 13 * 3) % 16 + QMIN).reshape(shape)
        return values
    if style == "saturation":
        return rng.choices([QMIN, QMIN, QMAX], shape)
    return rng.ints(QMIN, QMAX, shape)


def random_scales(style: str, rng: Rng, shape: tuple[int, int]) -> np.ndarray:
    """Scales (float32) in the style of a case: powers of two for ``ties``, so that products and sums are exact."""
    if style == "ties":
        return (2.0 ** rng.ints(-3, 1, shape)).astype(np.float32)
    return rng.uniform(0.01, 0.3, shape).astype(np.float32)


def random_floats(style: str, rng: Rng, shape: tuple[int, ...]) -> np.ndarray:
    """Activations (float32) in the style of a case: finite, and none so small that a product would be denormal."""
    count = prod(shape)
    if style == "position":
        values = positions(count) / 32.0
    elif style == "ties":
        values = rng.ints(-40, 40, (count,)) / 4.0
    elif style == "saturation":  # sums of such terms depend much on their order
        values = rng.uniform(-1.0, 1.0, (count,)) * 2.0 ** rng.ints(-12, 12, (count,))
    else:
        values = rng.uniform(-2.0, 2.0, (count,))
    found: np.ndarray = values.astype(np.float32).reshape(shape)
    return np.where(np.abs(found) < 2.0**-40, np.float32(0.0), found)

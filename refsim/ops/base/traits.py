"""What an operator says about itself, so that other code can ask for a property and need not know its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Protocol

import numpy as np


class Family(Enum):
    """What an operator does with its elements. Every operator has exactly one family."""

    ELEMENTWISE = "elementwise"  # arithmetic on the int8 values that stand at the output's own place
    SHUFFLE = "shuffle"  # the same for one value, which stands at another place
    RELAYOUT = "relayout"  # the values of a packed tensor, unchanged, in another layout
    STAGE_IN = "stage in"  # plain NCHW bytes to a packed layout
    STAGE_OUT = "stage out"  # a packed layout to plain NCHW bytes
    QUANTIZE = "quantize"  # float to int8
    DEQUANTIZE = "dequantize"  # int8 to float
    QUANTIZE_ROWS = "quantize rows"  # the same for rows of floats: the first step of linear operators
    CONVOLUTION = "convolution"  # sums over a window and the channels of a group, with weights
    DEPTHWISE = "depthwise"  # sums over a window of one channel, with weights
    WINDOWS = "windows"  # the windows of an image, copied out as channels
    LINEAR = "linear"  # sums over the last dim, with weights
    FLOAT_LINEAR = "float linear"  # the same with a float output, which is not quantized again
    GROUP_LINEAR = (
        "group linear"  # floats to floats, with weights of 4 bits whose scales belong to groups along K
    )
    ROW_RANGE = "row range"  # scale or zero point of every row of a float tensor
    WEIGHT_ONLY = "weight only"  # sums of floats over the last dim, in a fixed order, with quantized weights
    LOOKUP = "lookup"  # rows of a table, by their number


#: Families whose operators move a window over an image; their parameters are `conv.ConvParams`.
WINDOWED = (Family.CONVOLUTION, Family.DEPTHWISE, Family.WINDOWS)
#: Families that add up int8 products, with constants for each output channel.
INTEGER_SUMS = (Family.CONVOLUTION, Family.DEPTHWISE, Family.LINEAR, Family.FLOAT_LINEAR)

#: Families whose operators work on rows of K values each, K a multiple of 4; all other dims are rows.
BY_ROWS = (
    Family.LINEAR,
    Family.FLOAT_LINEAR,
    Family.GROUP_LINEAR,
    Family.WEIGHT_ONLY,
    Family.LOOKUP,
    Family.QUANTIZE_ROWS,
)

#: Families that turn floats into int8 at the same place.
QUANTIZERS = (Family.QUANTIZE, Family.QUANTIZE_ROWS)


class Epilogue(IntEnum):
    """How the input's zero point is subtracted from an integer sum. An integer, so that kernels can compare it."""

    INTEGER_ZP = 1  # in int32, before the sum becomes a float
    FLOAT_ZP = 2  # in binary32, after the sum has become a float


@dataclass(frozen=True)
class Term:
    """One quantized operand of an `Affine`: it stands for ``factor * (q - zp) * scale``."""

    scale: float
    zp: int
    factor: float = 1.0


@dataclass(frozen=True)
class Affine:
    """The real-valued arithmetic of an int8 operator: the terms are added up, bounded by relu and requantized.

    ``terms`` has one entry per input. The output byte is ``rne(y * inv) + zp``, clamped to int8, where y is the sum
    of the terms, or max(sum, 0) with ``relu``. ``inv`` is the inverse of the output's scale, rounded to binary32.
    """

    terms: tuple[Term, ...]
    inv: np.float32
    zp: int
    relu: bool = False


class Variant(Protocol):
    """A build of a shader with some sizes fixed: the name of the build, and its definitions by name."""

    @property
    def name(self) -> str: ...

    @property
    def definitions(self) -> Mapping[str, int]: ...


class XQuads(Enum):
    """How a kernel on cooperative matrices reads four neighbouring positions of a word of K."""

    WORDS = 0  # one by one
    BLOCK = 1  # as one vector
    BLOCKS = 2  # as parts of two


@dataclass(frozen=True)
class MatrixProblem:
    """A call as one matrix product (refsim/ops/base/coopmat.py): positions x channels x K, for each group.

    ``positions`` are counted in fours along the rows of the output. ``depth`` are the bytes of K, ``chunks`` 16 of them
    each, with every tap padded. ``integer_zp`` is the epilogue. ``weight`` makes a constant weight int8 (output
    channels, taps, input channels of a group).
    """

    shader: str
    push: tuple[int, ...]
    positions: int
    channels: int
    groups: int
    depth: int
    chunks: int
    integer_zp: bool
    x_quads: XQuads
    weight: Callable[[np.ndarray], np.ndarray]

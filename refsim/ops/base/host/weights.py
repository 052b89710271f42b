"""Constants as upstream's kernels read them: weights in texels of four words, vectors padded to four values.

A texel holds 4 x 4 weights: its words are output channels, the bytes of a word are input channels. In the texels of
a depthwise convolution the words are kernel columns and the bytes are channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

#: The most products of an accumulator that an unsigned sum of 255 * 255 keeps below 2**31.
MAX_UNSIGNED_K = (2**31 - 1) // (255 * 255)
UNSIGNED_OFFSET = 128


def up4(count: int) -> int:
    """Groups of four."""
    return -(-count // 4)


@dataclass(frozen=True)
class Packing:
    """One way to pack a weight.

    - ``shader``: the host's packing module, without the name of the storage it writes to.
    - ``sizes(call)``: the sizes that the host pushes to it, behind those of the packed tensor.
    - ``extent(sizes)``: how many texels there are along x and y.
    - ``texels(weight, sizes)``: the words, int32 (rows, texels of a row, 4).
    - ``source(weight, sizes)``: the constant as the packing module reads it, int8.
    - ``sizes_are``, ``texel``: what the sizes are, and what stands at texel (x, y), for people.
    """

    shader: str
    sizes: Callable[[Any], tuple[int, ...]]
    extent: Callable[[tuple[int, ...]], tuple[int, int]]
    texels: Callable[[np.ndarray, tuple[int, ...]], np.ndarray]
    source: Callable[[np.ndarray, tuple[int, ...]], np.ndarray]
    sizes_are: str
    texel: str


def _padded(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    out = np.zeros(shape, values.dtype)
    out[tuple(slice(size) for size in values.shape)] = values
    return out


def _words(lanes: np.ndarray) -> np.ndarray:
    """int8 (..., 4) as int32 (...), the first lane lowest."""
    words: np.ndarray = np.ascontiguousarray(lanes).view("<i4")[..., 0]
    return words


def window_sizes(call: Any) -> tuple[int, ...]:
    """(output channels, kernel height, kernel width, input channels of a group)."""
    return (call.out.shape[-3], *call.params.kernel_size, call.descs["x"].shape[-3] // call.params.groups)


def window_extent(sizes: tuple[int, ...]) -> tuple[int, int]:
    """Kernel columns of each word of output channels, words of input channels of each kernel row."""
    channels, height, width, depth = sizes
    return (up4(channels) * width, height * up4(depth))


def window_source(weight: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Rows of taps with the channel fastest, each padded to a multiple of 4."""
    channels, height, width, depth = sizes
    return _padded(weight[:channels], (channels, 4 * up4(height * width * depth)))


def window_texels(weight: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Texel (word of output channels * kernel width + column, row * words of input channels + word)."""
    channels, height, width, depth = sizes
    taps = weight[:channels, : height * width * depth].reshape(channels, height, width, depth)
    padded = _padded(taps, (4 * up4(channels), height, width, 4 * up4(depth)))
    split = padded.reshape(-1, 4, height, width, up4(depth), 4)  # oc4, oc, ky, kx, ic4, ic
    return _words(split).transpose(2, 4, 0, 3, 1).reshape(height * up4(depth), -1, 4)


def matrix_sizes(call: Any) -> tuple[int, ...]:
    """(K, output channels)."""
    rows, k = call.consts["weight"].shape
    return (4 * up4(k), rows)


def matrix_extent(sizes: tuple[int, ...]) -> tuple[int, int]:
    """Words of output channels, words of K."""
    k, rows = sizes
    return (up4(rows), up4(k))


def matrix_source(weight: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Rows of K."""
    k, rows = sizes
    return _padded(weight, (rows, k))


def matrix_texels(weight: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Texel (word of output channels, word of K)."""
    k, rows = sizes
    split = _padded(weight, (4 * up4(rows), k)).reshape(up4(rows), 4, up4(k), 4)
    return np.ascontiguousarray(_words(split).transpose(2, 0, 1))


def depthwise_sizes(call: Any) -> tuple[int, ...]:
    """(kernel height, columns as they are stored, channels)."""
    height, width, channels = call.consts["weight"].shape
    return (height, width, channels)


def depthwise_extent(sizes: tuple[int, ...]) -> tuple[int, int]:
    """Words of channels, fours of columns of each row."""
    height, width, channels = sizes
    return (up4(channels), height * up4(width))


def depthwise_source(weight: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """(kernel height, columns, channels), unchanged."""
    return np.ascontiguousarray(weight)


def depthwise_texels(weight: np.ndarray, sizes: tuple[int, ...]) -> np.ndarray:
    """Texel (word of channels, row * fours of columns + four)."""
    height, width, channels = sizes
    padded = _padded(weight, (height, 4 * up4(width), 4 * up4(channels)))
    split = padded.reshape(height, up4(width), 4, up4(channels), 4)
    return _words(split).transpose(0, 1, 3, 2).reshape(height * up4(width), -1, 4)


WINDOW = Packing(
    "pack_q8_conv2d_weights", window_sizes, window_extent, window_texels, window_source,
    "output channels, kernel height, kernel width, input channels of a group",
    "x = oc4 * kernel width + column, y = row * ic4 of a group + ic4",
)  # fmt: skip
MATRIX = Packing(
    "pack_q8_linear_weight", matrix_sizes, matrix_extent, matrix_texels, matrix_source,
    "K, output channels", "x = oc4, y = k4",
)  # fmt: skip
DEPTHWISE = Packing(
    "pack_q8_conv2d_dw_weights", depthwise_sizes, depthwise_extent, depthwise_texels, depthwise_source,
    "kernel height, kernel width, channels", "x = c4, y = row * (kernel width / 4, rounded up) + column / 4",
)  # fmt: skip


def add_offset(texels: np.ndarray) -> np.ndarray:
    """128 added to every byte modulo 256, to those of padding too: there 128 then stands for 0."""
    return texels ^ np.uint32(UNSIGNED_OFFSET * 0x01010101).view(np.int32)


def padded_words(values: np.ndarray | None) -> np.ndarray:
    """The bytes of a constant, padded with zeros to a multiple of 16; four zero words where a call has none. uint32."""
    if values is None:
        return np.zeros(4, np.uint32)
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return _padded(raw, (16 * -(-raw.size // 16),)).view("<u4")


#: The packings by name, for rows that are written down elsewhere.
PACKINGS = {"window": WINDOW, "matrix": MATRIX, "depthwise": DEPTHWISE}

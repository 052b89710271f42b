"""Pack and unpack of every int8 layout, against np.copyto of as many bytes.

python -m bench.layouts
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from bench.harness import Bench, main
from refsim.buffer import PackedBuffer
from refsim.draw import Draw
from refsim.layout import INT8_LAYOUTS, Layout

#: Sizes as in the middle of a network; and the same with nothing a multiple of 4.
SHAPES = {"1x64x112x112": (1, 64, 112, 112), "1x67x111x113": (1, 67, 111, 113)}


@dataclass(frozen=True)
class Data:
    """An array, its packed form, and two plain buffers of as many bytes."""

    layout: Layout
    array: np.ndarray
    buffer: PackedBuffer
    source: np.ndarray
    target: np.ndarray


def setup(layout: Layout, shape: tuple[int, ...]) -> Data:
    array = Draw(0).int8(shape)
    buffer = PackedBuffer.pack(array, layout)
    return Data(layout, array, buffer, buffer.raw.copy(), np.zeros_like(buffer.raw))


def pack(data: Data) -> PackedBuffer:
    return PackedBuffer.pack(data.array, data.layout)


def unpack(data: Data) -> np.ndarray:
    return data.buffer.unpack()


def copy(data: Data) -> None:
    np.copyto(data.target, data.source)


BENCHES = [
    Bench(
        f"{verb.__name__} {layout} {name}",
        setup=lambda layout=layout, shape=shape: setup(layout, shape),
        run=verb,
        peers={"np.copyto": copy},
        work=lambda data: {"bytes": data.buffer.desc.nbytes},
    )
    for name, shape in SHAPES.items()
    for layout in INT8_LAYOUTS
    for verb in (pack, unpack)
]

if __name__ == "__main__":
    sys.exit(main("layouts", BENCHES))

"""Arguments of `pack` and `unpack` for a tensor."""

from __future__ import annotations

import numpy as np

from refsim.exec.cpu.job import Arguments
from refsim.exec.cpu.nhwc.kernel import PACK, UNPACK
from refsim.exec.cpu.strides import PackedStrides


def pack_block(
    args: Arguments, x: PackedStrides, zp: int, input_dilation: tuple[int, int], buffer: str = "x"
) -> np.ndarray:
    """Arguments of `pack` for an input."""
    return args.block(
        PACK,
        {"source": buffer},
        height=x.rows,
        width=x.pixels,
        image_stride=x.image_stride,
        row_stride=x.row_stride,
        pixel4_stride=x.pixel4_stride,
        pixel_stride=x.pixel_stride,
        word_stride=x.word_stride,
        border=(zp & 255) * 0x01010101,
        input_dilation_h=input_dilation[0],
        input_dilation_w=input_dilation[1],
    )


def unpack_block(args: Arguments, out: PackedStrides, buffer: str = "out") -> np.ndarray:
    """Arguments of `unpack` for an output."""
    return args.block(
        UNPACK,
        {"out": buffer},
        image_stride=out.image_stride,
        row_stride=out.row_stride,
        pixel4_stride=out.pixel4_stride,
        pixel_stride=out.pixel_stride,
        word_stride=out.word_stride,
    )

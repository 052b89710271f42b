"""PackedStrides: a packed int8 tensor as pixels of channel words, whatever its layout.

The channel dim is the layout's packed dim, so that four channels are a word; the pixels' fast dim is its outer packed
dim. For a linear operator over 4H4W the "channels" are therefore W (the inputs) and the pixels H (the rows).
"""

from __future__ import annotations

from dataclasses import dataclass

from refsim.core.layout import C, H, N, W
from refsim.core.tensor import TensorDesc

#: How four neighbouring pixels of a channel word, and four channel words of a pixel, lie in memory.
NHWC = "nhwc"  # channel words of a pixel are neighbours (4C, 4W)
TILED = "tiled"  # blocks of four pixels, their words neighbours; channel words 16 bytes apart (4W4C, 4H4W)
PLANAR = "planar"  # pixels of a channel word are neighbours (4C1W)


@dataclass(frozen=True)
class PackedStrides:
    """Sizes (``words``: of four channels) and strides in bytes; ``pixel4`` is the stride of four pixels."""

    kind: str
    images: int
    rows: int
    pixels: int
    channels: int
    image_stride: int
    row_stride: int
    pixel4_stride: int
    pixel_stride: int
    word_stride: int

    @property
    def words(self) -> int:
        return -(-self.channels // 4)


def strides_of(desc: TensorDesc) -> PackedStrides:
    """The view of a packed int8 tensor."""
    layout, sizes, strides = desc.layout, desc.sizes_whcn, desc.strides_whcn
    block = layout.block_numel
    blocked = layout.outer_block > 1
    row = ({W, H, C} - {layout.inner, layout.outer}).pop()
    pixel = 4 if blocked else strides[layout.outer] * block
    kind = TILED if blocked else PLANAR if layout.block_transposed else NHWC
    return PackedStrides(
        kind=kind,
        images=sizes[N],
        rows=sizes[row],
        pixels=sizes[layout.outer],
        channels=sizes[layout.inner],
        image_stride=strides[N] * block,
        row_stride=strides[row] * block,
        pixel4_stride=strides[layout.outer] * block if blocked else 4 * pixel,
        pixel_stride=pixel,
        word_stride=strides[layout.inner] * block,
    )

"""PackedStrides: a packed int8 tensor as an image of pixels with channels, whatever its layout.

The names follow the usual case, a layout that packs C: four channels are a word, and the pixels of a row lie along W.
In general "channels" are the layout's packed dim, "pixels" its outer packed dim and "rows" the dim that is left. A
linear operator over 4H4W therefore has its inputs (W) as channels and its rows (H) as pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from refsim.core.layout import C, H, N, W
from refsim.core.tensor import TensorDesc

#: Three kinds of layout, by what lies next to a word in memory. In tiled ones channel words are 16 bytes apart.
NHWC = "nhwc"  # the next channel word of the same pixel (4C, 4W)
TILED = "tiled"  # the same word of the next pixel, in blocks of four pixels (4W4C, 4H4W)
PLANAR = "planar"  # the same word of the next pixel, for a whole row (4C1W)

#: All strides, and those that tell where a pixel lies in which channels are neighbours.
STRIDES, TO_PIXEL = ("image", "row", "pixel4", "pixel", "word"), ("image", "row", "pixel")


@dataclass(frozen=True)
class PackedStrides:
    """Sizes, and strides in bytes. ``words``: of four channels; ``pixel4_stride``: from four pixels to the next
    four."""

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

    def fields(self, name: str, strides: Sequence[str] = STRIDES) -> dict[str, int]:
        """Strides as a kernel reads them: in ``name`` the braces stand for which it is."""
        return {name.format(which): getattr(self, f"{which}_stride") for which in strides}


def strides_of(desc: TensorDesc) -> PackedStrides:
    """The strides of a packed int8 tensor; of a dense float one, where each channel is a word of its own."""
    layout, sizes, strides = desc.layout, desc.sizes_whcn, desc.strides_whcn
    block = layout.block_numel * (1 if desc.is_int8 else 4)
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

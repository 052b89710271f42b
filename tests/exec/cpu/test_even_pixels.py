"""Which tensors have their pixels at equal distances: what may be read in place as the rows of a matrix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refsim.core.tensor import TensorDesc
from refsim.exec.cpu.amx.prepack import _even
from refsim.exec.cpu.strides import PackedStrides, strides_of

IMAGES, ROWS, PIXELS = 2, 3, 5
EVEN = strides_of(TensorDesc((IMAGES, 8, ROWS, PIXELS), "4C"))


@pytest.mark.parametrize(
    "x, even",
    [
        (EVEN, True),
        (replace(EVEN, row_stride=ROWS * EVEN.pixel_stride), False),
        (replace(EVEN, row_stride=EVEN.row_stride + EVEN.pixel_stride), False),
        (replace(EVEN, image_stride=PIXELS * PIXELS * EVEN.pixel_stride), False),
        (replace(EVEN, image_stride=ROWS * ROWS * EVEN.pixel_stride), False),
        (replace(EVEN, image_stride=EVEN.image_stride + EVEN.row_stride), False),
        # a stride that is never taken may be any
        (replace(EVEN, images=1, image_stride=0), True),
        (replace(EVEN, images=1, rows=1, image_stride=0, row_stride=0), True),
        (replace(EVEN, rows=1, row_stride=0, image_stride=PIXELS * EVEN.pixel_stride), True),
        (replace(EVEN, rows=1, row_stride=0), False),
        (strides_of(TensorDesc((IMAGES, 8, ROWS, PIXELS), "4W4C")), False),
        (strides_of(TensorDesc((1, 8, 1, 1), "4W4C")), False),
    ],
)
def test_pixels_at_equal_distances(x: PackedStrides, even: bool) -> None:
    assert _even(x) is even

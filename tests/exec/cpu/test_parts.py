"""Pieces that several kernels share: groups of channels, copies, and what may be read in place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import planned
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refsim.core.tensor import TensorDesc
from refsim.exec.cpu.amx.prepack import _even
from refsim.exec.cpu.depthwise.kernel import depthwise, is_long
from refsim.exec.cpu.depthwise.prepack import groups
from refsim.exec.cpu.dot import DOTS
from refsim.exec.cpu.elementwise import kernel, prepack
from refsim.exec.cpu.ir import ModuleText
from refsim.exec.cpu.isa import ISAS, Isa
from refsim.exec.cpu.narrow import VECTORS, order
from refsim.exec.cpu.strides import PackedStrides, strides_of

IMAGES, ROWS, PIXELS = 2, 3, 5
EVEN = strides_of(TensorDesc((IMAGES, 8, ROWS, PIXELS), "4C"))


@pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
@given(st.integers(1, 300).map(lambda words: 4 * words))
def test_groups_cover_all_channels_and_end_at_the_last(isa: Isa, channels: int) -> None:
    found = [(g, g.channels(channels, isa.lanes // g.lanes)) for g in groups(channels, isa)]
    covered = np.concatenate([lanes.reshape(-1) for _, lanes in found])
    assert set(covered.tolist()) == set(range(channels))
    assert all(g.lanes in (4, 8, 16) and g.lanes <= isa.lanes for g, _ in found)
    # each group's channels are neighbours: but for tensors smaller than the narrowest group
    for g, lanes in found:
        for group in lanes:
            first = int(group.min())
            size = min(VECTORS * g.lanes, channels)
            assert np.array_equal(np.unique(group), np.arange(first, first + size))
            # the bytes of a vector are the group's channels once for each range of columns
            whole = np.empty(VECTORS * isa.lanes, np.int64)
            whole[order(isa.lanes)] = group
            expected = np.minimum(first + np.arange(VECTORS * g.lanes), channels - 1)
            assert np.array_equal(whole, np.tile(expected, isa.lanes // g.lanes))


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
    """What may be read in place as the rows of a matrix."""
    assert _even(x) is even


@pytest.mark.parametrize("dot", DOTS)
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_wider_windows_make_no_longer_kernels(dot: str, stride: int) -> None:
    """Long ones have loops."""
    lengths = []
    for extent in (128, 129, 256, 1024):
        assert is_long(DOTS[dot], 8, extent, stride)
        module = ModuleText()
        depthwise(
            module, "k", dot=dot, lanes=4, ranges=1, words=4, taps_h=8, extent_w=extent, stride_w=stride, clamp="full",
            float_zp=False, packs=False,
        )  # fmt: skip
        lengths.append(str(module).count("\n"))
    assert max(lengths) - min(lengths) <= 0.1 * min(lengths), lengths


@pytest.mark.parametrize("words", [1, 4, prepack.WORDS_PER_TASK, prepack.WORDS_PER_TASK + 1])
def test_every_word_is_copied_once(words: int) -> None:
    """All of an input's words and none beyond, a task for each share."""
    row = next(row for row in ISAS if row.name == "avx2")
    with planned.processor("avx2") as names:
        job = prepack.copied(4 * words, "input 0", "value", row)
    (block,) = names.blocks
    given = dict(zip(kernel.LINEAR.names, block.tolist(), strict=True))
    assert (given["words"], given["words_per_task"]) == (words, prepack.WORDS_PER_TASK)
    assert job.tasks == (1 if words <= prepack.WORDS_PER_TASK else 2) and not job.scratch

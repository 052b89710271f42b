"""Index math, exhaustively on small shapes, against a computation that shares nothing with it."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from refsim.core import buffer, index
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS, Layout
from refsim.core.tensor import TensorDesc

LAYOUTS = (*INT8_LAYOUTS, *FLOAT_LAYOUTS)
#: NCHW; every residue of every blocked dim, one to three blocks each
ALL_SHAPES = [(n, c, h, w) for n, c, h, w in product((1, 2, 3), range(1, 10), range(1, 10), range(1, 10))]
each_layout = pytest.mark.parametrize("row", LAYOUTS, ids=str)


def by_reshape(shape: tuple[int, ...], row: Layout) -> np.ndarray:
    """Places by NumPy alone: number the padded array in memory order, read it back in NCHW order."""
    extents = [row.block_extent(d) for d in (3, 2, 1, 0)]  # NCHW
    blocks = [-(-size // extent) for size, extent in zip(shape, extents, strict=True)]
    grid = [3 - d for d in row.dim_order]  # axes of NCHW, slowest to fastest
    within = [3 - row.outer, 3 - row.inner]
    split = [blocks[a] for a in grid] + [extents[a] for a in within]
    memory = np.arange(np.prod(split)).reshape(split)
    # axes now: four of the grid, two within the block; bring each dim's block axis beside its inner axis
    order: list[int] = []
    sizes: list[int] = []
    for axis in range(4):
        order.append(grid.index(axis))
        if axis in within:
            order.append(4 + within.index(axis))
        sizes.append(blocks[axis] * extents[axis])
    return memory.transpose(order).reshape(sizes)[tuple(slice(size) for size in shape)]


@each_layout
def test_every_small_shape(row: Layout) -> None:
    """Offsets are unique, in bounds, and those of the reshaped array; coord takes each one back."""
    for shape in ALL_SHAPES:
        desc = TensorDesc(shape, row)
        places = buffer.offsets(desc)
        assert np.array_equal(places, by_reshape(shape, row)), shape
        assert np.bincount(places.reshape(-1), minlength=desc.buffer_numel).max() == 1, shape
        assert places.min() == 0, shape
        assert places.max() < desc.buffer_numel, shape


@each_layout
def test_coord_is_the_inverse(row: Layout) -> None:
    """On every place of the buffer, padding included; and it says which places are padding."""
    for shape in ALL_SHAPES[::3]:
        desc = TensorDesc(shape, row)
        everywhere = np.arange(desc.buffer_numel)
        coords = index.coord(desc.meta, 0, desc.hashed, everywhere)
        back = index.buf_idx(desc.meta, 0, desc.hashed, *coords)
        assert np.array_equal(back, everywhere), shape
        last = desc.buffer_numel - 1
        assert index.coord(desc.meta, 0, desc.hashed, last) == tuple(int(along[last]) for along in coords)
        inside = index.inside(desc.meta, 0, *coords)
        assert inside.sum() == desc.numel, shape
        assert inside[buffer.offsets(desc)].all(), shape


@each_layout
def test_the_hashed_layout_says_it_all(row: Layout) -> None:
    hashed = row.hashed
    assert (index.inner_dim(hashed), index.outer_dim(hashed)) == (row.inner, row.outer)
    assert (index.inner_block(hashed), index.outer_block(hashed)) == (row.inner_block, row.outer_block)
    assert index.block_numel(hashed) == row.block_numel
    assert [index.block_extent(hashed, d) for d in range(4)] == [row.block_extent(d) for d in range(4)]
    assert 0 < hashed < 1 << 32


@pytest.mark.parametrize("row", INT8_LAYOUTS, ids=str)
def test_lanes_of_a_word(row: Layout) -> None:
    """A word's lanes are neighbours along the packed dim, and as many as fit are elements."""
    assert index.words_per_block(row.hashed) * 4 == row.block_numel
    for shape in ALL_SHAPES[::71]:
        desc = TensorDesc(shape, row)
        kinds = buffer.byte_kinds(desc).reshape(-1, 4)
        for word in range(desc.words):
            first = [int(v) for v in index.coord(desc.meta, 0, desc.hashed, 4 * word)]
            count = index.lanes_inside(desc.meta, 0, desc.hashed, *first)
            assert list(kinds[word] == buffer.ByteKind.VALUE) == [k < count for k in range(4)]
            for k in range(4):
                where = (*index.lane_coord(desc.hashed, k, *first[:3]), first[3])
                assert where == tuple(index.coord(desc.meta, 0, desc.hashed, 4 * word + k))


@each_layout
def test_ranks_1_to_4_are_four_dims_with_ones(row: Layout) -> None:
    for shape in ((7,), (5, 7), (3, 5, 7), (2, 3, 5, 7)):
        small, full = TensorDesc(shape, row), TensorDesc((1,) * (4 - len(shape)) + shape, row)
        assert small.meta == full.meta
        assert small.buffer_numel == full.buffer_numel


@each_layout
@pytest.mark.parametrize("outer", [(2, 3), (2, 1, 3), (2, 2, 1, 2), (1, 3, 2, 2, 1)])
def test_ranks_5_to_8_stack_whole_buffers(row: Layout, outer: tuple[int, ...]) -> None:
    """Dims beyond the fourth are never blocked and lie slowest: one buffer of the inner dims after another."""
    inner = (3, 5, 6)
    desc = TensorDesc((*outer, *inner), row)
    each = TensorDesc((1, *inner), row)
    count = int(np.prod(outer))
    assert desc.buffer_numel == count * each.buffer_numel
    places = buffer.offsets(desc).reshape(count, -1)
    one = buffer.offsets(each).reshape(-1)
    for i in range(count):
        assert np.array_equal(places[i], one + i * each.buffer_numel)

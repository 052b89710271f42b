"""4-bit weights: the bytes of a file, the two ways of laying them out for kernels, and the scales of groups."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refsim.core.errors import ParameterError, ShapeError
from refsim.core.rng import Rng
from refsim.ops.base import int4

BLOCKS = {blocks.name: blocks for blocks in (int4.HALVES, int4.PAIRS)}


def weights(rows: int, k: int, seed: int = 0) -> np.ndarray:
    return int4.random_values("random", Rng(seed), (rows, k)).astype(np.int8)


def test_the_even_element_is_the_low_nibble_of_a_byte():
    values = np.array([[-8, 7, 0, 1]], np.int8)
    assert int4.packed(values).tolist() == [[0xF0, 0x98]]
    assert int4.unpacked(np.array([[0xF0, 0x98]], np.uint8)).tolist() == values.tolist()


@given(rows=st.integers(1, 19), pairs=st.integers(1, 12), seed=st.integers(0, 99))
def test_a_file_gives_back_the_values(rows, pairs, seed):
    values = weights(rows, 2 * pairs, seed)
    assert (int4.unpacked(int4.packed(values)) == values).all()


@pytest.mark.parametrize("name", BLOCKS)
@given(rows=st.integers(1, 19), blocks=st.integers(1, 5), seed=st.integers(0, 99))
def test_words_give_back_the_values(name, rows, blocks, seed):
    values = weights(rows, 4 * blocks, seed)
    words = BLOCKS[name].words(values)
    assert len(words) == -(-rows // 8) * blocks * 4
    assert (BLOCKS[name].values(words, rows, 4 * blocks) == values).all()


@pytest.mark.parametrize("name", BLOCKS)
def test_rows_beyond_the_weight_are_zero(name):
    words = BLOCKS[name].words(weights(3, 8))
    assert not BLOCKS[name].values(words, 8, 8)[3:].any()


@pytest.mark.parametrize("rows, k", [(8, 4), (11, 12), (24, 8)])
def test_places_of_elements(rows, k):
    values, strips = weights(rows, k), -(-rows // 8)
    n, j = np.arange(rows)[:, None], np.arange(k)[None, :]
    for blocks, (word, shift) in (
        (int4.HALVES, int4.halves_place(n, j, k // 4)),
        (int4.PAIRS, int4.pairs_place(n, j, strips)),
    ):
        assert (int4.nibble(blocks.words(values)[word], shift) == values).all(), blocks.name


def test_the_rows_that_share_a_word():
    # upstream: component 1 of a texel has rows 1 and 5; component 1 of the linear's word has rows 2 and 3
    values = np.arange(8, dtype=np.int8)[:, None] - 8 + np.zeros(4, np.int8)
    assert (int4.HALVES.words(values).view(np.uint32)[1] & 255, int4.PAIRS.words(values)[1] & 255) == (
        0x51,
        0x32,
    )


def test_which_blocks_are_neighbours():
    values = np.zeros((16, 8), np.int8)
    values[0, 4] = 1  # the second block along K
    assert np.flatnonzero(int4.HALVES.words(values) != 0x88888888 - 2**32).tolist() == [4]
    assert np.flatnonzero(int4.PAIRS.words(values) != 0x88888888 - 2**32).tolist() == [8]


def test_groups():
    assert int4.check_groups("op", 64, 16) == 4
    with pytest.raises(ParameterError, match="group_size does not divide K; got 24, K = 64"):
        int4.check_groups("op", 64, 24)
    with pytest.raises(ParameterError, match="got 0"):
        int4.check_groups("op", 64, 0)
    with pytest.raises(ShapeError, match="weight has the wrong shape"):
        int4.check_weight("op", np.zeros((4, 7), np.uint8), 4, 16)
    values, scales = weights(2, 8), np.array([[0.5, 2.0], [1.0, 0.25]], np.float32)
    by_group = np.float32([[0.5] * 4 + [2.0] * 4, [1.0] * 4 + [0.25] * 4])
    assert (int4.dequantized(values, scales) == values * by_group).all()

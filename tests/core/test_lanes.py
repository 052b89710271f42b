"""Lanes of words: the same for Python ints and NumPy arrays."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.core import lanes
from refsim.core.rng import Rng

BYTES = Rng(1).int8((200, 4))
WORDS = BYTES.copy().view(np.int32).reshape(-1)
OTHER = Rng(2).int8((200, 4))


@pytest.mark.parametrize("k", range(4))
def test_lane(k: int) -> None:
    """Sign-extended, whatever is above the word."""
    assert np.array_equal(lanes.lane(WORDS, k), BYTES[:, k])
    for word, need in zip(WORDS.tolist(), BYTES[:, k].tolist(), strict=True):
        assert lanes.lane(word, k) == need  # a signed word
        assert lanes.lane(word & 0xFFFFFFFF, k) == need
        assert lanes.lane(word + (5 << 32), k) == need


def test_every_byte_value() -> None:
    for value in range(-128, 128):
        for k in range(4):
            assert lanes.lane(lanes.insert(0, k, value), k) == value
        assert [lanes.lane(lanes.splat(value), k) for k in range(4)] == [value] * 4


def test_insert_builds_the_word() -> None:
    for q, word in zip(BYTES, WORDS.tolist(), strict=True):
        for kind in (int, np.int8, np.int32, np.int64):
            built = 0
            for k in range(4):
                built = lanes.insert(built, k, kind(q[k]))
            assert built & 0xFFFFFFFF == word & 0xFFFFFFFF, kind


def test_dot4() -> None:
    need = (BYTES.astype(int) * OTHER).sum(1)
    others = OTHER.copy().view(np.int32).reshape(-1)
    assert np.array_equal(lanes.dot4(WORDS.astype(np.int64), others.astype(np.int64)), need)
    assert lanes.dot4(lanes.splat(-128), lanes.splat(-128)) == 4 * 128 * 128


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -3e38, 1e-40, float("inf")])
def test_float_bits(value: float) -> None:
    bits = lanes.f32_bits(np.float32(value))
    assert int(bits) & 0xFFFFFFFF == int(np.float32(value).view(np.uint32))
    assert lanes.as_f32(bits).tobytes() == np.float32(value).tobytes()

"""PackedBuffer: pack and unpack, kinds of bytes, poison, guards, raw bytes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refsim.core import index
from refsim.core.buffer import (
    ALIGN,
    FAR_WORDS,
    GUARD,
    GUARD_WORDS,
    ByteKind,
    PackedBuffer,
    byte_kinds,
    guarded,
    surrounded,
)
from refsim.core.errors import GuardError, LayoutError, RawBufferError, ShapeError
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS, Layout, layout
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc

LAYOUTS = (*INT8_LAYOUTS, *FLOAT_LAYOUTS)
shapes = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple) | st.lists(
    st.integers(1, 3), min_size=5, max_size=8
).map(tuple)


def data(shape: tuple[int, ...], row: Layout, seed: int = 0) -> np.ndarray:
    rng = Rng(seed)
    return rng.int8(shape) if row.packed_int8 else rng.floats(0.1, shape)


@given(shape=shapes, row=st.sampled_from(LAYOUTS), seed=st.integers(0, 1000))
@settings(derandomize=True, database=None, max_examples=300)
def test_unpack_takes_pack_back(shape: tuple[int, ...], row: Layout, seed: int) -> None:
    array = data(shape, row, seed)
    for lane, word in ((0, 0), (-7, 0), (0, 9), (-128, 127)):
        packed = PackedBuffer.pack(array, row, lane=lane, word=word)
        assert packed.unpack().tobytes() == array.tobytes()
        assert packed.unpack().shape == array.shape
        if row.packed_int8:
            kinds = packed.kinds()
            assert (packed.data[kinds == ByteKind.LANE] == lane).all()
            assert (packed.data[kinds == ByteKind.WORD] == word).all()
        again = PackedBuffer.from_raw(packed.raw.tobytes(), shape, row)
        assert again == packed


def test_bytes_by_hand() -> None:
    """1 x 5 x 1 x 3 in 4C1W: a word of channels 0 to 3 for each column, then the words of channel 4."""
    array = np.arange(1, 16, dtype=np.int8).reshape(1, 5, 1, 3)
    packed = PackedBuffer.pack(array, "4C1W", lane=-1)
    assert packed.data.reshape(-1, 4).tolist() == [
        [1, 4, 7, 10], [2, 5, 8, 11], [3, 6, 9, 12],
        [13, -1, -1, -1], [14, -1, -1, -1], [15, -1, -1, -1],
    ]  # fmt: skip
    # 4W4C: four columns of a block, the fourth beyond the width
    packed = PackedBuffer.pack(array, "4W4C", lane=-1, word=99)
    assert packed.data.reshape(-1, 4, 4).tolist() == [
        [[1, 4, 7, 10], [2, 5, 8, 11], [3, 6, 9, 12], [99] * 4],
        [[13, -1, -1, -1], [14, -1, -1, -1], [15, -1, -1, -1], [99] * 4],
    ]


@pytest.mark.parametrize("row", FLOAT_LAYOUTS, ids=str)
def test_float_buffers_have_no_padding(row: Layout) -> None:
    array = data((2, 3, 5), row)
    packed = PackedBuffer.pack(array, row)
    assert packed.kinds().tolist() == [ByteKind.VALUE] * array.nbytes
    assert packed.poison(np.random.default_rng(0)) == packed


def test_poison_changes_padding_only() -> None:
    packed = PackedBuffer.pack(data((2, 5, 3, 7), INT8_LAYOUTS[0]), "4W4C")
    poisoned = packed.poison(np.random.default_rng(1))
    assert np.array_equal(poisoned.unpack(), packed.unpack())
    padding = packed.kinds() != ByteKind.VALUE
    assert np.array_equal(poisoned.raw[~padding], packed.raw[~padding])
    assert (poisoned.raw[padding] != packed.raw[padding]).mean() > 0.9
    assert not packed.raw[padding].any(), "the original changed"


@pytest.mark.parametrize(
    ("place", "word"), [(-1, -1), (-GUARD_WORDS, -GUARD_WORDS), ("end", 60), ("last", 75)]
)
def test_guards_notice_a_write_beside_the_buffer(place: int | str, word: int) -> None:
    packed = PackedBuffer.pack(data((2, 5, 3, 7), INT8_LAYOUTS[2]), "4W")
    assert packed.desc.words == 60
    packed.check_guards("before")
    packed.memory[GUARD_WORDS + word] ^= 1
    with pytest.raises(
        RawBufferError, match=rf"kernel: wrote \w+ the buffer of 2x5x3x7 4W; got a write to word {word}$"
    ):
        packed.check_guards("kernel")
    with pytest.raises(RawBufferError, match="kernel"), guarded("kernel", packed):
        pass


@pytest.mark.parametrize("word", [-GUARD_WORDS - FAR_WORDS, -GUARD_WORDS - 1, 60 + GUARD_WORDS, 1099])
def test_guards_reach_far_and_name_the_nearest_word(word: int) -> None:
    packed = PackedBuffer.pack(data((2, 5, 3, 7), INT8_LAYOUTS[2]), "4W")
    around = packed._around[FAR_WORDS + GUARD_WORDS :] if word > 0 else packed._around
    around[word if word > 0 else word + FAR_WORDS + GUARD_WORDS] ^= 1
    with pytest.raises(RawBufferError, match=rf"got a write to word {word}$"):
        packed.check_guards("kernel")
    near = -1 if word < 0 else 60
    packed.memory[GUARD_WORDS + near] ^= 1
    with pytest.raises(RawBufferError, match=rf"got a write to word {near}$"):
        packed.check_guards("kernel")


def test_what_is_surrounded_is_a_copy_among_guard_words() -> None:
    for words in (
        np.arange(7, dtype=np.int32),
        np.arange(12, dtype=np.int8).reshape(3, 4),
        np.zeros(1, np.int64),
    ):
        copy = surrounded(words)
        assert copy.dtype == words.dtype and np.array_equal(copy, words) and not np.shares_memory(copy, words)
        assert copy.ctypes.data % ALIGN == 0
        block = copy.base
        while isinstance(block.base, np.ndarray):
            block = block.base
        first = (copy.ctypes.data - block.ctypes.data) // 4
        assert first >= GUARD_WORDS and (block[:first] == GUARD).all()
        assert (block[first + -(-copy.nbytes // 4) :] == GUARD).all()
        assert len(block) - first - -(-copy.nbytes // 4) >= GUARD_WORDS


def test_guarded_lets_other_errors_through() -> None:
    packed = PackedBuffer.pack(np.zeros(4, np.int8), "4W")
    with pytest.raises(ZeroDivisionError), guarded("kernel", packed):
        _ = 1 / 0


def test_raw_bytes_may_be_rounded_up_to_16() -> None:
    packed = PackedBuffer.pack(np.arange(5, dtype=np.int8), "4W")
    assert packed.desc.nbytes == 8
    rounded = packed.raw.tobytes() + b"\x5a" * 8
    for raw in (rounded, bytearray(rounded), memoryview(rounded), np.frombuffer(rounded, np.uint8)):
        assert PackedBuffer.from_raw(raw, (5,), "4W") == packed
    assert PackedBuffer.from_raw(packed.words, (5,), "4W") == packed


@pytest.mark.parametrize("size", [0, 1, 7, 9, 15, 17, 32])
def test_raw_bytes_of_a_wrong_size(size: int) -> None:
    unit = "byte" if size == 1 else "bytes"
    with pytest.raises(RawBufferError, match=f"5 4W: wrong size; got {size} {unit}, need 8, or 16"):
        PackedBuffer.from_raw(bytes(size), (5,), "4W")


@pytest.mark.parametrize(
    ("dtype", "row"), [(np.uint8, "4W"), (np.float32, "4W"), (np.int8, "W"), (np.float64, "C")]
)
def test_wrong_dtype(dtype: type, row: str) -> None:
    with pytest.raises(RawBufferError, match=r"wrong dtype; got .*, need "):
        PackedBuffer.pack(np.zeros((2, 3), dtype), row)


def test_a_scalar_has_no_shape() -> None:
    with pytest.raises(ShapeError, match="unsupported rank"):
        PackedBuffer.pack(np.int8(3).reshape(()), "4W")


def test_equality_is_bytes_and_description() -> None:
    one = PackedBuffer.pack(np.zeros((1, 4, 1, 4), np.int8), "4W")
    assert one == PackedBuffer.pack(np.zeros((1, 4, 1, 4), np.int8), "4W")
    assert one != PackedBuffer.pack(np.zeros((1, 4, 1, 4), np.int8), "4C")
    assert one != PackedBuffer.pack(np.ones((1, 4, 1, 4), np.int8), "4W")
    assert one != "4W"
    with pytest.raises(TypeError):
        hash(one)


@pytest.mark.parametrize("view", ["transposed", "reversed", "strided"])
def test_pack_takes_any_strides(view: str) -> None:
    base = data((6, 5, 4, 8), INT8_LAYOUTS[0])
    array = {
        "transposed": base.transpose(3, 1, 0, 2),
        "reversed": base[::-1, :, ::-1],
        "strided": base[::2, :, 1::2],
    }[view]
    assert np.array_equal(PackedBuffer.pack(array, "4H4W").unpack(), array)


def test_a_buffer_of_another_process_has_its_guards() -> None:
    buffer = PackedBuffer.pack(np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4), "4W4C")
    other = pickle.loads(pickle.dumps(buffer))
    assert other == buffer and other.words.ctypes.data % 64 == 0
    other.memory[-1] = 0
    with pytest.raises(GuardError):
        other.check_guards("test")
    with pytest.raises(GuardError):
        pickle.loads(pickle.dumps(other)).check_guards("test")


def test_a_layout_that_leaves_the_buffer_says_which_element_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong index math, such as an inner block of 15: the first element outside, its cell, and the strides."""
    monkeypatch.setattr(index, "inner_block", lambda hashed: 15)
    desc = TensorDesc((1, 8, 2, 3), layout("4C"))
    with pytest.raises(
        LayoutError, match=r"write out of bounds; got cell \d+ for element \[0, \d, \d, \d\]"
    ) as told:
        byte_kinds(desc)
    assert f"strides {desc.strides_whcn}" in str(told.value) and "need cells below 48" in str(told.value)

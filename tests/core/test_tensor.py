"""TensorDesc: sizes, strides and bytes by hand, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.core import size_limit
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import LayoutError, LimitError, ParameterError, ShapeError
from refsim.core.rng import Rng
from refsim.core.tensor import MAX_BYTES, TensorDesc

#: layout -> blocks WHCN, strides WHCN in blocks, bytes, of shape N=2 C=5 H=3 W=7
BY_HAND = {
    "W": ((7, 3, 5, 2), (1, 7, 21, 105), 840),
    "H": ((7, 3, 5, 2), (3, 1, 21, 105), 840),
    "C": ((7, 3, 5, 2), (5, 35, 1, 105), 840),
    "4W4C": ((2, 3, 2, 2), (2, 4, 1, 12), 24 * 16),
    "4H4W": ((2, 1, 5, 2), (1, 2, 2, 10), 20 * 16),
    "4W": ((2, 3, 5, 2), (1, 2, 6, 30), 60 * 4),
    "4C": ((7, 3, 2, 2), (2, 14, 1, 42), 84 * 4),
    "4C1W": ((7, 3, 2, 2), (1, 14, 7, 42), 84 * 4),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_by_hand(name: str) -> None:
    desc = TensorDesc((2, 5, 3, 7), name)  # type: ignore[arg-type]
    blocks, strides, nbytes = BY_HAND[name]
    assert desc.sizes_whcn == (7, 3, 5, 2)
    assert desc.blocks_whcn == blocks
    assert desc.strides_whcn == strides
    assert desc.meta == (7, 3, 5, 2, *strides)
    assert desc.nbytes == nbytes == 4 * desc.words
    assert desc.numel == 210
    assert desc.is_int8 == (name[0] == "4")
    assert str(desc) == f"2x5x3x7 {desc.layout.short_name}"


def test_outer_dims_fold_into_n() -> None:
    desc = TensorDesc((2, 3, 2, 5, 3, 7), "4W")  # type: ignore[arg-type]
    assert desc.sizes_whcn == (7, 3, 5, 12)
    assert desc.shape == (2, 3, 2, 5, 3, 7)


def test_equal_descriptions_are_equal() -> None:
    one, other = TensorDesc([4, 4], "4W"), TensorDesc((4, 4), "PACKED_INT8_4W")  # type: ignore[arg-type]
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize("shape", [(), (1,) * 9, (0,), (3, -1), (2, 0, 4), (2.5, 3), ("4",), (None,)])
def test_impossible_shapes(shape: tuple) -> None:
    with pytest.raises(ShapeError, match=r"tensor in 4W: .*; got .*, need "):
        TensorDesc(shape, "4W")  # type: ignore[arg-type]


def test_size_limit() -> None:
    side = 1 << 15
    assert TensorDesc((side, 2 * side), "4W").nbytes == MAX_BYTES  # type: ignore[arg-type]
    for shape in ((side, 2 * side + 1), (1 << 40,), (1 << 31, 1 << 31, 1 << 31)):
        with pytest.raises(LimitError, match="buffer too large"):
            TensorDesc(shape, "4W")  # type: ignore[arg-type]
    with pytest.raises(LimitError):
        TensorDesc((side, side), "W")  # type: ignore[arg-type]


def test_layouts_without_addresses() -> None:
    with pytest.raises(LayoutError, match="before the layout is resolved"):
        TensorDesc((1, 4, 2, 2), "CONV2D")  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="unknown"):
        TensorDesc((1, 4, 2, 2), "5W")  # type: ignore[arg-type]


# --- one limit for everything whose size a file declares ---


@pytest.mark.parametrize(
    ("text", "most"), [("", 1 << 30), ("4096", 4096), ("64M", 64 << 20), ("2g", 2 << 30), (" 8K ", 8192)]
)
def test_the_variable(monkeypatch: pytest.MonkeyPatch, text: str, most: int) -> None:
    monkeypatch.setenv(size_limit.VARIABLE, text)
    assert size_limit.most_bytes() == most
    size_limit.check("x", most)
    with pytest.raises(LimitError, match=f"x: .*got {most + 1} bytes, need <= {most}; {size_limit.VARIABLE}"):
        size_limit.check("x", most + 1)


@pytest.mark.parametrize("text", ["0", "-1", "1.5G", "many", "1T", "9" * 40])
def test_other_values(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(size_limit.VARIABLE, text)
    with pytest.raises(ParameterError, match="not a number of bytes"):
        size_limit.most_bytes()


def test_nothing_larger_is_allocated_or_drawn() -> None:
    """2 GB of buffer and 8 GB of random bits are refused at once; only their description is fine."""
    desc = TensorDesc((1, 1 << 31), "4W")  # type: ignore[arg-type]
    with pytest.raises(LimitError):
        PackedBuffer(desc)
    with pytest.raises(LimitError):
        Rng(0).ints(0, 1, (1 << 15, 1 << 15))
    assert np.all(Rng(0).ints(0, 0, (2, 3)) == 0)

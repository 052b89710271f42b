"""Sets of representations: what is synced, packed dims, the choice, sizes.

tests/interop/test_repset.py compares every answer with upstream's.
"""

from __future__ import annotations

from itertools import combinations

import pytest

from refsim.core.errors import LayoutError
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS, LAYOUTS, PACKED_CONV2D, Layout, layout
from refsim.partition.repset import sets
from refsim.partition.repset.sets import (
    ANY_STORAGE,
    ANY_STORAGE_INCL_PACKED_INT8,
    CHANNELS_PACKED_TEXTURE_OR_CONTIGUOUS_BUFFER,
    DEFAULT_REPR,
    NO_STORAGE,
    PACKED_INT8_BUFFER,
    Storage,
    TensorRepr,
    TensorRepSet,
    repset,
    texture_extents,
)

from .fake import FakeTensor

CONSTANTS = {name: value for name, value in vars(sets).items() if isinstance(value, TensorRepSet)}
SETS = list(CONSTANTS.values())


def rows(*names: str) -> set:
    return {layout(name) for name in names}


# --- what is synced ---


@pytest.mark.parametrize("a", SETS)
def test_set_laws(a: TensorRepSet) -> None:
    for b in SETS:
        both = a & b
        assert both == b & a and type(both) is TensorRepSet
        # what is left after constraining fits, and constraining again changes nothing
        kept = a.like(b)
        assert kept & a == kept and kept.like(b) == kept
        assert not b or kept.packed <= b.packed
        assert not both or kept & both


@pytest.mark.parametrize("storage", [Storage.BUFFER, Storage.TEXTURE_3D])
@pytest.mark.parametrize("row", LAYOUTS.values(), ids=str)
def test_a_set_of_one(storage: Storage, row: Layout) -> None:
    single = TensorRepr(storage, row)
    assert TensorRepSet({single}).choice() == single


def test_the_default_is_in_no_set() -> None:
    with pytest.raises(LayoutError, match="cannot be a set of its own"):
        _ = DEFAULT_REPR.packed


# --- packed dims ---


@pytest.mark.parametrize(
    ("row", "buffer", "texture"),
    [
        ("W", (0, 1), (0, 4)),
        ("H", (1, 1), (1, 4)),
        ("C", (2, 1), (2, 4)),
        ("4W4C", (2, 4), None),
        ("4C1W", (2, 4), None),
        ("4C", (2, 4), None),
        ("CONV2D", (2, 4), None),
        ("4H4W", (0, 4), None),
        ("4W", (0, 4), None),
    ],
)
def test_packed_dim_info(row: str, buffer: tuple[int, int], texture: tuple[int, int] | None) -> None:
    assert TensorRepr(Storage.BUFFER, layout(row)).packed == (Storage.BUFFER, *buffer)
    in_texture = TensorRepr(Storage.TEXTURE_3D, layout(row))
    if texture is None:
        with pytest.raises(LayoutError, match="buffer-only"):
            _ = in_texture.packed
    else:
        assert in_texture.packed == (Storage.TEXTURE_3D, *texture)


# --- the choice ---


def test_the_choice_does_not_depend_on_the_order_of_insertion() -> None:
    everything = (*FLOAT_LAYOUTS, *INT8_LAYOUTS, PACKED_CONV2D)
    for size in range(1, len(everything) + 1):
        for subset in combinations(everything, size):
            forward, backward = repset(subset), repset(reversed(subset))
            chosen = forward.choice()
            assert chosen.memory_layout in subset and chosen == backward.choice()


def test_an_empty_set_leaves_it_to_the_runtime() -> None:
    assert NO_STORAGE.choice() == TensorRepr(Storage.DEFAULT, None)
    assert str(NO_STORAGE.choice()) == "DEFAULT"


# --- sizes ---


@pytest.mark.parametrize(
    ("shape", "row", "extents"),
    [
        ((), "W", (1, 1, 1)),
        ((5,), "W", (2, 1, 1)),
        ((5,), "C", (5, 1, 1)),
        ((7, 5), "H", (5, 2, 1)),
        ((6, 7, 5), "C", (5, 7, 2)),
        ((3, 6, 7, 5), "C", (5, 7, 6)),
        ((3, 6, 7, 5), "W", (2, 7, 18)),
    ],
)
def test_texture_extents(shape: tuple[int, ...], row: str, extents: tuple[int, int, int]) -> None:
    assert texture_extents(shape, layout(row)) == extents


@pytest.mark.parametrize(
    ("shape", "left"),
    [
        ((1, 8, 4, 4), "W H C"),
        ((1, 1, 1, 16385), "W"),  # packed, the width is 4097 texels
        ((1, 1, 4 * 16384, 4), "H"),
        ((1, 4 * 2048, 1, 1), "C"),
        ((1, 4 * 2048 + 1, 1, 1), ""),
        ((2, 1, 1, 1, 1), ""),
    ],
)
def test_textures_must_fit(shape: tuple[int, ...], left: str) -> None:
    assert ANY_STORAGE.fitting(FakeTensor(shape)) == repset(FLOAT_LAYOUTS, rows(*left.split()))


def test_names_and_text() -> None:
    assert set(ANY_STORAGE_INCL_PACKED_INT8.layouts(Storage.TEXTURE_3D)) == set(FLOAT_LAYOUTS)
    assert layout("4C") not in PACKED_INT8_BUFFER.layouts(Storage.BUFFER)
    assert all(not any(row.packed_int8 for row in item.layouts(Storage.TEXTURE_3D)) for item in SETS)
    assert str(CHANNELS_PACKED_TEXTURE_OR_CONTIGUOUS_BUFFER) == "{WIDTH_PACKED CHANNELS_PACKED:TEXTURE_3D}"

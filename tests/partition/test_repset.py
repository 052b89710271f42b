"""Sets of representations: the algebra, packed dims, the choice, sizes.

tests/interop/test_repset.py compares every answer with upstream's.
"""

from __future__ import annotations

from itertools import combinations

import pytest

from refsim.core.errors import LayoutError
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS, LAYOUTS, PACKED_CONV2D, layout
from refsim.partition.repset import constants
from refsim.partition.repset.constants import (
    ANY_BUFFER,
    ANY_STORAGE,
    ANY_STORAGE_INCL_PACKED_INT8,
    ANY_TEXTURE,
    CHANNELS_PACKED_TEXTURE_OR_CONTIGUOUS_BUFFER,
    NO_STORAGE,
    PACKED_INT8_BUFFER,
)
from refsim.partition.repset.sets import (
    PackedDimInfo,
    Storage,
    TensorRepr,
    TensorReprList,
    TensorRepSet,
    TensorRepSetList,
    filter_invalid_reprs,
    make_tensor_repset,
    texture_extents,
)

from .fake import FakeTensor

CONSTANTS = {name: value for name, value in vars(constants).items() if isinstance(value, TensorRepSet)}
SETS = list(CONSTANTS.values())


def rows(*names: str) -> set:
    return {layout(name) for name in names}


def a_set(buffer: str = "", texture: str = "") -> TensorRepSet:
    return TensorRepSet(rows(*buffer.split()), rows(*texture.split()))


# --- the algebra ---


@pytest.mark.parametrize("a", SETS, ids=CONSTANTS)
def test_set_laws(a: TensorRepSet) -> None:
    for b in SETS:
        both, either = a.make_intersect(b), a.make_union(b)
        assert both == b.make_intersect(a) and either == b.make_union(a)
        assert both.make_union(a) == a and either.make_intersect(a) == a
        assert a.any_in_common(b) is not both.is_empty()
        assert (a == b) is (both == either)
        assert either.has_compatible_packed_dim_info_set(a)
        # what is left after constraining fits, and constraining again changes nothing
        kept = a.constrain_to_compatible_packed_dim(b)
        assert kept.make_intersect(a) == kept
        assert kept.constrain_to_compatible_packed_dim(b) == kept
        assert b.is_empty() or b.has_compatible_packed_dim_info_set(kept)
        assert both.is_empty() or kept.any_in_common(both)


def test_results_share_no_state_with_their_operands() -> None:
    for make in (
        lambda s: s.copy(),
        lambda s: s.make_intersect(s),
        lambda s: s.make_union(s),
        lambda s: s.constrain_to_compatible_packed_dim(NO_STORAGE),
    ):
        source = a_set("W", "C")
        result = make(source)
        result.valid_buffer_layouts.add(layout("H"))
        result.valid_texture_layouts.clear()
        assert source == a_set("W", "C")


@pytest.mark.parametrize("storage", [Storage.BUFFER, Storage.TEXTURE_3D])
@pytest.mark.parametrize("row", LAYOUTS.values(), ids=str)
def test_a_set_of_one(storage: Storage, row: object) -> None:
    single = TensorRepr(storage, row)
    made = make_tensor_repset(single)
    assert made.is_constrained() and made.make_tensor_repr() == single


def test_the_default_is_no_set() -> None:
    with pytest.raises(LayoutError, match="cannot be a set of its own"):
        make_tensor_repset(NO_STORAGE.make_tensor_repr())


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
    assert PackedDimInfo.from_repr(layout(row)) == PackedDimInfo(*buffer)
    if texture is None:
        with pytest.raises(LayoutError, match="buffer-only"):
            PackedDimInfo.from_repr(layout(row), Storage.TEXTURE_3D)
    else:
        assert PackedDimInfo.from_repr(layout(row), Storage.TEXTURE_3D) == PackedDimInfo(*texture)


# --- the choice ---


def test_the_choice_does_not_depend_on_the_order_of_insertion() -> None:
    everything = (*FLOAT_LAYOUTS, *INT8_LAYOUTS, PACKED_CONV2D)
    for size in range(1, len(everything) + 1):
        for subset in combinations(everything, size):
            forward, backward = TensorRepSet(subset), TensorRepSet(reversed(subset))
            chosen = forward.first_valid_buffer_layout()
            assert chosen in subset and chosen is backward.first_valid_buffer_layout()


def test_an_empty_set_leaves_it_to_the_runtime() -> None:
    assert NO_STORAGE.make_tensor_repr() == TensorRepr(Storage.DEFAULT, None)
    assert str(NO_STORAGE.make_tensor_repr()) == "DEFAULT"
    with pytest.raises(LayoutError, match="none to choose"):
        NO_STORAGE.first_valid_buffer_layout()


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
    fitting = filter_invalid_reprs(FakeTensor(shape), ANY_STORAGE)
    assert fitting == TensorRepSet(ANY_BUFFER.valid_buffer_layouts, rows(*left.split()))


# --- lists ---


def test_one_item_of_a_list_stands_for_all() -> None:
    one = TensorRepSetList(ANY_TEXTURE)
    assert len(one) == 1 and one[0] == one[7] == ANY_TEXTURE
    one[3] = ANY_BUFFER
    assert one[0] == ANY_BUFFER
    two = TensorRepSetList([ANY_TEXTURE, ANY_BUFFER])
    two[1] = NO_STORAGE
    assert two[0] == ANY_TEXTURE and two[1] == NO_STORAGE and two[2] == NO_STORAGE
    two.append(ANY_STORAGE)
    assert len(two) == 3 and two[2] == ANY_STORAGE


def test_any_is_empty() -> None:
    assert TensorRepSetList([]).any_is_empty()
    assert TensorRepSetList([ANY_TEXTURE, NO_STORAGE]).any_is_empty()
    assert not TensorRepSetList([ANY_TEXTURE, ANY_BUFFER]).any_is_empty()


def test_repr_lists() -> None:
    width, channels = (TensorRepr(Storage.BUFFER, layout(name)) for name in "WC")
    one = TensorReprList(width)
    assert one[4] == width and one.storage_type() is Storage.BUFFER and one.memory_layout() is layout("W")
    assert one == TensorReprList([width]) and one != TensorReprList(channels)
    assert one != TensorReprList([width, width])
    many = TensorReprList([])
    many.append(width)
    many.append(channels)
    assert many.memory_layout(1) is layout("C") and str(many) == "[WIDTH_PACKED, CHANNELS_PACKED]"


def test_names_and_text() -> None:
    assert ANY_STORAGE_INCL_PACKED_INT8.valid_texture_layouts == set(FLOAT_LAYOUTS)
    assert layout("4C") not in PACKED_INT8_BUFFER.valid_buffer_layouts
    assert all(not any(row.packed_int8 for row in item.valid_texture_layouts) for item in SETS)
    assert str(CHANNELS_PACKED_TEXTURE_OR_CONTIGUOUS_BUFFER) == "{WIDTH_PACKED CHANNELS_PACKED:TEXTURE_3D}"

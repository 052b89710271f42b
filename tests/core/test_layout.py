"""Layout rows against the table of facts, and what is derived from them."""

from __future__ import annotations

import pytest

from refsim.core.errors import LayoutError
from refsim.core.layout import (
    BY_SCHEMA_VALUE,
    CHANNELS_PACKED_INT8,
    FLOAT_LAYOUTS,
    INT8_LAYOUTS,
    LAYOUTS,
    C,
    H,
    Layout,
    N,
    W,
    layout,
)

#: schema value, hashed layout as ET-VK's runtime hands it to kernels (4 dims), dim order slowest to fastest
FACTS = {
    "TENSOR_WIDTH_PACKED": (0, 0x11103210, (N, C, H, W)),
    "TENSOR_HEIGHT_PACKED": (1, 0x11013201, (N, C, W, H)),
    "TENSOR_CHANNELS_PACKED": (2, 0x11023102, (N, H, W, C)),
    "PACKED_INT8_4W4C": (3, 0x44023102, (N, H, W, C)),
    "PACKED_INT8_4H4W": (4, 0x44103210, (N, C, H, W)),
    "PACKED_INT8_4W": (5, 0x14103210, (N, C, H, W)),
    "PACKED_INT8_4C": (6, 0x14023102, (N, H, W, C)),
    "PACKED_INT8_4C1W": (8, 0x14023120, (N, H, C, W)),
}


def test_the_rows_are_these() -> None:
    assert set(LAYOUTS) == set(FACTS) | {"PACKED_INT8_CONV2D"}
    assert [row.name for row in FLOAT_LAYOUTS] == list(FACTS)[:3]
    assert [row.name for row in INT8_LAYOUTS] == list(FACTS)[3:]
    assert [row.short_name for row in CHANNELS_PACKED_INT8] == ["4W4C", "4C", "4C1W"]


@pytest.mark.parametrize("name", FACTS)
def test_facts(name: str) -> None:
    row = LAYOUTS[name]
    value, hashed, order = FACTS[name]
    assert (row.schema_value, row.hashed, row.dim_order) == (value, hashed, order)
    assert sorted(row.dim_order) == [W, H, C, N]
    assert row.block_numel == row.inner_block * row.outer_block
    assert [row.block_extent(d) for d in (row.inner, row.outer)] == [row.inner_block, row.outer_block]
    assert all(row.block_extent(d) == 1 for d in range(4) if d not in (row.inner, row.outer))
    assert row.packed_int8 == (row.inner_block == 4)


def test_packed_dim_info_classes() -> None:
    """4W4C, 4C1W, 4C and CONV2D are compatible; so are 4W and 4H4W; nothing else among the packed ones."""
    classes: dict[object, set[str]] = {}
    for row in (*INT8_LAYOUTS, layout("CONV2D")):
        classes.setdefault(row.packed_dim_info, set()).add(row.short_name)
    assert sorted(map(sorted, classes.values())) == [["4C", "4C1W", "4W4C", "CONV2D"], ["4H4W", "4W"]]


def test_the_dynamic_layout_has_no_addresses() -> None:
    conv2d = LAYOUTS["PACKED_INT8_CONV2D"]
    assert conv2d.schema_value == 9
    assert conv2d.is_dynamic
    assert not any(row.is_dynamic for row in (*INT8_LAYOUTS, *FLOAT_LAYOUTS))
    with pytest.raises(LayoutError, match=r"PACKED_INT8_CONV2D.*need 4C1W, 4W4C or 4C"):
        _ = conv2d.hashed


@pytest.mark.parametrize("row", LAYOUTS.values(), ids=str)
def test_every_name_of_a_layout_finds_it(row: Layout) -> None:
    for name in (row, row.name, row.short_name, row.schema_value, str(row)):
        assert layout(name) is row


def test_one_letter_names_are_the_float_layouts() -> None:
    assert [layout(letter) for letter in "WHC"] == list(FLOAT_LAYOUTS)


@pytest.mark.parametrize("name", ["", "4w", "4W4H", "PACKED_INT8_", "N", 7, 255, -1, None])
def test_unknown_names_are_refused(name: object) -> None:
    with pytest.raises(LayoutError, match=r"unknown; got .*, need .*4W4C \(3\)"):
        layout(name)  # type: ignore[arg-type]


def test_schema_values_are_unique() -> None:
    assert sorted(BY_SCHEMA_VALUE) == [0, 1, 2, 3, 4, 5, 6, 8, 9]

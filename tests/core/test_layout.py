"""Layout rows against the table of facts, and what is derived from them."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.core.errors import LayoutError
from refsim.core.layout import (
    CHANNELS_PACKED_INT8,
    FLOAT_LAYOUTS,
    FOREIGN,
    INT8_LAYOUTS,
    LAYOUTS,
    C,
    H,
    Layout,
    N,
    W,
    layout,
)
from refsim.core.locate import at_byte

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


@pytest.mark.parametrize("name", ["", "4w", "4W4H", "PACKED_INT8_", "N", 7, 255, -1, None])
def test_unknown_names_are_refused(name: object) -> None:
    with pytest.raises(LayoutError, match=r"unknown; got .*, need .*4W4C \(3\)"):
        layout(name)  # type: ignore[arg-type]


# --- layouts of other libraries --------------------------------------------------------------------------

OWN = ("n c/4 h w c%4 align:c=16", "n h w c pad:w=3 pad:c=8 align:h=32", "c n w h", "n c h/3 w/5 h%3 w%5")


@pytest.mark.parametrize("row", (*INT8_LAYOUTS, *FOREIGN, *map(layout, OWN)), ids=str)
def test_every_layout_has_a_text(row: Layout) -> None:
    assert layout(row.text) == row and str(layout(row.text)) == str(row)


def test_names_that_libraries_share_are_one_layout() -> None:
    assert [layout(name).name for name in ("NCHW", "PHWC4", "NHWC4")] == [
        "NCHW",
        "NC4HW4",
        "PACKED_INT8_4C",
    ]


@pytest.mark.parametrize("shape", [(2, 6, 3, 5), (1, 3, 5, 5), (1, 8, 1, 4)], ids=str)
def test_bytes_of_other_libraries(shape: tuple[int, int, int, int]) -> None:
    """Each as NumPy alone makes it."""
    n, c, h, w = shape
    array = np.arange(n * c * h * w, dtype=np.uint8).view(np.int8).reshape(shape)

    def fours(by: int) -> np.ndarray:
        whole = np.pad(array, ((0, 0), (0, -c % by), (0, 0), (0, 0)))
        return whole.reshape(n, -1, by, h, w).transpose(0, 1, 3, 4, 2)

    planes = fours(4).reshape(n, -1, h * w * 4)
    apart = np.pad(planes, ((0, 0), (0, 0), (0, -(h * w * 4) % 16)))
    wide = np.pad(array.transpose(0, 2, 3, 1), ((0, 0), (0, 0), (0, -w % 3), (0, -c % 8))).reshape(n, h, -1)
    rows = np.pad(wide, ((0, 0), (0, 0), (0, -wide.shape[2] % 32)))
    for name, need in {
        "NHWC": array.transpose(0, 2, 3, 1), "NCHW": array, "NC4HW4": fours(4), "NC8HW8": fours(8),
        "NHWC4": fours(4).transpose(0, 2, 3, 1, 4), OWN[0]: apart, OWN[1]: rows, OWN[2]: array.transpose(1, 0, 3, 2),
    }.items():  # fmt: skip
        packed = PackedBuffer.pack(array, layout(name))
        assert packed.raw.tobytes() == np.ascontiguousarray(need).tobytes(), name
        assert np.array_equal(packed.unpack(), array), name


@pytest.mark.parametrize("row", (*INT8_LAYOUTS, *FOREIGN, *map(layout, OWN)), ids=str)
def test_kinds_of_bytes_are_those_of_places(row: Layout) -> None:
    packed = PackedBuffer.pack(np.ones((2, 5, 3, 7), np.int8), row, lane=5, word=6)
    kinds = packed.kinds()
    assert [at_byte(packed.desc, byte).kind for byte in range(packed.desc.nbytes)] == kinds.tolist()
    assert (
        np.array_equal(np.choose(kinds, [1, 5, 6]), packed.raw)
        and (kinds == ByteKind.VALUE).sum() == 2 * 5 * 3 * 7
    )


@pytest.mark.parametrize(
    "text", ["n c h", "n c h w w", "n c/4 h w", "n c/4 h w c%8", "n/2 c h w n%2", "n c/4 h w/4 c%4 w%4",
             "n c/16 h w c%16", "n c/0 h w c%0", "n c h w pad:c=0", "n c h x", "c%4 n c/4 h w w%4",
             "n c h w align:q=2", "c c"]
)  # fmt: skip
def test_orders_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(LayoutError, match=r"no order of dims; got .*, need n, c, h and w"):
        layout(text)

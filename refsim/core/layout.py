"""Memory layouts as data: one row each, everything else derived. The only file that spells layout names.

Facts: ExecuTorch's Vulkan backend, `Utils.MemoryLayout` of its schema and the packed-dim metadata that its
kernels receive. Dimensions are numbered in WHCN order: 0 = W, 1 = H, 2 = C, 3 = N.
"""

from __future__ import annotations

from dataclasses import dataclass

from refsim.core import choices
from refsim.core.errors import LayoutError

W, H, C, N = range(4)
DIM_NAMES = "WHCN"


@dataclass(frozen=True)
class PackedDimInfo:
    """What the partitioner compares: two layouts are compatible when these are equal."""

    packed_dim: int
    packed_dim_block_size: int


@dataclass(frozen=True)
class Layout:
    """One memory layout.

    ``inner`` is the packed dim, ``outer`` the outer packed dim; a *block* is ``inner_block`` x
    ``outer_block`` elements, stored contiguously, inner fastest. ``outer_block`` 0 marks a layout that is
    resolved to another before execution and has no addresses of its own.
    """

    name: str
    schema_value: int
    inner: int
    inner_block: int
    outer: int
    outer_block: int
    block_transposed: bool = False
    packed_int8: bool = False

    @property
    def is_dynamic(self) -> bool:
        return self.outer_block == 0

    @property
    def short_name(self) -> str:
        return self.name.removeprefix("PACKED_INT8_").removeprefix("TENSOR_").removesuffix("_INT8")

    @property
    def block_numel(self) -> int:
        return self.inner_block * self.outer_block

    @property
    def packed_dim_info(self) -> PackedDimInfo:
        return PackedDimInfo(self.inner, self.inner_block)

    @property
    def dim_order(self) -> tuple[int, int, int, int]:
        """WHCN dim numbers, slowest to fastest, of the block grid."""
        rest = [d for d in (N, C, H, W) if d not in (self.inner, self.outer)]
        last = [self.inner, self.outer] if self.block_transposed else [self.outer, self.inner]
        a, b, c, d = rest + last
        return (a, b, c, d)

    @property
    def hashed(self) -> int:
        """The 32-bit integer that kernels receive; bits as in `index.py`."""
        if self.is_dynamic:
            raise LayoutError(
                self.name,
                "has no hashed form before it is resolved",
                need="4C1W, 4W4C or 4C, see resolve_conv2d",
            )
        order = sum(dim << (4 * place) for place, dim in enumerate(reversed(self.dim_order)))
        return order | self.inner << 16 | self.outer << 20 | self.inner_block << 24 | self.outer_block << 28

    def block_extent(self, dim: int) -> int:
        """Elements of a block along a WHCN dim."""
        if dim == self.inner:
            return self.inner_block
        return self.outer_block if dim == self.outer else 1

    def __str__(self) -> str:
        return self.short_name


_ROWS = (
    #      name                      value inner  outer      transposed packed
    Layout("TENSOR_WIDTH_PACKED", 0, W, 1, H, 1),
    Layout("TENSOR_HEIGHT_PACKED", 1, H, 1, W, 1),
    Layout("TENSOR_CHANNELS_PACKED", 2, C, 1, W, 1),
    Layout("PACKED_INT8_4W4C", 3, C, 4, W, 4, False, True),
    Layout("PACKED_INT8_4H4W", 4, W, 4, H, 4, False, True),
    Layout("PACKED_INT8_4W", 5, W, 4, H, 1, False, True),
    Layout("PACKED_INT8_4C", 6, C, 4, W, 1, False, True),
    Layout("PACKED_INT8_4C1W", 8, C, 4, W, 1, True, True),
    Layout("PACKED_INT8_CONV2D", 9, C, 4, W, 0, False, True),
)

LAYOUTS: dict[str, Layout] = {row.name: row for row in _ROWS}
BY_SCHEMA_VALUE: dict[int, Layout] = {row.schema_value: row for row in _ROWS}
DEFAULT_LAYOUT_VALUE = 255

FLOAT_LAYOUTS = tuple(row for row in _ROWS if not row.packed_int8)
INT8_LAYOUTS = tuple(row for row in _ROWS if row.packed_int8 and not row.is_dynamic)
CHANNELS_PACKED_INT8 = tuple(row for row in INT8_LAYOUTS if row.inner == C)

WIDTH_PACKED = LAYOUTS["TENSOR_WIDTH_PACKED"]
HEIGHT_PACKED = LAYOUTS["TENSOR_HEIGHT_PACKED"]
CHANNELS_PACKED = LAYOUTS["TENSOR_CHANNELS_PACKED"]
PACKED_4W4C = LAYOUTS["PACKED_INT8_4W4C"]
PACKED_4H4W = LAYOUTS["PACKED_INT8_4H4W"]
PACKED_4W = LAYOUTS["PACKED_INT8_4W"]
PACKED_4C = LAYOUTS["PACKED_INT8_4C"]
PACKED_4C1W = LAYOUTS["PACKED_INT8_4C1W"]
PACKED_CONV2D = LAYOUTS["PACKED_INT8_CONV2D"]

#: int8 in the order of NCHW, as runtimes with flat storage hold it. No file names it, and no kernel here takes it.
FLAT = Layout("FLAT_INT8", -1, W, 1, H, 1, False, True)
_ALIASES = {row.short_name: row for row in _ROWS} | {"W": _ROWS[0], "H": _ROWS[1], "C": _ROWS[2]}
_ALIASES |= {FLAT.name: FLAT, "FLAT": FLAT}


def layout(name: str | int | Layout) -> Layout:
    """The layout of a full name, a short name (``4W4C``, ``W``) or a schema value; LayoutError if none is."""
    if isinstance(name, Layout):
        return name
    found = BY_SCHEMA_VALUE.get(name) if isinstance(name, int) else None
    if isinstance(name, str):
        found = LAYOUTS.get(name, _ALIASES.get(name))
    if found is None:
        allowed = choices.listed(f"{row.short_name} ({row.schema_value})" for row in _ROWS)
        near = choices.meant(name, (*_ALIASES, *LAYOUTS)) if isinstance(name, str) else ""
        raise LayoutError("memory layout", "unknown", got=repr(name)[:80], need=allowed + near)
    return found

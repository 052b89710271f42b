"""Memory layouts as data: one row each, everything else derived. The only file that spells layout names.

Facts: ExecuTorch's Vulkan backend, `Utils.MemoryLayout` of its schema and the packed-dim metadata that its
kernels receive. Dimensions are numbered in WHCN order: 0 = W, 1 = H, 2 = C, 3 = N.

Any layout has a text too: the dims, slowest first. ``n c/4 h w c%4`` cuts the channels into fours, which lie together;
``pad:w=8`` counts whole eights of columns, and ``align:c=16`` begins what follows along C at multiples of 16 bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import lcm

from refsim.core import choices
from refsim.core.errors import LayoutError

W, H, C, N = range(4)
DIM_NAMES = "WHCN"
_ONES = (1, 1, 1, 1)


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
    resolved to another before execution and has no addresses of its own. Layouts of other libraries may say more:
    ``order`` is the order of dims, if not that which follows; sizes count in multiples of ``pad``, and steps along a
    dim are multiples of ``align`` bytes, both in WHCN order.
    """

    name: str
    schema_value: int
    inner: int
    inner_block: int
    outer: int
    outer_block: int
    block_transposed: bool = False
    packed_int8: bool = False
    order: tuple[int, int, int, int] | None = None
    pad: tuple[int, int, int, int] = _ONES
    align: tuple[int, int, int, int] = _ONES

    @property
    def is_dynamic(self) -> bool:
        return self.outer_block == 0

    @property
    def short_name(self) -> str:
        return self.name.removeprefix("PACKED_INT8_").removeprefix("TENSOR_")

    @property
    def block_numel(self) -> int:
        return self.inner_block * self.outer_block

    @property
    def packed_dim_info(self) -> PackedDimInfo:
        return PackedDimInfo(self.inner, self.inner_block)

    @property
    def dim_order(self) -> tuple[int, int, int, int]:
        """WHCN dim numbers, slowest to fastest, of the block grid."""
        if self.order is not None:
            return self.order
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

    def blocks(self, dim: int, size: int) -> int:
        """Blocks along a WHCN dim of so many elements, the unused ones of ``pad`` included."""
        whole = -(-size // self.pad[dim]) * self.pad[dim]
        return -(-whole // self.block_extent(dim))

    def stride(self, dim: int, step: int) -> int:
        """The stride of a WHCN dim, in blocks, if all that is faster takes ``step`` blocks."""
        unit = lcm(self.align[dim], self.block_numel) // self.block_numel
        return -(-step // unit) * unit

    @property
    def text(self) -> str:
        """The layout as `layout` reads it: ``n c/4 h w c%4``."""
        cut = [dim for dim in (self.outer, self.inner) if self.block_extent(dim) > 1]
        parts = [_LETTERS[d] + (f"/{self.block_extent(d)}" if d in cut else "") for d in self.dim_order]
        parts += [f"{_LETTERS[dim]}%{self.block_extent(dim)}" for dim in cut]
        for key, held in (("pad", self.pad), ("align", self.align)):
            parts += [f"{key}:{_LETTERS[dim]}={by}" for dim, by in enumerate(held) if by > 1]
        return " ".join(parts)

    def __str__(self) -> str:
        return self.short_name


_LETTERS = DIM_NAMES.lower()
_PART = re.compile(
    r"(?P<axis>[nchw])((?P<how>[/%])(?P<by>\d{1,2}))?|(?P<key>pad|align):(?P<dim>[nchw])=(?P<count>\d{1,4})"
)
_MOST_BLOCK = 15  # what the hashed form holds

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

#: All layouts by their full names. Functions take the short names as well: ``4W4C``, ``4C1W``, ``W``.
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
FLAT = Layout("NCHW", -1, W, 1, H, 1, False, True)
#: Layouts of other libraries, to compare with: int8, and no kernel here takes them.
FOREIGN = (
    FLAT,
    Layout("NHWC", -1, C, 1, W, 1, False, True),
    Layout("NC4HW4", -1, C, 4, W, 1, False, True, (N, C, H, W)),
    Layout("NC8HW8", -1, C, 8, W, 1, False, True, (N, C, H, W)),
)
_ALIASES = {row.short_name: row for row in (*_ROWS, *FOREIGN)} | dict(zip("WHC", _ROWS, strict=False))
_ALIASES |= {"PHWC4": _ALIASES["NC4HW4"], "NHWC4": PACKED_4C}
#: For help texts and errors.
OTHER_NAMES = "NHWC, NCHW, NC4HW4, NC8HW8, NHWC4"


def layout(name: str | int | Layout) -> Layout:
    """The layout of a full name, a short name (``4W4C``, ``W``) or a schema value; LayoutError if none is.

    Or of a text, as `Layout.text` is: ``n c/4 h w c%4``.
    """
    if isinstance(name, Layout):
        return name
    found = BY_SCHEMA_VALUE.get(name) if isinstance(name, int) else None
    if isinstance(name, str):
        found = LAYOUTS.get(name, _ALIASES.get(name))
        if found is None and len(name.split()) > 1:
            return _read(name)
    if found is None:
        allowed = choices.listed(f"{row.short_name} ({row.schema_value})" for row in _ROWS)
        allowed += f"; of other libraries {OTHER_NAMES}, or an order such as n c/4 h w c%4"
        near = choices.meant(name, (*_ALIASES, *LAYOUTS)) if isinstance(name, str) else ""
        raise LayoutError("memory layout", "unknown", got=repr(name)[:80], need=allowed + near)
    return found


def _read(text: str) -> Layout:
    """The layout of a text; LayoutError, which says what must stand there, for what is none."""
    found = [_PART.fullmatch(part) for part in text.split()]
    parts = [match for match in found if match is not None]
    grid = [match for match in parts if match["axis"] and match["how"] != "%"]
    within = {_LETTERS.index(match["axis"]): int(match["by"]) for match in parts if match["how"] == "%"}
    spaced = {match["key"] + match["dim"]: int(match["count"]) for match in parts if match["key"]}
    dims = [_LETTERS.index(match["axis"]) for match in grid]
    cut = {dim: int(match["by"]) for dim, match in zip(dims, grid, strict=True) if match["how"]}
    *outer, inner = within or [next((dim for dim in reversed(dims) if dim != N), C)]
    second = next(dim for dim in (*outer, W, H) if dim != inner)
    if (
        None in found or sorted(dims) != [W, H, C, N] or cut != within or N in within or len(outer) > 1 or second == C
        or not all(1 < by <= _MOST_BLOCK for by in within.values()) or 0 in spaced.values()
    ):  # fmt: skip
        need = f"n, c, h and w, slowest first, at most two of them cut (c/4 ... c%4, w%4 c%4), by {_MOST_BLOCK} at most"
        raise LayoutError("memory layout", "no order of dims", got=repr(text)[:80], need=need)
    a, b, c, d = dims
    pad, align = ([spaced.get(key + letter, 1) for letter in _LETTERS] for key in ("pad", "align"))
    made = Layout(
        "", -1, inner, within.get(inner, 1), second, within.get(second, 1), False, True,
        (a, b, c, d), (pad[0], pad[1], pad[2], pad[3]), (align[0], align[1], align[2], align[3]),
    )  # fmt: skip
    named = (row for row in (*INT8_LAYOUTS, *FOREIGN) if row.text == made.text)
    return next(named, replace(made, name=made.text))

"""A representation, a set of them, and lists of both that broadcast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeVar

from refsim.core.errors import LayoutError
from refsim.core.layout import (
    CHANNELS_PACKED,
    HEIGHT_PACKED,
    LAYOUTS,
    PACKED_4C,
    PACKED_4C1W,
    PACKED_4H4W,
    PACKED_4W,
    PACKED_4W4C,
    PACKED_CONV2D,
    WIDTH_PACKED,
    C,
    H,
    Layout,
    W,
)

#: Widest, highest and deepest 3-D texture that a device is assumed to take, in texels.
DEFAULT_TEXTURE_LIMITS = (16384, 16384, 2048)
#: Dims that a texture can hold; a tensor with more lives in a buffer.
MAX_TEXTURE_RANK = 4
_TEXEL = 4  # elements of the packed dim that share a texel

_BY_VALUE = tuple(sorted(LAYOUTS.values(), key=lambda row: row.schema_value))
#: Which buffer layout is taken from a set of at most `_OPEN` layouts: the first of these that it has.
_PREFERENCE = (
    WIDTH_PACKED,
    PACKED_4C1W,
    HEIGHT_PACKED,
    PACKED_CONV2D,
    CHANNELS_PACKED,
    PACKED_4W4C,
    PACKED_4H4W,
    PACKED_4W,
    PACKED_4C,
)
#: If a set has more layouts than this, nothing has asked for one; the one with the lowest schema value is taken.
_OPEN = 4


class Storage(IntEnum):
    """Where a tensor lives; the values are those of the serialized graph."""

    BUFFER = 0
    TEXTURE_3D = 1
    DEFAULT = 255


#: A buffer goes by its layout's name alone, as in every other report.
_SUFFIX = {Storage.BUFFER: "", Storage.TEXTURE_3D: ":TEXTURE_3D", Storage.DEFAULT: ""}


@dataclass(frozen=True)
class PackedDimInfo:
    """What synced tensors must agree in: the packed dim (WHCN number) and its block size, per storage type."""

    packed_dim: int
    packed_dim_block_size: int

    @classmethod
    def from_repr(cls, memory_layout: Layout, storage_type: Storage = Storage.BUFFER) -> PackedDimInfo:
        """Of a layout in a storage type: a texture packs four elements of a float layout into a texel."""
        info = memory_layout.packed_dim_info
        if storage_type is Storage.TEXTURE_3D:
            if memory_layout.packed_int8:
                raise LayoutError(
                    str(memory_layout), "int8 layouts are buffer-only", got=storage_type.name, need="BUFFER"
                )
            return cls(info.packed_dim, _TEXEL)
        return cls(info.packed_dim, info.packed_dim_block_size)


@dataclass(frozen=True)
class TensorRepr:
    """A storage type and a memory layout; layout None (with Storage.DEFAULT) leaves the choice to the runtime."""

    storage_type: Storage
    memory_layout: Layout | None

    def __str__(self) -> str:
        return f"{self.memory_layout or 'DEFAULT'}{_SUFFIX[self.storage_type]}"


DEFAULT_REPR = TensorRepr(Storage.DEFAULT, None)


class TensorRepSet:
    """The representations that a tensor may have: layouts as a buffer, and layouts as a texture."""

    def __init__(
        self, buffer_memory_layouts: Iterable[Layout] = (), texture_memory_layouts: Iterable[Layout] = ()
    ) -> None:
        self.valid_buffer_layouts = set(buffer_memory_layouts)
        self.valid_texture_layouts = set(texture_memory_layouts)

    def __str__(self) -> str:
        parts = [
            ",".join(str(row) for row in _BY_VALUE if row in rows) + _SUFFIX[storage]
            for storage, rows in self._sides()
            if rows
        ]
        return f"{{{' '.join(parts)}}}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorRepSet) and self._sides() == other._sides()

    __hash__ = None  # type: ignore[assignment]  # sets can change

    def _sides(self) -> tuple[tuple[Storage, set[Layout]], tuple[Storage, set[Layout]]]:
        return (
            (Storage.BUFFER, self.valid_buffer_layouts),
            (Storage.TEXTURE_3D, self.valid_texture_layouts),
        )

    def copy(self) -> TensorRepSet:
        return TensorRepSet(self.valid_buffer_layouts, self.valid_texture_layouts)

    # --- questions ---

    def is_empty(self) -> bool:
        return not self.valid_buffer_layouts and not self.valid_texture_layouts

    def buffer_is_valid(self) -> bool:
        return bool(self.valid_buffer_layouts)

    def texture_is_valid(self) -> bool:
        return bool(self.valid_texture_layouts)

    def any_in_common(self, other: TensorRepSet) -> bool:
        return not self.make_intersect(other).is_empty()

    def is_constrained(self) -> bool:
        """Whether there is nothing left to choose: at most one representation."""
        return len(self.valid_buffer_layouts) + len(self.valid_texture_layouts) <= 1

    def is_ambiguous(self) -> bool:
        return not self.is_constrained()

    # --- packed dims ---

    def packed_dim_infos(self) -> tuple[set[PackedDimInfo], set[PackedDimInfo]]:
        """(infos of the buffer layouts, infos of the texture layouts)."""
        first, second = (
            {PackedDimInfo.from_repr(row, storage) for row in rows} for storage, rows in self._sides()
        )
        return first, second

    def has_compatible_packed_dim_info_set(self, other: TensorRepSet) -> bool:
        """Whether every packed dim of ``other`` occurs here in the same storage type."""
        pairs = zip(self.packed_dim_infos(), other.packed_dim_infos(), strict=True)
        return all(theirs <= ours for ours, theirs in pairs)

    def constrain_to_compatible_packed_dim(self, other: TensorRepSet) -> TensorRepSet:
        """The representations here whose packed dim occurs in ``other`` in the same storage type.

        All of them if ``other`` is empty.
        """
        if other.is_empty():
            return self.copy()
        kept = [
            {row for row in rows if PackedDimInfo.from_repr(row, storage) in infos}
            for (storage, rows), infos in zip(self._sides(), other.packed_dim_infos(), strict=True)
        ]
        return TensorRepSet(*kept)

    # --- new sets ---

    def make_intersect(self, other: TensorRepSet) -> TensorRepSet:
        return TensorRepSet(
            self.valid_buffer_layouts & other.valid_buffer_layouts,
            self.valid_texture_layouts & other.valid_texture_layouts,
        )

    def make_union(self, other: TensorRepSet) -> TensorRepSet:
        return TensorRepSet(
            self.valid_buffer_layouts | other.valid_buffer_layouts,
            self.valid_texture_layouts | other.valid_texture_layouts,
        )

    # --- the choice ---

    def first_valid_buffer_layout(self) -> Layout:
        return choose_layout(self.valid_buffer_layouts)

    def first_valid_texture_layout(self) -> Layout:
        return choose_layout(self.valid_texture_layouts)

    def make_tensor_repr(self) -> TensorRepr:
        """The representation to use: a texture if one is allowed, else a buffer; the default for an empty set."""
        if self.texture_is_valid():
            return TensorRepr(Storage.TEXTURE_3D, self.first_valid_texture_layout())
        if self.buffer_is_valid():
            return TensorRepr(Storage.BUFFER, self.first_valid_buffer_layout())
        return DEFAULT_REPR


def choose_layout(rows: set[Layout]) -> Layout:
    """Which layout of a set is used.

    Upstream takes the first of a Python set of small integers, which CPython orders by the lowest bits of
    the value: this is the rule behind it. Up to four layouts are ranked by `_PREFERENCE`; more than four mean
    that nothing asked for one, and the lowest schema value is taken.
    """
    ranking: Sequence[Layout] = _BY_VALUE if len(rows) > _OPEN else _PREFERENCE
    for row in ranking:
        if row in rows:
            return row
    raise LayoutError(
        "layout", "there is none to choose from", got=", ".join(map(str, rows)) or "an empty set"
    )


def make_tensor_repset(tensor_repr: TensorRepr) -> TensorRepSet:
    """The set that holds only this representation."""
    sides: dict[Storage, set[Layout]] = {Storage.BUFFER: set(), Storage.TEXTURE_3D: set()}
    if tensor_repr.storage_type not in sides or tensor_repr.memory_layout is None:
        raise LayoutError(
            "representation", "cannot be a set of its own", got=tensor_repr, need="a buffer or a texture"
        )
    sides[tensor_repr.storage_type].add(tensor_repr.memory_layout)
    return TensorRepSet(*sides.values())


def texture_extents(shape: Sequence[int], memory_layout: Layout) -> tuple[int, int, int]:
    """Texels in x, y and z of the texture that holds a tensor of at most 4 dims (outermost first)."""
    sizes = [1] * (MAX_TEXTURE_RANK - len(shape)) + list(shape)
    whc = {W: sizes[3], H: sizes[2], C: sizes[1]}
    whc[memory_layout.inner] = -(-whc[memory_layout.inner] // _TEXEL)
    return whc[W], whc[H], whc[C] * sizes[0]


def filter_invalid_reprs(
    tensor_val: Any, tensor_repset: TensorRepSet, texture_limits: Sequence[int] = DEFAULT_TEXTURE_LIMITS
) -> TensorRepSet:
    """The representations that a tensor (anything with a ``shape``) can have: textures must fit the limits."""
    shape = tuple(tensor_val.shape)
    if len(shape) > MAX_TEXTURE_RANK:
        return TensorRepSet(tensor_repset.valid_buffer_layouts, ())
    fitting = {
        row
        for row in tensor_repset.valid_texture_layouts
        if all(n <= limit for n, limit in zip(texture_extents(shape, row), texture_limits, strict=True))
    }
    return TensorRepSet(tensor_repset.valid_buffer_layouts, fitting)


Item = TypeVar("Item")


class _BroadcastList(Generic[Item]):
    """A list. If it has one item, that stands for every position."""

    def __init__(self, items: Item | list[Item]) -> None:
        self.vals: list[Item] = items if isinstance(items, list) else [items]

    def __len__(self) -> int:
        return len(self.vals)

    def _at(self, idx: int) -> int:
        return 0 if len(self.vals) == 1 and idx > 0 else idx

    def __getitem__(self, idx: int) -> Item:
        return self.vals[self._at(idx)]

    def __setitem__(self, idx: int, val: Item) -> None:
        self.vals[self._at(idx)] = val

    def append(self, val: Item) -> None:
        self.vals.append(val)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.vals == other.vals

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.vals))}]"


class TensorReprList(_BroadcastList[TensorRepr]):
    """The representations of several tensors. A single one stands for all of them."""

    def storage_type(self, idx: int = 0) -> Storage:
        return self.vals[idx].storage_type

    def memory_layout(self, idx: int = 0) -> Layout | None:
        return self.vals[idx].memory_layout


class TensorRepSetList(_BroadcastList[TensorRepSet]):
    """The sets of several tensors. A single set stands for all, which are then synced. Past the end, sets are empty."""

    def __getitem__(self, idx: int) -> TensorRepSet:
        at = self._at(idx)
        return self.vals[at] if at < len(self.vals) else TensorRepSet()

    def any_is_empty(self) -> bool:
        """Whether a tensor has no representation at all, or no set was given."""
        return not self.vals or any(item.is_empty() for item in self.vals)

"""A representation, sets of them, and those that operators declare, by upstream's names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from refsim.core.errors import LayoutError
from refsim.core.layout import (
    CHANNELS_PACKED,
    CHANNELS_PACKED_INT8,
    FLOAT_LAYOUTS,
    HEIGHT_PACKED,
    INT8_LAYOUTS,
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
class TensorRepr:
    """A storage type and a memory layout; layout None (with Storage.DEFAULT) leaves the choice to the runtime."""

    storage_type: Storage
    memory_layout: Layout | None

    def __str__(self) -> str:
        return f"{self.memory_layout or 'DEFAULT'}{_SUFFIX[self.storage_type]}"

    @property
    def packed(self) -> tuple[Storage, int, int]:
        """What synced tensors must agree in: the storage type, the packed dim (WHCN number) and its block's size.

        A texture packs four elements of a float layout into a texel. LayoutError for what can be in no set.
        """
        if self.memory_layout is None:
            raise LayoutError(
                "representation", "cannot be a set of its own", got=self, need="a buffer or a texture"
            )
        info = self.memory_layout.packed_dim_info
        if self.storage_type is Storage.BUFFER:
            return self.storage_type, info.packed_dim, info.packed_dim_block_size
        if self.memory_layout.packed_int8:
            name = self.storage_type.name
            raise LayoutError(
                str(self.memory_layout), "int8 layouts are buffer-only", got=name, need="BUFFER"
            )
        return self.storage_type, info.packed_dim, _TEXEL


DEFAULT_REPR = TensorRepr(Storage.DEFAULT, None)


class TensorRepSet(frozenset[TensorRepr]):
    """The representations that a tensor may have."""

    def __and__(self, other: Set[object]) -> TensorRepSet:
        return TensorRepSet(super().__and__(other))

    def layouts(self, storage: Storage) -> list[Layout]:
        """The layouts in a storage type, by their schema value."""
        return [row for row in _BY_VALUE if TensorRepr(storage, row) in self]

    def __str__(self) -> str:
        sides = {storage: self.layouts(storage) for storage in (Storage.BUFFER, Storage.TEXTURE_3D)}
        return f"{{{' '.join(','.join(map(str, rows)) + _SUFFIX[side] for side, rows in sides.items() if rows)}}}"

    __repr__ = __str__

    @property
    def packed(self) -> set[tuple[Storage, int, int]]:
        return {one.packed for one in self}

    def like(self, other: TensorRepSet) -> TensorRepSet:
        """The representations here whose packed dim ``other`` has in the same storage type; all if it is empty."""
        allowed = other.packed
        return TensorRepSet(one for one in self if one.packed in allowed) if other else self

    def choice(self) -> TensorRepr:
        """The representation to use: a texture if one is allowed, else a buffer; the default for an empty set.

        Upstream takes the first of a Python set of small integers, which CPython orders by the lowest bits of
        the value: this is the rule behind it. Up to four layouts are ranked by `_PREFERENCE`; more than four mean
        that nothing asked for one, and the lowest schema value is taken.
        """
        for storage in (Storage.TEXTURE_3D, Storage.BUFFER):
            if rows := self.layouts(storage):
                return TensorRepr(storage, rows[0] if len(rows) > _OPEN else min(rows, key=_PREFERENCE.index))
        return DEFAULT_REPR

    def fitting(self, tensor: Any, limits: Sequence[int] = DEFAULT_TEXTURE_LIMITS) -> TensorRepSet:
        """The representations that a tensor (anything with a ``shape``) can have: textures must fit the limits."""
        return TensorRepSet(one for one in self if _fits(one, tuple(tensor.shape), limits))


#: A set for each tensor, or one for all of them, which are then synced.
Sets = TensorRepSet | list[TensorRepSet]


def repset(buffers: Iterable[Layout] = (), textures: Iterable[Layout] = ()) -> TensorRepSet:
    """The set of these layouts as a buffer, and as a texture."""
    sides = {Storage.BUFFER: buffers, Storage.TEXTURE_3D: textures}
    return TensorRepSet(TensorRepr(storage, row) for storage, rows in sides.items() for row in rows)


def texture_extents(shape: Sequence[int], memory_layout: Layout) -> tuple[int, int, int]:
    """Texels in x, y and z of the texture that holds a tensor of at most 4 dims (outermost first)."""
    sizes = [1] * (MAX_TEXTURE_RANK - len(shape)) + list(shape)
    whc = {W: sizes[3], H: sizes[2], C: sizes[1]}
    whc[memory_layout.inner] = -(-whc[memory_layout.inner] // _TEXEL)
    return whc[W], whc[H], whc[C] * sizes[0]


def _fits(one: TensorRepr, shape: tuple[int, ...], limits: Sequence[int]) -> bool:
    if one.storage_type is Storage.BUFFER or one.memory_layout is None:
        return True
    if len(shape) > MAX_TEXTURE_RANK:
        return False
    return all(n <= limit for n, limit in zip(texture_extents(shape, one.memory_layout), limits, strict=True))


# --- sets by name ----------------------------------------------------------------------------------------


_FLOAT = frozenset(FLOAT_LAYOUTS)


def int8_layouts(layouts: Iterable[Layout]) -> frozenset[Layout]:
    """What a tensor is tagged with that kernels take in ``layouts``.

    4C is no tag: a tensor only gets it when the runtime resolves CONV2D.
    """
    return frozenset(PACKED_CONV2D if row is PACKED_4C else row for row in layouts)


def int8_buffer(layouts: Iterable[Layout]) -> TensorRepSet:
    """The set of a tensor that kernels take in ``layouts``."""
    return repset(int8_layouts(layouts))


_INT8 = int8_layouts(INT8_LAYOUTS)

NO_STORAGE = repset()

CONTIGUOUS_ANY = repset({WIDTH_PACKED}, {WIDTH_PACKED})
CONTIGUOUS_BUFFER = repset({WIDTH_PACKED})
WIDTH_PACKED_TEXTURE = repset((), {WIDTH_PACKED})
HEIGHT_PACKED_TEXTURE = repset((), {HEIGHT_PACKED})
CHANNELS_PACKED_TEXTURE = repset((), {CHANNELS_PACKED})
CHANNELS_PACKED_ANY = repset({CHANNELS_PACKED}, {CHANNELS_PACKED})
CHANNELS_PACKED_TEXTURE_OR_CONTIGUOUS_BUFFER = repset({WIDTH_PACKED}, {CHANNELS_PACKED})
ANY_TEXTURE = repset((), _FLOAT)
ANY_BUFFER = repset(_FLOAT)
ANY_STORAGE = repset(_FLOAT, _FLOAT)

PACKED_INT8_BUFFER = int8_buffer(INT8_LAYOUTS)
PACKED_INT8_4W4C_BUFFER = repset({PACKED_4W4C})
PACKED_INT8_4H4W_BUFFER = repset({PACKED_4H4W})
PACKED_INT8_4W_BUFFER = repset({PACKED_4W})
PACKED_INT8_4C1W_BUFFER = repset({PACKED_4C1W})
PACKED_INT8_CONV2D_BUFFER = repset({PACKED_CONV2D})
PACKED_INT8_CHANNELS_PACKED_BUFFER = int8_buffer(CHANNELS_PACKED_INT8)

#: What identities take: int8 layouts flow through them without a transition on either side.
ANY_STORAGE_INCL_PACKED_INT8 = repset(_FLOAT | _INT8, _FLOAT)

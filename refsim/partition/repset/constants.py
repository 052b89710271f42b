"""The sets that operators declare, by upstream's names."""

from __future__ import annotations

from collections.abc import Iterable

from refsim.core.layout import (
    CHANNELS_PACKED,
    CHANNELS_PACKED_INT8,
    FLOAT_LAYOUTS,
    HEIGHT_PACKED,
    INT8_LAYOUTS,
    PACKED_4C,
    PACKED_4C1W,
    PACKED_4H4W,
    PACKED_4W,
    PACKED_4W4C,
    PACKED_CONV2D,
    WIDTH_PACKED,
    Layout,
)
from refsim.partition.repset.sets import TensorRepSet

_FLOAT = frozenset(FLOAT_LAYOUTS)


def int8_layouts(layouts: Iterable[Layout]) -> frozenset[Layout]:
    """What a tensor is tagged with that kernels take in ``layouts``.

    4C is no tag: a tensor only gets it when the runtime resolves CONV2D.
    """
    return frozenset(PACKED_CONV2D if row is PACKED_4C else row for row in layouts)


def int8_buffer(layouts: Iterable[Layout]) -> TensorRepSet:
    """The set of a tensor that kernels take in ``layouts``."""
    return TensorRepSet(int8_layouts(layouts), ())


_INT8 = int8_layouts(INT8_LAYOUTS)

NO_STORAGE = TensorRepSet()

CONTIGUOUS_ANY = TensorRepSet({WIDTH_PACKED}, {WIDTH_PACKED})
CONTIGUOUS_BUFFER = TensorRepSet({WIDTH_PACKED}, ())
WIDTH_PACKED_TEXTURE = TensorRepSet((), {WIDTH_PACKED})
HEIGHT_PACKED_TEXTURE = TensorRepSet((), {HEIGHT_PACKED})
CHANNELS_PACKED_TEXTURE = TensorRepSet((), {CHANNELS_PACKED})
CHANNELS_PACKED_ANY = TensorRepSet({CHANNELS_PACKED}, {CHANNELS_PACKED})
CHANNELS_PACKED_TEXTURE_OR_CONTIGUOUS_BUFFER = TensorRepSet({WIDTH_PACKED}, {CHANNELS_PACKED})
ANY_TEXTURE = TensorRepSet((), _FLOAT)
ANY_BUFFER = TensorRepSet(_FLOAT, ())
ANY_STORAGE = TensorRepSet(_FLOAT, _FLOAT)

PACKED_INT8_BUFFER = int8_buffer(INT8_LAYOUTS)
PACKED_INT8_4W4C_BUFFER = TensorRepSet({PACKED_4W4C}, ())
PACKED_INT8_4H4W_BUFFER = TensorRepSet({PACKED_4H4W}, ())
PACKED_INT8_4W_BUFFER = TensorRepSet({PACKED_4W}, ())
PACKED_INT8_4C1W_BUFFER = TensorRepSet({PACKED_4C1W}, ())
PACKED_INT8_CONV2D_BUFFER = TensorRepSet({PACKED_CONV2D}, ())
PACKED_INT8_CHANNELS_PACKED_BUFFER = int8_buffer(CHANNELS_PACKED_INT8)

#: What identities take: int8 layouts flow through them without a transition on either side.
ANY_STORAGE_INCL_PACKED_INT8 = TensorRepSet(_FLOAT | _INT8, _FLOAT)

"""The sets that operators declare, by upstream's names."""

from __future__ import annotations

from refsim.core.layout import (
    CHANNELS_PACKED,
    FLOAT_LAYOUTS,
    HEIGHT_PACKED,
    PACKED_4C1W,
    PACKED_4H4W,
    PACKED_4W,
    PACKED_4W4C,
    PACKED_CONV2D,
    WIDTH_PACKED,
)
from refsim.partition.repset.sets import TensorRepSet

_FLOAT = frozenset(FLOAT_LAYOUTS)
#: What quantized tensors may be tagged with. 4C is left out: upstream only reaches it by resolving CONV2D.
_INT8 = frozenset({PACKED_4W4C, PACKED_4H4W, PACKED_4W, PACKED_4C1W, PACKED_CONV2D})

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

PACKED_INT8_BUFFER = TensorRepSet(_INT8, ())
PACKED_INT8_4W4C_BUFFER = TensorRepSet({PACKED_4W4C}, ())
PACKED_INT8_4H4W_BUFFER = TensorRepSet({PACKED_4H4W}, ())
PACKED_INT8_4W_BUFFER = TensorRepSet({PACKED_4W}, ())
PACKED_INT8_4C1W_BUFFER = TensorRepSet({PACKED_4C1W}, ())
PACKED_INT8_CONV2D_BUFFER = TensorRepSet({PACKED_CONV2D}, ())
PACKED_INT8_CHANNELS_PACKED_BUFFER = TensorRepSet({PACKED_4W4C, PACKED_4C1W, PACKED_CONV2D}, ())

#: What identities take: int8 layouts flow through them without a transition on either side.
ANY_STORAGE_INCL_PACKED_INT8 = TensorRepSet(_FLOAT | _INT8, _FLOAT)

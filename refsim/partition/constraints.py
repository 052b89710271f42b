"""What float operators accept where that depends on the node: on its dims and arguments.

For each family of operators one function checks the arguments, and one gives the representations.
"""

from __future__ import annotations

from typing import Any

from refsim.core.layout import CHANNELS_PACKED, HEIGHT_PACKED, WIDTH_PACKED, C, H, W
from refsim.partition.nodes import argument, shape_of
from refsim.partition.repset import (
    ANY_TEXTURE,
    CHANNELS_PACKED_TEXTURE,
    CONTIGUOUS_BUFFER,
    HEIGHT_PACKED_TEXTURE,
    NO_STORAGE,
    TensorRepSet,
)

Sets = TensorRepSet | list[TensorRepSet]
_PACKED = {W: WIDTH_PACKED, H: HEIGHT_PACKED, C: CHANNELS_PACKED}

# --- reductions: (x, dims, keepdim) ---


def _reduced(node: Any) -> tuple[int, ...]:
    """The dims that a reduction removes, as non-negative NCHW numbers."""
    rank = len(shape_of(node.args[0]))
    dims = argument(node, 1)
    if dims is None or (isinstance(dims, list | tuple) and not dims):
        dims = range(rank)
    return tuple(d % rank for d in ([dims] if isinstance(dims, int) else dims))


def _is_per_row(node: Any) -> bool:
    return _reduced(node) == (len(shape_of(node.args[0])) - 1,)


def _is_general(node: Any) -> bool:
    keepdim = next((arg for arg in node.args if isinstance(arg, bool)), False)
    return keepdim and len(_reduced(node)) <= 2


def reduce_check(node: Any) -> str | None:
    """The last dim alone, or one or two dims that are kept."""
    if _is_per_row(node) or _is_general(node):
        return None
    return f"got dims {list(_reduced(node))}, need the last alone, or at most two with keepdim"


def reduce_sets(node: Any) -> tuple[Sets, Sets]:
    """The packed dim must stay; a reduction of the last dim also works on a contiguous buffer."""
    sets = ANY_TEXTURE if _is_general(node) else NO_STORAGE
    dims = _reduced(node)
    if _is_per_row(node):
        sets = sets.make_union(CONTIGUOUS_BUFFER)
    elif len(dims) == 2:
        rank = len(shape_of(node.args[0]))
        kept = min(set(_PACKED) - {rank - 1 - d for d in dims})
        sets = TensorRepSet((), {_PACKED[kept]})
    return sets, sets


# --- convolutions: (x, weight, bias, stride, padding, dilation, transposed, output_padding, groups) ---


def convolution_check(node: Any) -> str | None:
    shape = shape_of(node.args[0])
    if len(shape) == 4 and shape[0] != 1:
        return f"got batch {shape[0]}, need 1"
    if len(shape) == 3 and argument(node, 6):
        return "transposed in 1-D"
    return None


def convolution_sets(node: Any) -> tuple[Sets, Sets]:
    """Channels-packed textures; pointwise and depthwise 1-D convolutions pack the height."""
    shape = shape_of(node.args[0])
    sets = CHANNELS_PACKED_TEXTURE
    if len(shape) == 3:
        out_channels, per_group, kernel = shape_of(node.args[1])
        depthwise = argument(node, 8, 1) == shape[1] == out_channels and per_group == 1
        if kernel == 1 or depthwise:
            sets = HEIGHT_PACKED_TEXTURE
    return [sets] + [NO_STORAGE] * 10, sets

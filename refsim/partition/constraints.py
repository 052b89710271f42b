"""What float operators accept where that depends on the node: on its dims and arguments.

For each family of operators one function checks the arguments, and one gives the representations.
"""

from __future__ import annotations

from typing import Any

from refsim.core.layout import CHANNELS_PACKED, HEIGHT_PACKED, WIDTH_PACKED, C, H, W
from refsim.partition.nodes import argument, dtype_of, is_node, is_single_tensor, numel_of, shape_of
from refsim.partition.repset.sets import (
    ANY_STORAGE,
    ANY_TEXTURE,
    CHANNELS_PACKED_TEXTURE,
    CONTIGUOUS_BUFFER,
    HEIGHT_PACKED_TEXTURE,
    NO_STORAGE,
    Sets,
    TensorRepSet,
    repset,
)

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
        sets = TensorRepSet(sets | CONTIGUOUS_BUFFER)
    elif len(dims) == 2:
        rank = len(shape_of(node.args[0]))
        kept = min(set(_PACKED) - {rank - 1 - d for d in dims})
        sets = repset((), {_PACKED[kept]})
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


# --- conversions and copies ---


def conversion_sets(node: Any) -> tuple[Sets, Sets]:
    """Between floats in any layout, else in buffers."""
    floats = ("float16", "float32")
    both = dtype_of(node.args[0]) in floats and dtype_of(node) in floats
    sets = ANY_STORAGE if both else CONTIGUOUS_BUFFER
    return sets, sets


def copy_check(node: Any) -> str | None:
    """copy(self, source) only where the result is the source."""
    source = argument(node, 1)
    if not is_single_tensor(source):
        return "the source is no tensor"
    given, made = source.meta["val"], node.meta["val"]
    if given.dtype != made.dtype or given.shape != made.shape:
        return f"got {given.dtype} {list(given.shape)}, need {made.dtype} {list(made.shape)}"
    return None


# --- reading elements by index ---


def _only_index(node: Any) -> Any:
    """The one index tensor of index.Tensor; None if there are several."""
    indices = argument(node, 1)
    found = [item for item in indices if item is not None] if isinstance(indices, list | tuple) else []
    inside = is_single_tensor(node.args[0]) and len(indices) <= len(shape_of(node.args[0]))
    return found[0] if len(found) == 1 and is_single_tensor(found[0]) and inside else None


def index_check(node: Any) -> str | None:
    """Along one dim, by a list of positions."""
    index = _only_index(node)
    if index is None:
        return "got several index tensors, need one"
    return None if len(shape_of(index)) == 1 else f"got an index of {len(shape_of(index))} dims, need 1"


def index_sets(node: Any) -> tuple[Sets, Sets]:
    """Tensors of several dims lie in buffers."""
    sets = (
        CONTIGUOUS_BUFFER
        if _only_index(node) is not None and len(shape_of(node.args[0])) > 1
        else ANY_STORAGE
    )
    return sets, sets


#: Elements that a buffer holds.
BUFFER_LIMIT = 128 * 1024 * 1024


def embedding_check(node: Any) -> str | None:
    """The table must fit a buffer."""
    count = numel_of(node.args[0]) if is_single_tensor(node.args[0]) else 0
    return f"got {count} elements, need at most {BUFFER_LIMIT}" if count > BUFFER_LIMIT else None


def sampler_check(node: Any) -> str | None:
    """Bilinear, repeating the border, corners aligned."""
    given = tuple(item.meta.get("val") if is_node(item) else item for item in node.args[2:5])
    return None if given == (0, 1, True) else f"got mode, padding, align_corners {given}, need (0, 1, True)"

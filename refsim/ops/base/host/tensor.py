"""What a host tells its kernels about a tensor: parameter blocks, hashed layouts, block configurations, images.

Facts: ExecuTorch's Vulkan backend. Dims are counted in WHCN order. A host knows a tensor by the dims that it has:
where `TensorDesc` folds and adds dims to four, a host keeps their number.
"""

from __future__ import annotations

import numpy as np

from refsim.core.launch import Triple
from refsim.core.layout import DIM_NAMES, H, N, W
from refsim.core.tensor import MAX_RANK, TensorDesc

AXIS_MAP = (0, 1, 2, 2)  # an image's axes of W, H and C; batches follow each other along that of C
BLOCK = 4  # elements of a block along each of its two dims, in a block configuration


def sizes(desc: TensorDesc) -> tuple[int, ...]:
    """The sizes of the dims that there are, fastest first."""
    return tuple(reversed(desc.shape))


def dim_order(desc: TensorDesc) -> tuple[int, ...]:
    """Numbers of the dims that there are, fastest first."""
    slowest_first = [*range(len(desc.shape) - 1, N, -1), *desc.layout.dim_order]
    return tuple(dim for dim in reversed(slowest_first) if dim < len(desc.shape))


def strides(desc: TensorDesc) -> tuple[int, ...]:
    """Strides of the dims that there are, in blocks."""
    found, step = [0] * len(desc.shape), 1
    for dim in dim_order(desc):
        found[dim] = step
        step *= -(-sizes(desc)[dim] // desc.layout.block_extent(dim))
    return tuple(found)


def hashed(desc: TensorDesc, image: bool = False) -> int:
    """The 32-bit integer that stands for a tensor's layout, unsigned.

    That of a buffer begins with its order of dims, in which those that the tensor lacks come last. That of an image
    begins with its axes, and counts four elements to a texel.
    """
    row = desc.layout
    order = dim_order(desc)
    order = AXIS_MAP if image else (*order, *range(len(order), N + 1))[: N + 1]
    blocks = (4, 1) if image else (row.inner_block, row.outer_block)
    return _packed(order, row.inner, row.outer, *blocks)


def _packed(order: tuple[int, ...], inner: int, outer: int, inner_block: int, outer_block: int) -> int:
    low = sum(dim << (4 * place) for place, dim in enumerate(order))
    return low | inner << 16 | outer << 20 | inner_block << 24 | outer_block << 28


def buffer_metadata(desc: TensorDesc) -> np.ndarray:
    """The block BufferMetadata: uint32 (28,), which are 112 bytes.

    Eight sizes, eight dims in order, eight strides in blocks, the number of dims, the number of elements with padding.
    Dims that the tensor lacks have size 1 and that number as their stride.
    """
    count, total = len(desc.shape), desc.buffer_numel
    beyond = range(count, MAX_RANK)
    rows = (
        [*sizes(desc), *(1 for _ in beyond)],
        [*dim_order(desc), *beyond],
        [*strides(desc), *(total for _ in beyond)],
        [count, total, 0, 0],
    )
    return np.array([value for row in rows for value in row], np.uint32)


def texture_metadata(desc: TensorDesc) -> np.ndarray:
    """The block TextureMetadata: uint32 (16,), which are 64 bytes: sizes, extent, axes, packed dim."""
    return np.array(
        [*sizes_block(desc), *image_extent(desc), 1, *AXIS_MAP, desc.layout.inner, 0, 0, 0], np.uint32
    )


def sizes_block(desc: TensorDesc) -> np.ndarray:
    """Four sizes: uint32 (4,)."""
    return np.array((*sizes(desc), 1, 1, 1)[: N + 1], np.uint32)


# --- blocks ----------------------------------------------------------------------------------------------


def _config(inner: int, outer: int) -> int:
    rest = [dim for dim in range(len(DIM_NAMES)) if dim not in (inner, outer)]
    return _packed((inner, outer, *rest), inner, outer, BLOCK, BLOCK)


def block_dims(desc: TensorDesc, out: TensorDesc, other: TensorDesc) -> tuple[int, int]:
    """(inner, outer) dim of the 4 x 4 blocks in which a kernel walks a tensor that is ``out`` or ``other``.

    The output's inner dim is its packed one. Its outer dim is the other tensor's packed dim, or, where that is the
    same, W or else H. The other tensor's two dims change places if its packed dim is the outer one.
    """
    inner, outer = out.layout.inner, other.layout.inner
    if inner == outer:
        outer = H if inner == W else W
    return (inner, outer) if desc.layout.inner == inner else (outer, inner)


def block_config(desc: TensorDesc, out: TensorDesc, other: TensorDesc) -> int:
    """`block_dims` as the integer that kernels receive, unsigned."""
    return _config(*block_dims(desc, out, other))


def extents(out: TensorDesc, dims: tuple[int, int]) -> Triple:
    """The blocks along W, H and (C, N)."""
    w, h, c, n = (-(-size // BLOCK) if dim in dims else size for dim, size in enumerate(out.sizes_whcn))
    return (w, h, c * n)


# --- images ----------------------------------------------------------------------------------------------


def image_extent(desc: TensorDesc) -> Triple:
    """Texels along x, y and z of a float tensor of at most four dims in an image: W, H and (N, C).

    The packed dim counts texels of four.
    """
    w, h, c, n = (
        -(-size // 4) if dim == desc.layout.inner else size for dim, size in enumerate(desc.sizes_whcn)
    )
    return (w, h, c * n)


def to_texels(array: np.ndarray, desc: TensorDesc) -> np.ndarray:
    """An NCHW array of 32-bit values as texels (z, y, x, 4). Lanes that have no element are 0."""
    four = array.reshape(desc.sizes_whcn[::-1])
    axis = 3 - desc.layout.inner
    spare = [(0, 0)] * 4
    spare[axis] = (0, -four.shape[axis] % 4)
    padded = np.pad(four, spare)
    split = padded.reshape(*padded.shape[:axis], -1, 4, *padded.shape[axis + 1 :])
    x, y, z = image_extent(desc)
    return np.ascontiguousarray(np.moveaxis(split, axis + 1, -1)).reshape(z, y, x, 4)


def from_texels(texels: np.ndarray, desc: TensorDesc) -> np.ndarray:
    """The NCHW array that `to_texels` laid out."""
    axis = 3 - desc.layout.inner
    w, h, c, n = (
        -(-size // 4) if dim == desc.layout.inner else size for dim, size in enumerate(desc.sizes_whcn)
    )
    split = np.moveaxis(texels.reshape(n, c, h, w, 4), -1, axis + 1)
    joined = split.reshape(*split.shape[:axis], -1, *split.shape[axis + 2 :])
    return joined.take(range(desc.sizes_whcn[desc.layout.inner]), axis).reshape(desc.shape)

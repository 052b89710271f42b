"""Index math of packed buffers, in plain arithmetic: one function for Python ints, NumPy and Numba.

Every function gets a tensor in two parts:

- its *meta words*: four sizes and four strides, each in WHCN order. Strides count blocks. ``meta`` is anything that
  can be subscripted, and ``at`` is where the eight words begin in it, so kernels can read their push words in place;
- its hashed layout: bits 0-15 are the dim order (four 4-bit WHCN numbers, fastest first), 16-19 the inner dim, 20-23
  the outer dim, 24-27 the inner block, 28-31 the outer block.

Coordinates are ints, or arrays that broadcast. `shaders/include/index.glsl` has the same formulas.
"""

from __future__ import annotations

from typing import Any

from refsim.core.jit import jitable

W_STRIDE, H_STRIDE, C_STRIDE, N_STRIDE = range(4, 8)  # among the meta words; sizes are at W, H, C and N
META_WORDS = 8


@jitable
def inner_dim(hashed: Any) -> Any:
    """WHCN number of the packed dim."""
    return (hashed >> 16) & 15


@jitable
def outer_dim(hashed: Any) -> Any:
    """WHCN number of the outer packed dim."""
    return (hashed >> 20) & 15


@jitable
def inner_block(hashed: Any) -> Any:
    """Elements of a block along the packed dim."""
    return (hashed >> 24) & 15


@jitable
def outer_block(hashed: Any) -> Any:
    """Elements of a block along the outer packed dim."""
    return (hashed >> 28) & 15


@jitable
def block_numel(hashed: Any) -> Any:
    """Elements of a block."""
    return inner_block(hashed) * outer_block(hashed)


@jitable
def block_extent(hashed: Any, dim: Any) -> Any:
    """Elements of a block along any WHCN dim."""
    if dim == inner_dim(hashed):
        return inner_block(hashed)
    if dim == outer_dim(hashed):
        return outer_block(hashed)
    return 1


@jitable
def block_idx(meta: Any, at: Any, hashed: Any, w: Any, h: Any, c: Any, n: Any) -> Any:
    """Index of the block that holds an element (upstream: tensor4d_idx_to_block_idx)."""
    return (
        w // block_extent(hashed, 0) * meta[at + W_STRIDE]
        + h // block_extent(hashed, 1) * meta[at + H_STRIDE]
        + c // block_extent(hashed, 2) * meta[at + C_STRIDE]
        + n * meta[at + N_STRIDE]
    )


@jitable
def _along(dim: Any, w: Any, h: Any, c: Any) -> Any:
    """The coordinate along the inner dim of a layout, which is W, H or C."""
    if dim == 0:
        return w
    return h if dim == 1 else c


@jitable
def intra_block_idx(hashed: Any, w: Any, h: Any, c: Any, n: Any) -> Any:
    """Index of an element within its block; the inner dim is fastest."""
    inner = _along(inner_dim(hashed), w, h, c)
    outer = h if outer_dim(hashed) == 1 else w  # no block extends along another dim
    return outer % outer_block(hashed) * inner_block(hashed) + inner % inner_block(hashed)


@jitable
def buf_idx(meta: Any, at: Any, hashed: Any, w: Any, h: Any, c: Any, n: Any) -> Any:
    """Index of an element in the buffer, in elements, so in bytes for int8 (upstream: tensor4d_idx_to_buf_idx)."""
    block = block_idx(meta, at, hashed, w, h, c, n)
    return block * block_numel(hashed) + intra_block_idx(hashed, w, h, c, n)


@jitable
def word_idx(meta: Any, at: Any, hashed: Any, w: Any, h: Any, c: Any, n: Any) -> Any:
    """Index of the 32-bit word that holds an element of a packed int8 buffer (upstream: texel index)."""
    return buf_idx(meta, at, hashed, w, h, c, n) // 4


@jitable
def coord(meta: Any, at: Any, hashed: Any, index: Any) -> Any:
    """(w, h, c, n) of an index in the buffer: the inverse of `buf_idx`. A coordinate beyond the sizes is padding."""
    block = index // block_numel(hashed)
    intra = index % block_numel(hashed)
    w, h, c, n = 0, 0, 0, 0
    for place in range(3, -1, -1):  # slowest dim first
        dim = (hashed >> (4 * place)) & 15
        along = block // meta[at + W_STRIDE + dim]
        block = block - along * meta[at + W_STRIDE + dim]
        along = along * block_extent(hashed, dim)
        if dim == inner_dim(hashed):
            along = along + intra % inner_block(hashed)
        elif dim == outer_dim(hashed):
            along = along + intra // inner_block(hashed)
        if dim == 0:
            w = along
        elif dim == 1:
            h = along
        elif dim == 2:
            c = along
        else:
            n = along
    return w, h, c, n


@jitable
def inside(meta: Any, at: Any, w: Any, h: Any, c: Any, n: Any) -> Any:
    """Whether a coordinate (never negative here) is an element of the tensor."""
    return (w < meta[at]) & (h < meta[at + 1]) & (c < meta[at + 2]) & (n < meta[at + 3])


@jitable
def lanes_inside(meta: Any, at: Any, hashed: Any, w: Any, h: Any, c: Any, n: Any) -> Any:
    """How many lanes of the word that begins at a coordinate hold elements; 0 for a word of padding."""
    if not inside(meta, at, w, h, c, n):
        return 0
    dim = inner_dim(hashed)
    return min(4, meta[at + dim] - _along(dim, w, h, c))


@jitable
def lane_coord(hashed: Any, k: Any, w: Any, h: Any, c: Any) -> Any:
    """(w, h, c) of lane k of the word that begins at a coordinate: k steps further along the packed dim."""
    dim = inner_dim(hashed)
    if dim == 0:
        return w + k, h, c
    if dim == 1:
        return w, h + k, c
    return w, h, c + k


@jitable
def words_per_block(hashed: Any) -> Any:
    """32-bit words of a packed int8 block; turns a stride in blocks into one in words."""
    return block_numel(hashed) // 4

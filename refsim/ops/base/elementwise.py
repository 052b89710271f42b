"""Operators that compute every output word by itself: the launch, and the walk over words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refsim.core.index import W_STRIDE, block_extent, block_numel, buf_idx, inner_dim, word_idx
from refsim.core.jit import jitable
from refsim.core.launch import PLANE_ROW, Launch, Triple, check_counts, column_local, plane_global_size
from refsim.core.layout import C, H, Layout, W
from refsim.core.tensor import TensorDesc
from refsim.ops.base.arg import Arg, Kind
from refsim.ops.base.padding import OnDevice, Pad, Padding
from refsim.ops.base.spec import Call

UNSPECIFIED = Padding(Pad(0, OnDevice.UNSPECIFIED), Pad(0, OnDevice.UNSPECIFIED))
#: The input's padding bytes; the values say nothing.
COPIED = Padding(Pad(0), Pad(0), copied=True)


def padding_unspecified(call: Call) -> Padding:
    """Padding is 0 here. Upstream computes it from its inputs' padding, or leaves it undefined."""
    return UNSPECIFIED


def launch(call: Call) -> Launch:
    """A launch that computes each output word by itself. Its push words are only those of the tensors."""
    return call.launched(plane_global_size(call.out), (256, 1, 1), (4, 1, 1))


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes a word, the inverse of `word_number`."""
    each = launch.global_size[0]
    plane = word // each
    return word % each, plane // PLANE_ROW, plane % PLANE_ROW


@jitable
def word_number(x: Any, y: Any, z: Any, meta: Any, at: Any, hashed: Any) -> Any:
    """The index of the output word (int8) of a work item of `launch`; at least the number of words if none is its."""
    second_slowest = (hashed >> 8) & 15
    words = meta[at + W_STRIDE + second_slowest] * block_numel(hashed) // 4
    return (y * PLANE_ROW + z) * words + x


TILE = 4  # elements along W, H and C: whole words and whole blocks of every layout


def launch_tiles(call: Call, **values: Any) -> Launch:
    """A launch whose invocations compute 4 x 4 x 4 elements each.

    ``values`` are the push words, by name, that come from parameters.
    """
    size, local, tile = tiled(call.out, [call.descs[a.name] for a in call.op.args if a.kind is Kind.INPUT])
    return call.launched(size, local, tile, **values)


def tiled(out: TensorDesc, inputs: Sequence[TensorDesc]) -> tuple[Triple, Triple, Triple]:
    """Global size, workgroup and tile of a kernel that makes 4 x 4 x 4 elements an invocation.

    Global size: words along C x words along W x (batch, rows padded to 4).
    """
    _, h, c, n = out.sizes_whcn
    along_w, along_c = word_extent(out, W), word_extent(out, C)
    width = out.blocks_whcn[W] * out.layout.block_extent(W)
    same_way = all(d.layout.dim_order[-1] == out.layout.dim_order[-1] for d in inputs)
    size = (-(-c // along_c), width // along_w, n * (-(-h // TILE) * TILE))
    check_counts(out, "global size", size)
    return (
        size,
        column_local(out, TILE) if same_way else (8, 8, 1),
        (TILE // along_c, TILE // along_w, TILE),
    )


def word_extent(out: TensorDesc, dim: int) -> int:
    """Elements of a word along a dim."""
    return 4 if out.is_int8 and dim == out.layout.inner else 1


def tile_work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item of `launch_tiles` that writes the word at a coordinate."""
    out = launch.out
    rows = -(-out.sizes_whcn[H] // TILE) * TILE
    return c // word_extent(out, C), w // word_extent(out, W), n * rows + h


@jitable
def tile_word(x: Any, y: Any, z: Any, meta: Any, at: Any, hashed: Any) -> Any:
    """(number of the output word, or -1 if there is none; w, h, c, n of its first element) of a work item of
    `launch_tiles`."""
    rows = (meta[at + H] + TILE - 1) // TILE * TILE
    n, top, row = z // rows, z % rows // TILE * TILE, z % TILE
    h = top + row
    tall = block_extent(hashed, H)
    if h >= (meta[at + H] + tall - 1) // tall * tall:
        return -1, y, h, x, n
    if block_numel(hashed) == 1:
        return buf_idx(meta, at, hashed, y, h, x, n), y, h, x, n
    w, c = (y, 4 * x) if inner_dim(hashed) == C else (4 * y, x)
    return word_idx(meta, at, hashed, w, h, c, n), w, h, c, n


def same_shape(params: Any, shapes: Any, consts: Any, declared: Any) -> tuple[int, ...]:
    """The output has the shape of the first input."""
    return next(iter(shapes.values()))


def tensor(name: str, layouts: Sequence[Layout], kind: Kind = Kind.INPUT) -> Arg:
    return Arg(name, kind, tuple(layouts))


def params(*names: str) -> tuple[Arg, ...]:
    return tuple(Arg(name) for name in names)

"""Prepack a 3x3 convolution of stride 1 for the Winograd kernel, after checking that it is exact there.

The sizes below and the constants of the estimate come from layers timed by `python -m bench.peers`
on an AMD EPYC (Zen 4).
"""

from __future__ import annotations

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.conv_problem import ConvProblem, constant_rows, in_panels
from refsim.exec.cpu.dot import MADDWD, lay_out
from refsim.exec.cpu.gemm.prepack import RegisterTile, tile_for
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import LINE_BYTES, Arguments, Job, Scratch
from refsim.exec.cpu.nhwc.kernel import S8
from refsim.exec.cpu.winograd import kernel
from refsim.exec.cpu.winograd.kernel import TRANSFORMS, WinogradTransform, transformed_weights

#: Transformed input of a block of tiles: about this much, but enough tiles to share the weights that are read for them.
BLOCK_BYTES = 160 * 1024
MIN_TILES, MAX_TILES = 16, 48
#: Weights of a panel and one element: at most this much, so that all groups of tiles read them from the nearest cache.
ELEMENT_BYTES = 8 * 1024
#: Blocks that a thread should have at least, so that none waits long for the others at the end.
TASKS = 4

#: For the estimate: cycles to transform a tile of one vector of input or output channels, by m. If the transformed
#: weights take more than NEAR bytes, they come from a far cache at FAR_BYTES a cycle.
IN_CYCLES = {4: 100, 2: 35}
OUT_CYCLES = {4: 80, 2: 25}
NEAR = 512 * 1024
FAR_BYTES = 20.0


def why_not(conv: ConvProblem, m: int) -> str | None:
    """Why F(m x m, 3 x 3) cannot compute a convolution exactly, or None."""
    if (
        conv.kernel != (3, 3)
        or conv.stride != (1, 1)
        or conv.dilation != (1, 1)
        or conv.input_dilation != (1, 1)
    ):
        return "not a 3x3 window of stride and dilation 1"
    if conv.groups != 1:
        return "grouped"
    shift = TRANSFORMS[m].shift
    limit = 1 << (31 - shift)
    if conv.largest_total >= limit:
        return f"a sum may reach {conv.largest_total}, not below {limit}"
    if (np.ldexp(np.ldexp(conv.scales, -shift), shift) != conv.scales).any():
        return f"a scale is too small to be divided by {1 << shift}"
    return None


def cycles(conv: ConvProblem, isa: Isa, m: int) -> float:
    """About how long F(m x m, 3 x 3) takes on one thread."""
    channels, out = conv.weight.shape[4], conv.weight.shape[1]
    size = TRANSFORMS[m].size ** 2
    tiles = conv.out.images * -(-conv.out.rows // m) * -(-conv.out.pixels // m)
    turned = -(-channels // (2 * isa.lanes)) * IN_CYCLES[m] + -(-out // isa.lanes) * OUT_CYCLES[m]
    streamed = _far(conv, size) / FAR_BYTES
    return tiles * (size * channels * out / isa.macs16 + turned) + streamed


def slower(conv: ConvProblem, isa: Isa, m: int) -> str | None:
    """Why the direct product is faster by an estimate in cycles, or None."""
    ours = cycles(conv, isa, m)
    direct = conv.macs / isa.macs8
    return None if ours < direct else f"{ours / direct:.2f} of the direct product's estimated time"


def _far(conv: ConvProblem, elements: int) -> int:
    """Bytes of transformed weights, if they are too many to stay near."""
    stored = elements * conv.weight.shape[4] * conv.weight.shape[1] * 2
    return stored if stored > NEAR else 0


def blocks(conv: ConvProblem, transform: WinogradTransform, isa: Isa, threads: int = 1) -> tuple[int, int]:
    """Rows and columns of tiles in a block: many to a block where the channels alone make enough tasks."""
    tile_rows, tile_columns = (-(-size // transform.m) for size in (conv.out.rows, conv.out.pixels))
    per_tile = transform.size**2 * 2 * max(conv.x.words * 4, 2 * isa.lanes)
    most = max(MIN_TILES, min(MAX_TILES, BLOCK_BYTES // per_tile))
    columns = _even(tile_columns, most)
    rows = _even(tile_rows, max(1, most // columns))
    if threads > 1 and conv.out.channels < 8 * isa.lanes * threads:
        least = MIN_TILES // columns if _far(conv, transform.size**2) else 1
        rows = min(rows, max(1, least, conv.out.images * tile_rows // (TASKS * threads)))
    return rows, columns


def lower(
    name: str, conv: ConvProblem, isa: Isa, threads: int, m: int = 4, tile: RegisterTile | None = None
) -> Job:
    """The job of a convolution problem."""
    transform = TRANSFORMS[m]
    channels, words = conv.weight.shape[1], conv.x.words
    tile_rows, tile_columns = (-(-size // m) for size in (conv.out.rows, conv.out.pixels))
    block_rows, block_columns = blocks(conv, transform, isa, threads)
    tiles = block_rows * block_columns
    near = max(2, ELEMENT_BYTES // (words * MADDWD.weight_bytes * isa.lanes))
    tile = tile or tile_for(isa, MADDWD, channels, tiles, near)
    panel = isa.lanes * tile.vectors
    panels = -(-channels // panel)
    weight = _weights(conv, transform, isa, tile)
    row_blocks, column_blocks = -(-tile_rows // block_rows), -(-tile_columns // block_columns)
    count = conv.out.images * row_blocks * column_blocks
    parts = min(panels, -(-threads // count))
    pixel_bytes = words * 4
    pitch = (block_columns * m + 2) * pixel_bytes
    v_pitch = -(-pixel_bytes // (2 * isa.lanes)) * 4 * isa.lanes
    most = max(tiles, tile.rows)
    scratch = Scratch()
    scratch.part("pixels", (block_rows * m + 2) * pitch + 4 * isa.lanes)
    scratch.part("v", transform.size**2 * (most * v_pitch + LINE_BYTES))
    scratch.part("m", transform.size**2 * most * panel * 4)
    scratch.part("bytes", tiles * m * m * panel)
    consts = constant_rows(conv, 0, transform.scale**2)
    for row, shift in ((1, -transform.shift), (3, transform.shift)):  # sums come multiplied by a power of two
        consts[row] = np.ldexp(consts[row].view(np.float32), shift).view(np.int32)
    args = Arguments()
    block = args.block(
        kernel.WINOGRAD,
        {"out": "out"},
        **conv.side_fields(args, isa, S8),
        weight=args.address(weight),
        consts=args.address(in_panels(consts, 1, panel)),
        row_blocks=row_blocks,
        column_blocks=column_blocks,
        parts=parts,
        panels=panels,
        panel_bytes=weight[0].nbytes,
        out_h=conv.out.rows,
        out_w=conv.out.pixels,
        tile_rows=tile_rows,
        tile_columns=tile_columns,
        block_rows=block_rows,
        block_columns=block_columns,
        pad_h=conv.padding[0],
        pad_w=conv.padding[1],
        in_words=words,
        pixel_bytes=pixel_bytes,
        pitch=pitch,
        v_pitch=v_pitch,
        k4s=words,
        out_words=conv.out.words,
        **conv.out_fields(),
        **scratch.at,
        **conv.epilogue_fields(args),
    )
    entry = compiled.address(
        kernel.winograd,
        m=m,
        lanes=isa.lanes,
        rows=tile.rows,
        vectors=tile.vectors,
        **conv.epilogue_variant(),
    )
    return args.job(name, entry, block, count * parts, scratch.nbytes)


def _weights(conv: ConvProblem, transform: WinogradTransform, isa: Isa, tile: RegisterTile) -> np.ndarray:
    """Transformed weights by panel, element and words of input channels."""
    channels, words = conv.weight.shape[1], conv.x.words
    padded = np.zeros((channels, 3, 3, words * 4), np.int8)
    padded[..., : conv.weight.shape[4]] = conv.weight[0]
    panels = -(-channels // (isa.lanes * tile.vectors))
    by_element = [
        lay_out(MADDWD, u.reshape(channels, words, 4), isa.lanes, tile.vectors).reshape(panels, -1)
        for u in transformed_weights(transform, padded)
    ]
    return np.ascontiguousarray(np.stack(by_element, 1))


def _even(size: int, most: int) -> int:
    """The size of parts of at most `most`, as equal as they can be."""
    return -(-size // -(-size // most))

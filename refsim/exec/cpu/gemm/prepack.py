"""Prepack a `Window` for the gemm kernel: register tile, blocks of pixels, weights, argument blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.conv_problem import Window, constant_rows, in_panels
from refsim.exec.cpu.dot import MADDUBS, MADDWD, Dot, lay_out, safe
from refsim.exec.cpu.gemm import kernel
from refsim.exec.cpu.gemm.gather import BYTES_PER_WORD, PACK, S8, UNPACK, gather, pack, unpack
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments, Job
from refsim.exec.cpu.strides import ROWS, View

#: Packed input of a block: about this much, so that it stays in the second-level cache beside the weights.
BLOCK_BYTES = 96 * 1024
BLOCK_PIXELS = 256
MAX_ROWS = 12
#: Copying a row of a window costs about as much as so many products of vectors; it reads and writes so far beyond.
GATHER_PRODUCTS = 2
SLACK = 128
#: Products of bytes have to take at most so much of the instructions of 16-bit ones.
WORTH_IT = 1.15


@dataclass(frozen=True)
class Tile:
    """A register tile: pixels by vectors of output channels."""

    rows: int
    vectors: int


def tile_for(isa: Isa, dot: Dot, channels: int, pixels: int, vectors: int = 4) -> Tile:
    """The tile of at most so many vectors with the least estimated work.

    What it computes beyond the last pixel and channel counts.
    """

    def cost(tile: Tile) -> float:
        steps = tile.rows * tile.vectors
        cycles = max(steps / 2, 5, (steps * dot.slots + tile.rows + tile.vectors) / 4)
        panels = -(-channels // (isa.lanes * tile.vectors))
        return cycles * panels * -(-pixels // tile.rows)

    fitting = [
        Tile(rows, vectors)
        for vectors in range(min(4, vectors), 0, -1)
        for rows in range(1, MAX_ROWS + 1)
        if rows * vectors + vectors + dot.spare <= isa.registers
    ]
    return min(fitting, key=cost)


def _block(w: Window, pixel_bytes: int) -> tuple[int, int]:
    """Rows and columns of a block of output pixels; columns in whole quads, or all of them."""
    per_pixel = pixel_bytes * w.stride[0] * w.stride[1]
    target = max(24, min(BLOCK_PIXELS, BLOCK_BYTES // per_pixel))
    width = w.out.pixels
    if width > target:
        parts = -(-width // target)
        return (1, -(-width // parts // 4) * 4)
    return (max(1, min(w.out.rows, target // width)), width)


def gathers(w: Window, isa: Isa) -> bool:
    """Whether windows are multiplied without the padding of their channels, which copying each of them costs."""
    groups, channels, kh, kw, inputs = w.weight.shape
    words = -(-inputs // 4)
    if groups > 1 or w.dilation != (1, 1) or kw * words > isa.lanes:
        return False
    saved = kh * kw * words - -(-kh * kw * inputs // 4)
    return saved * -(-channels // isa.lanes) >= GATHER_PRODUCTS * kh


#: Cycles, for estimates: to pack a channel word of a pixel, and besides of a pixel, a panel and a task.
PACK_WORD, PIXEL, PANEL, TASK = 0.3, 6.0, 60.0, 400.0


def _shares(w: Window, tile: Tile, panels: int, block: tuple[int, int], threads: int) -> tuple[int, int]:
    """Rows of a block, and parts that a group's panels are in, so that several threads end soonest.

    Every part packs the block's input again; smaller blocks repeat the rows that windows share.
    """
    high, width = block
    if threads == 1:
        return high, 1
    groups, _, kh, kw, _ = w.weight.shape
    words = -(-w.weight.shape[4] // 4)
    column_blocks = -(-w.out.pixels // width)
    columns = (width - 1) * w.stride[1] + w.reach[1]

    def cycles(rows: int, parts: int) -> float:
        tasks = w.out.images * column_blocks * -(-w.out.rows // rows) * groups * parts
        packed = ((rows - 1) * w.stride[0] + w.reach[0]) * columns * words
        tiles = -(-rows * width // tile.rows)
        steps = tiles * max(tile.rows * tile.vectors, 5) * kh * kw * words
        each = TASK + rows * width * PIXEL + packed * PACK_WORD + -(-panels // parts) * (PANEL + steps)
        return -(-tasks // threads) * each

    choices = [
        (rows, parts) for rows in range(high, 0, -1) for parts in range(1, min(panels, 4 * threads) + 1)
    ]
    return min(choices, key=lambda choice: cycles(*choice))


def _by_unit(w: Window, gathered: bool) -> np.ndarray:
    """Weights by four: int8 (groups, channels, units, 4)."""
    groups, channels, *_ = w.weight.shape
    taps = w.weight.reshape(groups, channels, 1, -1) if gathered else w.weight
    taps = np.pad(taps, [(0, 0)] * (taps.ndim - 1) + [(0, -taps.shape[-1] % 4)])
    return taps.reshape(groups, channels, -1, 4)


@dataclass(frozen=True)
class Again:
    """Units that vectors of channels multiply a second time, by what is left of the weights.

    ``first``: of each vector, and behind the last, its first number in the others; ``units``; ``weight``: (units,
    lanes, 4).
    """

    first: np.ndarray
    units: np.ndarray
    weight: np.ndarray


def _split(by_unit: np.ndarray, dot: Dot, lanes: int, vectors: int) -> tuple[np.ndarray, Again]:
    """Weights as a kernel takes them, and the rest that it has to take once more."""
    if dot is not MADDUBS:
        none = np.zeros(0, np.int64)
        return by_unit, Again(none, none, none)
    _, channels, units, _ = by_unit.shape
    spare = -channels % (lanes * vectors)
    first, rest = safe(by_unit)
    rest = np.pad(rest, [(0, 0), (0, spare), (0, 0), (0, 0)]).reshape(-1, lanes, units, 4).swapaxes(1, 2)
    needed = rest.any((2, 3))
    starts = np.concatenate([[0], needed.sum(1).cumsum()])
    return first, Again(starts, needed.nonzero()[1], np.ascontiguousarray(rest[needed]))


def slower(w: Window, isa: Isa) -> str | None:
    """Why products of bytes in 16 bits would not be faster than of 16-bit values, or None."""
    tile = tile_for(isa, MADDUBS, w.weight.shape[1], BLOCK_PIXELS)
    by_unit = _by_unit(w, gathers(w, isa))
    again = _split(by_unit, MADDUBS, isa.lanes, tile.vectors)[1]
    once = (len(again.first) - 1) * by_unit.shape[2]
    instructions = once * MADDUBS.slots + len(again.units) * (MADDUBS.slots + 1)
    if instructions < WORTH_IT * once * MADDWD.slots * MADDWD.steps:
        return None
    return f"{len(again.units) / once:.0%} of the units would be multiplied twice"


def lower(name: str, w: Window, isa: Isa, dot: Dot, threads: int, tile: Tile | None = None) -> Job:
    """The job that computes a window."""
    groups, channels, kh, kw, inputs = w.weight.shape
    words = -(-inputs // 4)
    gathered = gathers(w, isa)
    element = S8 if gathered else dot.element
    pixel_bytes = words * BYTES_PER_WORD[element]
    block_h, block_w = _block(w, pixel_bytes)
    tile = tile or tile_for(isa, dot, channels, block_h * block_w)
    panel = isa.lanes * tile.vectors
    panels = -(-channels // panel)
    block_h, per_group = _shares(w, tile, panels, (block_h, block_w), threads)
    pixels = block_h * block_w
    reach = w.reach
    columns = (block_w - 1) * w.stride[1] + reach[1]
    pitch = columns * pixel_bytes
    region = ((block_h - 1) * w.stride[0] + reach[0]) * pitch

    by_unit = _by_unit(w, gathered)
    taps, again = _split(by_unit, dot, isa.lanes, tile.vectors)
    weight = np.concatenate([lay_out(dot, part, isa.lanes, tile.vectors) for part in taps])
    if gathered:
        runs = [0]
    elif w.dilation[1] == 1:  # the taps of a row are neighbours
        runs = [i * w.dilation[0] * pitch for i in range(kh)]
    else:
        runs = [
            i * w.dilation[0] * pitch + j * w.dilation[1] * pixel_bytes for i in range(kh) for j in range(kw)
        ]
    run_units = by_unit.shape[2] // len(runs)
    unit_at = np.add.outer(runs, np.arange(run_units) * dot.pixel_bytes).reshape(-1)
    float_zp = w.float_zp and not w.zp_is_exact

    row_blocks, column_blocks = -(-w.out.rows // block_h), -(-w.out.pixels // block_w)
    blocks = w.out.images * row_blocks * column_blocks

    total = max(pixels, tile.rows)
    at_outs, at_spills, at_bytes = 8 * total, 16 * total, 24 * total
    at_pixels = -(-(at_bytes + total * panel) // 64) * 64
    at_taps, tap_row, tap_pixel = at_pixels, w.stride[0] * pitch, w.stride[1] * pixel_bytes
    if gathered:
        at_taps, tap_pixel = at_pixels + region + SLACK, by_unit.shape[2] * dot.pixel_bytes
        tap_row = block_w * tap_pixel
    args = Arguments()
    block = args.block(
        kernel.GEMM,
        {"out": "out"},
        pack=compiled.address(pack, kind=w.x.kind, element=element, lanes=isa.lanes, fixed=0),
        pack_args=args.address(pack_block(args, w.x, w.in_zp, w.up)),
        gather=compiled.address(gather, element=dot.element, lines=kh, taps=kw, words=words, channels=inputs)
        if gathered
        else 0,
        unpack=compiled.address(unpack, kind=w.out.kind, fixed=0),
        unpack_args=args.address(unpack_block(args, w.out)),
        weight=args.address(weight),
        consts=args.address(in_panels(constant_rows(w, dot.offset, float_zp), groups, panel)),
        runs=args.address(np.array(runs, np.int64)),
        row_blocks=row_blocks,
        column_blocks=column_blocks,
        parts=groups * per_group,
        parts_per_group=per_group,
        panels=panels,
        panel_bytes=weight.size // (groups * panels),
        out_h=w.out.rows,
        out_w=w.out.pixels,
        block_h=block_h,
        block_w=block_w,
        stride_h=w.stride[0],
        stride_w=w.stride[1],
        pad_h=w.padding[0],
        pad_w=w.padding[1],
        reach_h=reach[0],
        reach_w=reach[1],
        in_words=words,
        pixel_bytes=pixel_bytes,
        pitch=pitch,
        tap_row=tap_row,
        tap_pixel=tap_pixel,
        run_count=len(runs),
        run_units=run_units,
        again=args.address(again.first),
        again_units=args.address(unit_at[again.units]),
        again_weight=args.address(again.weight),
        out_words=-(-channels // 4),
        direct=int(w.out.kind == ROWS),
        out_image=w.out.image_stride,
        out_row=w.out.row_stride,
        out_pixel=w.out.pixel_stride,
        at_outs=at_outs,
        at_spills=at_spills,
        at_bytes=at_bytes,
        at_pixels=at_pixels,
        at_taps=at_taps,
        **w.shared_fields(),
    )
    return args.job(
        name=name,
        kernel=compiled.address(
            kernel.gemm,
            dot=dot.name,
            lanes=isa.lanes,
            rows=tile.rows,
            vectors=tile.vectors,
            clamp=w.clamp,
            float_zp=float_zp,
        ),
        block=block,
        tasks=blocks * groups * per_group,
        scratch=at_taps + block_h * tap_row + SLACK if gathered else at_pixels + region,
    )


def pack_block(args: Arguments, x: View, zp: int, up: tuple[int, int], buffer: str = "x") -> np.ndarray:
    """Arguments of `pack` for an input."""
    return args.block(
        PACK,
        {"source": buffer},
        height=x.rows,
        width=x.pixels,
        image_stride=x.image_stride,
        row_stride=x.row_stride,
        quad_stride=x.quad_stride,
        pixel_stride=x.pixel_stride,
        word_stride=x.word_stride,
        border=(zp & 255) * 0x01010101,
        up_h=up[0],
        up_w=up[1],
    )


def unpack_block(args: Arguments, out: View, buffer: str = "out") -> np.ndarray:
    """Arguments of `unpack` for an output."""
    return args.block(
        UNPACK,
        {"out": buffer},
        image_stride=out.image_stride,
        row_stride=out.row_stride,
        quad_stride=out.quad_stride,
        pixel_stride=out.pixel_stride,
        word_stride=out.word_stride,
    )

"""Prepack a `ConvProblem` for the gemm kernel: register tile, blocks of pixels, weights, argument blocks.

The sizes below and the constants of the estimates come from layers timed by `python -m bench.peers`
on an AMD EPYC (Zen 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.conv_problem import ConvProblem, constant_rows, in_panels
from refsim.exec.cpu.dot import MADDUBS, MADDWD, Dot, lay_out, safe
from refsim.exec.cpu.gemm import kernel
from refsim.exec.cpu.gemm.gather import gather
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments, Job, Scratch
from refsim.exec.cpu.nhwc.kernel import BYTES_PER_WORD, S8

#: Packed input of a block, in bytes: about this much, so that it stays in the second-level cache beside the weights;
#: and its least and most pixels.
BLOCK_BYTES = 96 * 1024
LEAST_PIXELS, BLOCK_PIXELS = 24, 256
#: The most pixels of a register tile.
MAX_ROWS = 12
#: Copying a row of a window costs about as much as so many products of vectors.
GATHER_PRODUCTS = 2
#: Bytes that `gather` may read and write beyond the last window.
SLACK = 128
#: Route gemm8 is taken where its instructions are fewer than those of 16-bit products times this.
WORTH_IT = 1.15


@dataclass(frozen=True)
class RegisterTile:
    """A register tile: ``rows`` pixels by ``vectors`` vectors of output channels, whose sums stay in registers."""

    rows: int
    vectors: int


def tile_for(isa: Isa, dot: Dot, channels: int, pixels: int, vectors: int = 4) -> RegisterTile:
    """The register tile of at most so many vectors that takes the least time by estimate.

    Products beyond the last pixel and channel count as work, too.
    """

    def cost(tile: RegisterTile) -> float:
        steps = tile.rows * tile.vectors
        cycles = max(steps / 2, 5, (steps * dot.slots + tile.rows + tile.vectors) / 4)
        panels = -(-channels // (isa.lanes * tile.vectors))
        return cycles * panels * -(-pixels // tile.rows)

    fitting = [
        RegisterTile(rows, vectors)
        for vectors in range(min(4, vectors), 0, -1)
        for rows in range(1, MAX_ROWS + 1)
        if rows * vectors + vectors + dot.spare <= isa.registers
    ]
    return min(fitting, key=cost)


def _block(conv: ConvProblem, pixel_bytes: int) -> tuple[int, int]:
    """Rows and columns of a block of output pixels; columns in whole pixel4s, or all of them."""
    per_pixel = pixel_bytes * conv.stride[0] * conv.stride[1]
    target = max(LEAST_PIXELS, min(BLOCK_PIXELS, BLOCK_BYTES // per_pixel))
    width = conv.out.pixels
    if width > target:
        parts = -(-width // target)
        return (1, -(-width // parts // 4) * 4)
    return (max(1, min(conv.out.rows, target // width)), width)


def gathers(conv: ConvProblem, isa: Isa) -> bool:
    """Whether it pays to copy every window without the padding of its channels, so that fewer k4s are multiplied.

    The channels of a group fill words: nothing is saved there.
    """
    _, channels, kh, kw, inputs = conv.weight.shape
    words = -(-inputs // 4)
    if conv.dilation != (1, 1) or kw * words > isa.lanes:
        return False
    saved = kh * kw * words - -(-kh * kw * inputs // 4)
    return saved * -(-channels // isa.lanes) >= GATHER_PRODUCTS * kh


#: Cycles, for the estimate of `_shares`: to pack a channel word of a pixel; overhead of a pixel, a panel and a task.
PACK_WORD, PIXEL, PANEL, TASK = 0.3, 6.0, 60.0, 400.0


def _shares(
    conv: ConvProblem, tile: RegisterTile, panels: int, block: tuple[int, int], threads: int
) -> tuple[int, int]:
    """Rows of a block, and parts that a group's panels are in, so that several threads end soonest.

    Every part packs the block's input again; smaller blocks repeat the rows that windows share.
    """
    high, width = block
    if threads == 1:
        return high, 1
    groups, _, kh, kw, _ = conv.weight.shape
    words = -(-conv.weight.shape[4] // 4)
    column_blocks = -(-conv.out.pixels // width)
    columns = (width - 1) * conv.stride[1] + conv.extent[1]

    def cycles(rows: int, parts: int) -> float:
        tasks = conv.out.images * column_blocks * -(-conv.out.rows // rows) * groups * parts
        packed = ((rows - 1) * conv.stride[0] + conv.extent[0]) * columns * words
        tiles = -(-rows * width // tile.rows)
        steps = tiles * max(tile.rows * tile.vectors, 5) * kh * kw * words
        each = TASK + rows * width * PIXEL + packed * PACK_WORD + -(-panels // parts) * (PANEL + steps)
        return -(-tasks // threads) * each

    choices = [
        (rows, parts) for rows in range(high, 0, -1) for parts in range(1, min(panels, 4 * threads) + 1)
    ]
    return min(choices, key=lambda choice: cycles(*choice))


def _by_k4(conv: ConvProblem, gathered: bool) -> np.ndarray:
    """Weights by four: int8 (groups, channels, k4s, 4)."""
    groups, channels, *_ = conv.weight.shape
    taps = conv.weight.reshape(groups, channels, 1, -1) if gathered else conv.weight
    taps = np.pad(taps, [(0, 0)] * (taps.ndim - 1) + [(0, -taps.shape[-1] % 4)])
    return taps.reshape(groups, channels, -1, 4)


@dataclass(frozen=True)
class Residual:
    """What is left of weights that were split (`dot.safe`): k4s that some vectors of channels multiply once more.

    ``first``: for each vector of channels, the number of its first k4 in the other two arrays, and at the end their
    length. ``k4s``: the k4 of the window. ``weight``: int8 (k4s, lanes, 4).
    """

    first: np.ndarray
    k4s: np.ndarray
    weight: np.ndarray


def _split(by_k4: np.ndarray, dot: Dot, lanes: int, vectors: int) -> tuple[np.ndarray, Residual]:
    """Weights as the kernel multiplies them, and what it has to add to that."""
    if dot is not MADDUBS:
        none = np.zeros(0, np.int64)
        return by_k4, Residual(none, none, none)
    _, channels, k4s, _ = by_k4.shape
    spare = -channels % (lanes * vectors)
    first, rest = safe(by_k4)
    rest = np.pad(rest, [(0, 0), (0, spare), (0, 0), (0, 0)]).reshape(-1, lanes, k4s, 4).swapaxes(1, 2)
    needed = rest.any((2, 3))
    starts = np.concatenate([[0], needed.sum(1).cumsum()])
    return first, Residual(starts, needed.nonzero()[1], np.ascontiguousarray(rest[needed]))


def slower(conv: ConvProblem, isa: Isa) -> str | None:
    """Why products of bytes in 16 bits would not be faster than of 16-bit values, or None."""
    tile = tile_for(isa, MADDUBS, conv.weight.shape[1], BLOCK_PIXELS)
    by_k4 = _by_k4(conv, gathers(conv, isa))
    residual = _split(by_k4, MADDUBS, isa.lanes, tile.vectors)[1]
    once = (len(residual.first) - 1) * by_k4.shape[2]
    instructions = once * MADDUBS.slots + len(residual.k4s) * (MADDUBS.slots + 1)
    if instructions < WORTH_IT * once * MADDWD.slots * MADDWD.steps:
        return None
    return f"{len(residual.k4s) / once:.0%} of the k4s would be multiplied twice"


@dataclass(frozen=True)
class Cut:
    """How one thread computes a problem: windows ``gathered`` or not, ``block`` (rows, columns), register tile."""

    gathered: bool
    element: str
    block: tuple[int, int]
    tile: RegisterTile


def cut(conv: ConvProblem, isa: Isa, dot: Dot) -> Cut:
    """The cut of a problem; ``element`` is what its pixels are packed as."""
    _, channels, _, _, inputs = conv.weight.shape
    gathered = gathers(conv, isa)
    element = S8 if gathered else dot.element
    block = _block(conv, -(-inputs // 4) * BYTES_PER_WORD[element])
    return Cut(gathered, element, block, tile_for(isa, dot, channels, block[0] * block[1]))


def lower(
    name: str, conv: ConvProblem, isa: Isa, dot: Dot, threads: int, tile: RegisterTile | None = None
) -> Job:
    """The job of a convolution problem."""
    groups, channels, kh, kw, inputs = conv.weight.shape
    words = -(-inputs // 4)
    made = cut(conv, isa, dot)
    gathered, element, (block_h, block_w) = made.gathered, made.element, made.block
    pixel_bytes = words * BYTES_PER_WORD[element]
    tile = tile or made.tile
    panel = isa.lanes * tile.vectors
    panels = -(-channels // panel)
    block_h, per_group = _shares(conv, tile, panels, (block_h, block_w), threads)
    pixels = block_h * block_w
    extent = conv.extent
    columns = (block_w - 1) * conv.stride[1] + extent[1]
    pitch = columns * pixel_bytes
    region = ((block_h - 1) * conv.stride[0] + extent[0]) * pitch

    by_k4 = _by_k4(conv, gathered)
    taps, residual = _split(by_k4, dot, isa.lanes, tile.vectors)
    weight = np.concatenate([lay_out(dot, part, isa.lanes, tile.vectors) for part in taps])
    runs = [0] if gathered else _runs(conv, pitch, pixel_bytes)
    run_k4s = by_k4.shape[2] // len(runs)
    k4_at = np.add.outer(runs, np.arange(run_k4s) * dot.pixel_bytes).reshape(-1)

    row_blocks, column_blocks = -(-conv.out.rows // block_h), -(-conv.out.pixels // block_w)
    blocks = conv.out.images * row_blocks * column_blocks

    tap_row, tap_pixel = conv.stride[0] * pitch, conv.stride[1] * pixel_bytes
    if gathered:
        tap_pixel = by_k4.shape[2] * dot.pixel_bytes
        tap_row = block_w * tap_pixel
    out_bytes = panel * (4 if conv.float_out else 1)
    scratch = _scratch(max(pixels, tile.rows), out_bytes, region, block_h * tap_row if gathered else 0)
    args = Arguments()
    block = args.block(
        kernel.GEMM,
        {"out": "out"},
        **conv.side_fields(args, isa, element),
        gather=compiled.address(gather, element=dot.element, lines=kh, taps=kw, words=words, channels=inputs)
        if gathered
        else 0,
        weight=args.address(weight),
        consts=args.address(in_panels(constant_rows(conv, dot.offset), groups, panel)),
        runs=args.address(np.array(runs, np.int64)),
        panels=panels,
        panel_bytes=weight.size // (groups * panels),
        **conv.block_fields((conv.out.rows, conv.out.pixels), (block_h, block_w), per_group),
        in_words=words,
        pixel_bytes=pixel_bytes,
        pitch=pitch,
        tap_row=tap_row,
        tap_pixel=tap_pixel,
        run_count=len(runs),
        run_k4s=run_k4s,
        residual=args.address(residual.first),
        residual_k4s=args.address(k4_at[residual.k4s]),
        residual_weight=args.address(residual.weight),
        out_words=channels if conv.float_out else -(-channels // 4),
        **scratch.at,
        **conv.epilogue_fields(args),
    )
    entry = compiled.address(
        kernel.gemm,
        dot=dot.name,
        lanes=isa.lanes,
        rows=tile.rows,
        vectors=tile.vectors,
        **conv.epilogue_variant(float_out=conv.float_out, packs=isa.packs),
    )
    return args.job(name, entry, block, blocks * groups * per_group, scratch.nbytes)


def _scratch(pixels: int, out_bytes: int, region: int, gathered: int) -> Scratch:
    """For a block of ``pixels`` with so many ``out_bytes`` each; bytes of its packed ``region``, and of windows."""
    scratch = Scratch(8 * pixels)  # where each begins
    for name, nbytes in (("outs", 8), ("spills", 8), ("bytes", out_bytes)):
        scratch.part(name, nbytes * pixels, at_line=False)
    scratch.part("pixels", region)
    if gathered:
        scratch.nbytes += SLACK
        scratch.part("taps", gathered + SLACK, at_line=False)
    else:  # windows lie in the region
        scratch.at["at_taps"] = scratch.at["at_pixels"]
    return scratch


def _runs(conv: ConvProblem, pitch: int, pixel_bytes: int) -> list[int]:
    """Where in the packed pixels of a window the runs of bytes begin that its taps read."""
    (kh, kw), (dilation_h, dilation_w) = conv.kernel, conv.dilation
    columns = range(1 if dilation_w == 1 else kw)  # neighbours are one run
    return [i * dilation_h * pitch + j * dilation_w * pixel_bytes for i in range(kh) for j in columns]

"""Prepack a `ConvProblem` for tiles: blocks of pixels, how their lines are cut into tiles, weights, argument blocks.

The constants of the estimates come from layers timed by `python -m bench.peers` on an Intel Xeon with AMX
(Sapphire Rapids).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.amx import kernel
from refsim.exec.cpu.amx.tiles import COLUMNS, EMULATED_BYTES, ROW_BYTES, ROWS, Shapes
from refsim.exec.cpu.conv_problem import ConvProblem, constant_rows, in_panels
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments, Job, Scratch
from refsim.exec.cpu.nhwc.kernel import S8
from refsim.exec.cpu.strides import NHWC, PackedStrides
from refsim.exec.cpu.winograd import prepack as winograd

#: Packed input of a block, in bytes: about this much; and its most pixels, on one thread and on several: large images
#: of few channels may be a block for each thread.
BLOCK_BYTES = 256 * 1024
BLOCK_PIXELS, SHARED_PIXELS = 512, 1024
#: Bytes that may be read behind the input: of the last pixel's last chunk.
SLACK = 60
#: Cycles, for the estimates: a product of tiles, for each row, and at least for all products of a step together; to
#: load a tile out of the first, the second and the third cache; to requantize a vector of 16 sums.
PRODUCT, STEP, LOADS, VECTOR = 1.7, 52.0, (10.0, 20.0, 120.0), 8.0
#: Overhead of a group of tiles, a pixel, a panel and a task; to pack a channel word of a pixel.
GROUP, PIXEL, PANEL, TASK, PACK_WORD = 60.0, 3.0, 60.0, 600.0, 0.3
#: On several threads: to read a channel word that another thread has written; to load a tile out of a task's weights,
#: if they are so few bytes that they stay in the thread's second cache from run to run. Of eight choices timed on 16
#: processors with AMX these were the best, by 3 and 7 % of ResNet-50's medians on 16 and 8 threads.
FOREIGN_WORD, KEPT_LOAD, KEPT = 1.5, 48.0, 64 * 1024
#: Bytes that stay in the first cache beside others, and in the second.
NEAR, NEXT = 24 * 1024, 1024 * 1024
#: Of the direct product, for comparison: products of a cycle, and cycles for a vector of 16 sums.
DIRECT, DIRECT_VECTOR = 130.0, 6.0


@dataclass(frozen=True)
class TileWindow:
    """How a window lies in NHWC scratch: equal chunks of K, some to each run of neighbouring bytes.

    ``runs``: rows of taps and taps of a row, one of both if neighbours are one run.
    """

    runs: int
    run_bytes: int

    @property
    def chunks(self) -> int:
        """Chunks of a run."""
        return -(-self.run_bytes // ROW_BYTES)

    @property
    def k_bytes(self) -> int:
        """Bytes of a chunk: all are equal, and whole words."""
        return -(-self.run_bytes // (4 * self.chunks)) * 4

    @property
    def beyond(self) -> int:
        """Bytes that are loaded behind a window."""
        return self.chunks * self.k_bytes - self.run_bytes


@dataclass(frozen=True)
class TileCut:
    """How a block of pixels becomes tiles: ``block`` (rows, columns), ``flat`` lines, ``rows`` of a tile."""

    block: tuple[int, int]
    flat: bool
    rows: int


@dataclass(frozen=True)
class TileSizes:
    """What the sizes of a problem decide before it is cut into tasks."""

    conv: ConvProblem

    @cached_property
    def words(self) -> int:
        return -(-self.conv.weight.shape[4] // 4)

    @cached_property
    def window(self) -> TileWindow:
        _, _, kh, kw, _ = self.conv.weight.shape
        if self.conv.dilation[1] == 1:
            return TileWindow(kh, kw * self.words * 4)
        return TileWindow(kh * kw, self.words * 4)

    @cached_property
    def in_place(self) -> bool:
        """Whether the input is read as it lies: pixels at equal distances, each a window of its own."""
        conv, x, out = self.conv, self.conv.x, self.conv.out
        alone = conv.kernel == conv.stride == conv.input_dilation == (1, 1) and conv.padding == (0, 0)
        return alone and _even(x) and _even(out) and self.window.beyond <= SLACK

    @cached_property
    def size(self) -> tuple[int, int, int]:
        """Images, rows and columns of the output; as one row where it is read in place."""
        out = self.conv.out
        if self.in_place:
            return (1, 1, out.images * out.rows * out.pixels)
        return (out.images, out.rows, out.pixels)

    def cuts(self, block: tuple[int, int]) -> Iterator[TileCut]:
        """The ways to make tiles of a block."""
        high, wide = block
        yield TileCut(block, False, _tile_rows(wide))
        if high > 1 and self.conv.stride == (1, 1):
            yield TileCut(block, True, _tile_rows((high - 1) * self.span(wide) + wide))

    def span(self, wide: int) -> int:
        """Pixels from a row of a block to the next, in a line that has all rows."""
        return wide + self.conv.extent[1] - 1

    def tiles(self, cut: TileCut) -> int:
        high, wide = cut.block
        if cut.flat:
            return -(-((high - 1) * self.span(wide) + wide) // cut.rows)
        return high * -(-wide // cut.rows)

    @property
    def chunks(self) -> int:
        return self.window.runs * self.window.chunks

    def cycles(self, cut: TileCut, shapes: Shapes, panels: int, alone: bool) -> float:
        """Of a task with so many panels. Not ``alone``: each thread has caches of its own, into which it reads."""
        conv, (high, wide) = self.conv, cut.block
        h, w = ((n - 1) * s + e for n, s, e in zip(cut.block, conv.stride, conv.extent, strict=True))
        groups = -(-self.tiles(cut) // shapes.a)
        step = max(shapes.a * shapes.b * PRODUCT * cut.rows, STEP)
        near, following, far = LOADS
        # taps that overlap are read from afar once
        seen = conv.kernel[0] * conv.kernel[1]
        pixels = shapes.a * (near + (following - near) / seen if h * w * self.words * 4 > NEAR else near)
        panel = self.chunks * shapes.b * self.window.k_bytes * COLUMNS
        if alone:
            first = shapes.b * (following if conv.weight.nbytes <= NEXT else far)
        else:
            kept = panels * conv.weight.nbytes <= KEPT * conv.groups * -(
                -conv.weight.shape[1] // (COLUMNS * shapes.b)
            )
            first = shapes.b * (KEPT_LOAD if kept else far)
        again = shapes.b * (near if panel <= NEAR else following)
        products = max(step, pixels + first) + (groups - 1) * max(step, pixels + again)
        ends = groups * (GROUP + shapes.a * shapes.b * cut.rows * VECTOR)
        word = (0.0 if self.in_place else PACK_WORD) + (0.0 if alone else FOREIGN_WORD)
        packed = h * w * self.words * word
        return TASK + packed + high * wide * PIXEL + panels * (PANEL + self.chunks * products + ends)


def _even(x: PackedStrides) -> bool:
    """Whether pixels of a tensor lie at equal distances, in NHWC order."""
    return (
        x.kind == NHWC
        and (x.rows == 1 or x.row_stride == x.pixels * x.pixel_stride)
        and (x.images == 1 or x.image_stride == x.rows * x.pixels * x.pixel_stride)
    )


def _tile_rows(pixels: int) -> int:
    """Rows of a tile, so that the tiles of a line are as small as their number allows."""
    return -(-pixels // -(-pixels // ROWS))


#: Tiles of A and of B whose products are added at once, the best first.
SHAPES = ((2, 2), (1, 4), (4, 1), (1, 2), (2, 1), (1, 1))


@dataclass(frozen=True)
class Division:
    """A problem cut into tasks."""

    cut: TileCut
    shapes: Shapes
    per_group: int
    cycles: float


def divide(layout: TileSizes, threads: int) -> Division:
    """The division whose last thread ends soonest, by estimate."""
    return min(_divisions(layout, threads), key=lambda d: d.cycles)


def _divisions(layout: TileSizes, threads: int) -> Iterator[Division]:
    groups, channels, *_ = layout.conv.weight.shape
    images, out_h, out_w = layout.size
    cuts = dict.fromkeys(cut for block in _blocks(layout, threads) for cut in layout.cuts(block))
    for cut, (a, b) in product(cuts, SHAPES):
        row_blocks, column_blocks = -(-out_h // cut.block[0]), -(-out_w // cut.block[1])
        shapes = Shapes(a, b, cut.rows, layout.window.k_bytes)
        panels = -(-channels // (COLUMNS * b))
        for per_group in _shares(panels, 4 * threads if threads > 1 else 1):
            tasks = images * row_blocks * column_blocks * groups * per_group
            each = layout.cycles(cut, shapes, -(-panels // per_group), threads == 1)
            yield Division(cut, shapes, per_group, -(-tasks // threads) * each)


def _blocks(layout: TileSizes, threads: int) -> Iterator[tuple[int, int]]:
    """Sizes that a block may have: columns in whole pixel4s, or all of them."""
    conv = layout.conv
    _, out_h, out_w = layout.size
    pixels = SHARED_PIXELS if threads > 1 else BLOCK_PIXELS
    most = max(2 * ROWS, min(pixels, BLOCK_BYTES // (layout.words * 4 * conv.stride[0] * conv.stride[1])))
    least_parts = -(-out_w // most)
    for parts in range(least_parts, min(out_w, max(least_parts, 4 * threads if out_h == 1 else 1)) + 1):
        width = -(-out_w // parts)
        if parts > 1:
            width = -(-width // 4) * 4
        high = max(1, min(out_h, most // width))
        for count in _shares(out_h, out_h if threads > 1 else 1, -(-out_h // high)):
            yield -(-out_h // count), width


def _shares(size: int, most: int, least: int = 1) -> Iterator[int]:
    """Numbers of shares of a size, of those that leave the largest share the same only the least."""
    largest = 0
    for count in range(least, max(least, min(size, most)) + 1):
        if -(-size // count) != largest:
            largest = -(-size // count)
            yield count


def slower(conv: ConvProblem, isa: Isa) -> str | None:
    """Why another route is faster on one thread by an estimate in cycles, or None."""
    pixels = conv.out.images * conv.out.rows * conv.out.pixels
    if pixels == 1:
        return "one output pixel: bound by reading the weights"
    ours = divide(TileSizes(conv), 1).cycles
    vectors = conv.weight.shape[0] * -(-conv.weight.shape[1] // COLUMNS)
    others = {"the direct product": conv.macs / DIRECT + pixels * vectors * DIRECT_VECTOR}
    for m in (4, 2):
        if winograd.why_not(conv, m) is None:
            others[f"winograd{m}"] = winograd.cycles(conv, isa, m)
    name = min(others, key=lambda other: others[other])
    return None if ours < others[name] else f"{ours / others[name]:.2f} of the estimated time of {name}"


def lay_out(conv: ConvProblem, layout: TileSizes, shapes: Shapes) -> np.ndarray:
    """Weights as tiles of B, zero-padded, int8: group, panel, chunk, tile, k4, channel, and four bytes of K."""
    groups, channels, _, _, inputs = conv.weight.shape
    window, panel = layout.window, COLUMNS * shapes.b
    taps = np.pad(conv.weight, [(0, 0)] * 4 + [(0, -inputs % 4)])
    taps = taps.reshape(groups, channels, window.runs, window.run_bytes)
    panels = -(-channels // panel)
    padded = np.zeros((groups, panels * panel, window.runs, window.chunks * window.k_bytes), np.int8)
    padded[:, :channels, :, : window.run_bytes] = taps
    split = padded.reshape(groups, panels, shapes.b, COLUMNS, window.runs, window.chunks, -1, 4)
    ordered = split.transpose(0, 1, 4, 5, 2, 6, 3, 7)
    # a row of a tile that lies in two lines of memory takes six times as long to load
    block = np.empty(split.size + ROW_BYTES, np.int8)
    first = -block.ctypes.data % ROW_BYTES
    made = block[first : first + split.size].reshape(ordered.shape)
    made[...] = ordered
    return made


def chunk_places(conv: ConvProblem, layout: TileSizes, pitch: int) -> np.ndarray:
    """Where each chunk lies, from a window's first byte: int64."""
    window = layout.window
    _, _, kh, kw, _ = conv.weight.shape
    if window.runs == kh:
        runs = np.arange(kh, dtype=np.int64) * (conv.dilation[0] * pitch)
    else:
        runs = np.add.outer(
            np.arange(kh) * (conv.dilation[0] * pitch), np.arange(kw) * (conv.dilation[1] * layout.words * 4)
        ).reshape(-1)
    return np.add.outer(runs, np.arange(window.chunks) * window.k_bytes).reshape(-1).astype(np.int64)


def lower(name: str, conv: ConvProblem, isa: Isa, threads: int, emulated: bool) -> Job:
    """The job of a convolution problem."""
    layout = TileSizes(conv)
    made = divide(layout, threads)
    cut, shapes = made.cut, made.shapes
    groups, channels, *_ = conv.weight.shape
    window, words, extent = layout.window, layout.words, conv.extent
    images, out_h, out_w = layout.size
    block_h, block_w = cut.block
    pixel_bytes = conv.x.pixel_stride if layout.in_place else words * 4
    columns = (block_w - 1) * conv.stride[1] + extent[1]
    pitch = columns * pixel_bytes
    panel = COLUMNS * shapes.b
    panels = -(-channels // panel)
    weight = lay_out(conv, layout, shapes)
    row_blocks, column_blocks = -(-out_h // block_h), -(-out_w // block_w)
    tap_row, tap_pixel = conv.stride[0] * pitch, conv.stride[1] * pixel_bytes
    direct = conv.out.kind == NHWC
    span = layout.span(block_w) if cut.flat else block_w + ROWS
    out_words = channels if conv.float_out else -(-channels // 4)
    sums_bytes = 4 * panel * (shapes.a * ROWS + 4)
    beyond = ROWS * tap_pixel + ROW_BYTES + 2 * ROWS * 4
    region = 0 if layout.in_place else ((block_h - 1) * conv.stride[0] + extent[0]) * pitch
    out_bytes = panel * (4 if conv.float_out else 1)

    scratch = Scratch(8 * (ROWS + block_h * span + 2 * ROWS + ROWS))  # places of pixels
    scratch.part("tiles", 8 * kernel.TILE_WORDS * (layout.tiles(cut) + 1))
    scratch.part("sums", 2 * sums_bytes)
    scratch.part("junk", 4 * (out_words + panel), at_line=False)
    scratch.part("bytes", 0 if direct else block_h * block_w * out_bytes + 4 * panel)
    scratch.part("pixels", region + beyond)
    scratch.part("registers", EMULATED_BYTES if emulated else 0)

    args = Arguments()
    block = args.block(
        kernel.AMX,
        {"out": "out", "x": "x"},
        **conv.side_fields(args, isa, S8),
        weight=args.address(weight),
        consts=args.address(in_panels(constant_rows(conv, 0), groups, panel)),
        chunks=args.address(chunk_places(conv, layout, pitch)),
        config=args.address(shapes.config),
        panels=panels,
        panel_bytes=weight.size // (groups * panels),
        **conv.block_fields((out_h, out_w), cut.block, made.per_group),
        in_place=int(layout.in_place),
        in_words=words,
        pixel_bytes=pixel_bytes,
        pitch=pitch,
        tap_row=tap_row,
        tap_pixel=tap_pixel,
        chunk_count=window.runs * window.chunks,
        chunk_bytes=window.k_bytes * COLUMNS,
        tile_rows=cut.rows,
        flat=int(cut.flat),
        span=span,
        least=-ROWS if layout.in_place else 0,
        by_pixels=int(direct and weight.size // groups <= NEAR),
        out_words=out_words,
        sums_bytes=sums_bytes,
        **scratch.at,
        **conv.epilogue_fields(args),
    )
    entry = compiled.address(
        kernel.amx,
        emulated=emulated,
        packs=isa.packs and isa.lanes == COLUMNS,
        a_tiles=shapes.a,
        b_tiles=shapes.b,
        **conv.epilogue_variant(float_out=conv.float_out, cut=channels % panel > 0),
    )
    tasks = images * row_blocks * column_blocks * groups * made.per_group
    return args.job(name, entry, block, tasks, scratch.nbytes)

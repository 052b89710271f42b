"""Convolutions and matrix products by tiles: a block of output pixels against panels of output channels.

A task packs the input of a block of pixels to NHWC scratch, or reads it where it lies if it lies so already. Tiles of A
are loaded from there: a row is a pixel, and each 64 bytes of K (a *chunk*) lie at the same distance from every pixel.
Tiles of sums are stored, and requantized from there four vectors at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from refsim.exec.cpu.amx.tiles import COLUMNS, ROW_BYTES, ROWS, Emulated, Real, Shapes, Tiles, emulation
from refsim.exec.cpu.args import ArgLayout, LoadedArgs
from refsim.exec.cpu.epilogue import CONST_ROWS, NOTHING, Requant
from refsim.exec.cpu.gemm.block import BlockTask
from refsim.exec.cpu.ir import I32, I64, PTR, VOID, Function, ModuleText, Value, vec
from refsim.exec.cpu.narrow import VECTORS

#: Tasks: images x row blocks x column blocks x parts, parts fastest. A part is some panels of one group.
#: `x`: the input where it is read as it lies, `in_place` tells. `chunks`: where each chunk of a window lies.
#: A *line* is what tiles of A follow each other in: a row of the block (`lines` 0), or all of it, the `span` of pixels
#: from a row to the next counted, with what lies between them. `least`: where a line's first tile may begin.
#: `by_pixels`: all panels of a tile of A, then the next tile; else all tiles of a panel, then the next panel.
#: `direct`: the bytes go straight to `out` at `out_*` strides; `at_*` are places in scratch.
AMX = ArgLayout(
    "pack", "pack_args", "unpack", "unpack_args", "x", "weight", "consts", "chunks", "config", "out",
    "row_blocks", "column_blocks", "parts", "parts_per_group", "panels", "panel_bytes",
    "out_h", "out_w", "block_h", "block_w",
    "stride_h", "stride_w", "pad_h", "pad_w", "extent_h", "extent_w",
    "in_place", "in_words", "pixel_bytes", "pitch", "tap_row", "tap_pixel", "chunk_count", "chunk_bytes",
    "tile_rows", "flat", "span", "least", "by_pixels",
    "out_words", "direct", "out_image", "out_row", "out_pixel",
    "at_tiles", "at_sums", "sums_bytes", "at_junk", "at_bytes", "at_pixels", "at_registers",
    "inv", "low", "high", "zp", "then",
)  # fmt: skip

#: Words of a tile of A in the table of a block: where its first row lies, and its first pixel's place.
TILE_WORDS = 2


def amx(
    module: ModuleText,
    name: str,
    *,
    emulated: bool,
    packs: bool,
    a_tiles: int,
    b_tiles: int,
    clamp: str,
    float_zp: bool,
    float_out: bool,
    cut: bool,
    then: str = NOTHING,
) -> None:
    """Write the kernel for `a_tiles` tiles of pixels by `b_tiles` tiles of 16 channels.

    ``packs``: bytes are narrowed by instructions of x86. ``cut``: the last panel may have less words than others.
    """
    if emulated:
        emulation(module, name)
    panel = COLUMNS * b_tiles
    words = panel if float_out else panel // 4
    with AMX.kernel(module, name) as (fn, a, scratch, tasks):
        tiles: Tiles = Emulated(fn, name, scratch + a.at_registers) if emulated else Real(fn)
        shapes = Shapes(a_tiles, b_tiles)
        requant = Requant(fn, a, COLUMNS, clamp, float_zp, then)
        pixels, spilled, sums = (scratch + at for at in (a.at_pixels, a.at_bytes, a.at_sums))

        def task(t: Value) -> None:
            block_task = BlockTask.of(fn, a, t)
            height, width, group = block_task.height, block_task.width, block_task.group
            fn.when(a.in_place.eq(0), lambda: block_task.pack(pixels))
            here = a.pointer("x") + (block_task.column0 * a.pixel_bytes + group * a.in_words * 4)
            base = a.in_place.eq(1).select(here, pixels)
            corner = block_task.corner() + group * a.out_words * 4
            out = a.direct.eq(1).select(a.pointer("out") + corner, spilled)
            row_step = a.direct.eq(1).select(a.out_row, width * (4 * words))
            pixel_step = a.direct.eq(1).select(a.out_pixel, 4 * words)
            count = _tables(fn, a, scratch, height, width, out, row_step, pixel_step)
            first, last = block_task.panels()
            weights, constants = (
                a.pointer(what) + group * a.panels * size
                for what, size in (("weight", a.panel_bytes), ("consts", fn.i64(_consts_bytes(b_tiles))))
            )

            def entries(i: Value) -> list[Value]:
                """Of the tiles of A from a number on; the last one again where there are no more."""
                return [
                    scratch + (a.at_tiles + (i + m).min(count - 1) * (8 * TILE_WORDS)) for m in range(a_tiles)
                ]

            def finish(j: Value, i: Value, sums: Value) -> _Finish:
                consts = constants + j * _consts_bytes(b_tiles)
                return _Finish(
                    fn,
                    requant,
                    [
                        (requant.first(consts, v), *requant.terms(consts, 4 * panel, v))
                        for v in range(b_tiles)
                    ],
                    sums,
                    [scratch + fn.load(entry + 8, I64) for entry in entries(i)],
                    a.tile_rows,
                    a.direct.eq(1).select(j * (4 * words), 0),
                    a.out_words - j * words if cut else None,
                    packs,
                    float_out,
                )

            def unpack(j: Value) -> None:
                block_task.unpack(spilled, j * words, words, row_step)

            def step(n: Value, j: Value, i: Value, j_before: Value, i_before: Value) -> list[Value]:
                """Multiply some tiles, and requantize the sums before them meanwhile."""
                now, before = (
                    finish(*at, sums + (n + turn & 1) * a.sums_bytes)
                    for turn, at in enumerate(((j, i), (j_before, i_before)))
                )
                wanted = (n > 0).select(before.units, 0)

                def between(first: Value, end: Value) -> None:
                    def unit(e: Value) -> None:
                        now.expect(e)
                        before.unit(e)

                    fn.loop(end, unit, start=first)

                def multiply() -> None:
                    at = [base + fn.load(entry, I64) for entry in entries(i)]
                    _multiply(
                        fn, a, tiles, shapes, at, weights + j * a.panel_bytes, now.sums, wanted, between
                    )

                fn.when(n < rounds, multiply, lambda: fn.loop(wanted, before.unit))
                spills = (n > 0).select((i_before + a_tiles >= count).select(a.direct.eq(0), 0), 0)
                fn.when(spills, lambda: unpack(j_before))
                return [*following(j, i), j, i]

            def following(j: Value, i: Value) -> tuple[Value, Value]:
                """The panel and the tile after these."""
                next_j, next_i = j + 1, i + a_tiles
                turn = a.by_pixels.eq(1).select(next_j >= last, next_i >= count)
                back_j, back_i = a.by_pixels.eq(1).select(first, next_j), a.by_pixels.eq(1).select(next_i, 0)
                on_j, on_i = a.by_pixels.eq(1).select(next_j, j), a.by_pixels.eq(1).select(i, next_i)
                return turn.select(back_j, on_j), turn.select(back_i, on_i)

            zero = fn.i64(0)
            rounds = (last - first) * ((count + (a_tiles - 1)) // a_tiles)
            fn.loop((last > first).select(rounds + 1, 0), step, [first, zero, first, zero])

        tiles.configure(a.pointer("config"))
        tasks.each(task)
        tiles.release()


def _consts_bytes(b_tiles: int) -> int:
    """Of a panel's constants."""
    return CONST_ROWS * 4 * COLUMNS * b_tiles


def _tables(
    fn: Function,
    a: LoadedArgs,
    scratch: Value,
    height: Value,
    width: Value,
    out: Value,
    row_step: Value,
    pixel_step: Value,
) -> Value:
    """Store where each pixel's bytes go and where each tile of A lies; gives the number of tiles.

    Places begin with those of a tile's rows before the first pixel. What is no pixel of the block goes to junk.
    """
    junk = scratch + a.at_junk

    def fill(first: Value, last: Value) -> None:
        fn.loop(last, lambda p: fn.store(junk, scratch + p * 8), start=first)

    def row(r: Value) -> None:
        at = r * a.span + ROWS
        begin = out + r * row_step
        fn.loop(width, lambda c: fn.store(begin + c * pixel_step, scratch + (at + c) * 8))
        fill(at + width, at + a.span)

    fill(fn.i64(0), fn.i64(ROWS))
    fn.loop(height, row)
    flat = a.flat.eq(1)
    end = height * a.span + ROWS
    fill(end, end + 2 * ROWS)
    length = flat.select((height - 1) * a.span + width, width)
    per_line = (length + (a.tile_rows - 1)) // a.tile_rows

    def line(r: Value) -> None:
        def tile(i: Value) -> None:
            p = (i * a.tile_rows).min(length - a.tile_rows).max(a.least)
            entry = scratch + (a.at_tiles + (r * per_line + i) * (8 * TILE_WORDS))
            fn.store(r * a.tap_row + p * a.tap_pixel, entry)
            fn.store((r * a.span + p + ROWS) * 8, entry + 8)

        fn.loop(per_line, tile)

    lines = flat.select(1, height)
    fn.loop(lines, line)
    return lines * per_line


class _Finish:
    """Requantizes the sums of some tiles of A, in units of as many rows as make a vector of bytes.

    Each row goes where its pixel's bytes go, no more than `left` words of it.
    """

    def __init__(
        self,
        fn: Function,
        requant: Requant,
        terms: list[tuple[Value, ...]],
        sums: Value,
        places: list[Value],
        rows: Value,
        to: Value,
        left: Value | None,
        packs: bool,
        float_out: bool,
    ) -> None:
        self.fn, self.requant, self.terms, self.sums, self.places = fn, requant, terms, sums, places
        self.to, self.left, self.packs, self.float_out = to, left, packs, float_out
        self.at_once = 1 if float_out else max(1, VECTORS // len(terms))
        self.of_tile = (rows + (self.at_once - 1)) // self.at_once
        self.units = self.of_tile * len(places)
        self.row_bytes = 4 * COLUMNS * len(terms)
        self.unit_bytes = self.row_bytes * self.at_once

    def _at(self, e: Value) -> tuple[Value, Value]:
        """The places and the sums of a unit."""
        places, sums = self.places[0] + e * (8 * self.at_once), self.sums + e * self.unit_bytes
        for m in range(1, len(self.places)):
            own = e - self.of_tile * m
            here = own >= 0
            places = here.select(self.places[m] + own * (8 * self.at_once), places)
            sums = here.select(self.sums + (m * ROWS * self.row_bytes) + own * self.unit_bytes, sums)
        return places, sums

    def expect(self, e: Value) -> None:
        """Ask for the memory that a unit will write."""
        places, _ = self._at(e)
        for m in range(self.at_once):
            self.fn.prefetch(self.fn.load(places + m * 8, PTR) + self.to, level=1, write=True)

    def unit(self, e: Value) -> None:
        fn, b, row_bytes = self.fn, len(self.terms), self.row_bytes
        places, sums = self._at(e)
        reals = []
        for m in range(self.at_once):
            for v, (start, *terms) in enumerate(self.terms):
                total = fn.load(sums + (m * row_bytes + v * ROW_BYTES), start.type) + start
                reals.append(self.requant.real(total, tuple(terms)))
        at = [fn.load(places + m * 8, PTR) + self.to for m in range(self.at_once)]
        if self.float_out:
            for v, real in enumerate(reals):
                self._put(real.bits(vec(I32, COLUMNS)), at[0], v * COLUMNS)
            return
        reals += reals[-1:] * (VECTORS - len(reals))
        narrow = self.requant.narrowed(reals, self.packs, True)
        made, words = narrow.bits(vec(I32, COLUMNS)), COLUMNS * b // 4
        for m in range(self.at_once):
            self._put(made.shuffle(range(m * words, (m + 1) * words)), at[m], 0)

    def _put(self, made: Value, pixel: Value, word: int) -> None:
        """Store words of a pixel, the first of which has that number."""
        fn, place, lanes = self.fn, pixel + 4 * word, made.type.lanes
        if self.left is None:
            fn.store(made, place)
            return
        mask = fn.vector(range(word, word + lanes), I32) < self.left.trunc(I32).splat(lanes)
        fn.call(f"llvm.masked.store.v{lanes}i32.p0", VOID, made, place, fn.const(1, I32), mask)


def _multiply(
    fn: Function,
    a: LoadedArgs,
    tiles: Tiles,
    shapes: Shapes,
    at: list[Value],
    weight: Value,
    sums: Value,
    wanted: Value,
    between: Callable[[Value, Value], None],
) -> None:
    """Store the sums of some tiles of pixels and of a panel's channels, by tile of A, then by pixel.

    ``between``: so many (``wanted``) other things to do, from a number to another, while tiles are multiplied.
    """
    whole, panel_row = fn.i64(ROW_BYTES), fn.i64(shapes.b * ROW_BYTES)
    for tile in range(shapes.a * shapes.b):
        tiles.zero(tile)
    share = (wanted + (a.chunk_count - 1)) // a.chunk_count

    def store(i: int, j: int) -> None:
        tiles.store(shapes.sums(i, j), sums + (i * ROWS * shapes.b + j) * ROW_BYTES, panel_row)

    def chunk(k: Value, w: Value, stored: bool = False) -> Value:
        offset = fn.load(a.pointer("chunks") + k * 8, I64)
        ready: list[tuple[int, int]] = []
        for j in range(shapes.b):
            tiles.load(shapes.weights(j), w, whole)
            for i in range(shapes.a):
                if j == 0:
                    tiles.load(shapes.pixels(i), at[i] + offset, a.tap_pixel)
                tiles.multiply(shapes.sums(i, j), shapes.pixels(i), shapes.weights(j))
                ready.append((i, j))
                if stored and len(ready) > 1:  # the product before: the last one takes a while
                    store(*ready.pop(0))
            w = w + a.chunk_bytes
        if stored:
            store(*ready.pop())
        return w

    def step(k: Value, w: Value, done: Value) -> list[Value]:
        w, following = chunk(k, w), (done + share).min(wanted)
        between(done, following)
        return [w, following]

    # the last chunk stands alone: storing each sum between its products takes less time than storing all at the end
    last = a.chunk_count - 1
    w, done = fn.loop(last, step, [weight, fn.i64(0)])
    chunk(last, w, stored=True)
    between(done, wanted)

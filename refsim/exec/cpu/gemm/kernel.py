"""Convolutions and matrix products: a block of output pixels against panels of output channels.

A task packs the input of a block of pixels to NHWC scratch once, and copies each pixel's window where that saves
products (gather.py). Then it multiplies the block by panels of weights, a register tile at a time, and requantizes
each tile while it is in registers. Where the output's layout is not NHWC, or the last channel cuts a panel off, the
bytes go through scratch and `unpack`. A float output is stored as it is; each channel is a word then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from refsim.exec.cpu.args import ArgLayout, LoadedArgs
from refsim.exec.cpu.dot import DOTS, MADDUBS, STEP_BYTES, Dot, accumulate, weights_at
from refsim.exec.cpu.epilogue import CONST_ROWS, NOTHING, Requant
from refsim.exec.cpu.gemm.block import BlockTask
from refsim.exec.cpu.ir import I64, Function, ModuleText, Value
from refsim.exec.cpu.job import LINE_BYTES

#: Tasks: images x row blocks x column blocks x parts, parts fastest. A part is some panels of one group.
#: `at_*` are places in scratch; `direct` tells that full panels go straight to `out` at `out_*` strides.
#: `tap_*`: from the first tap of an output pixel to the next one's; with `gather` these are windows on their own.
#: `residual`, `residual_k4s`, `residual_weight`: for each vector of channels its first k4 that is multiplied once more;
#: where each of those k4s lies; by which weights (prepack.Residual).
GEMM = ArgLayout(
    "pack", "pack_args", "gather", "unpack", "unpack_args", "weight", "consts", "runs", "out",
    "row_blocks", "column_blocks", "parts", "parts_per_group", "panels", "panel_bytes",
    "out_h", "out_w", "block_h", "block_w",
    "stride_h", "stride_w", "pad_h", "pad_w", "extent_h", "extent_w",
    "in_words", "pixel_bytes", "pitch", "tap_row", "tap_pixel", "run_count", "run_k4s",
    "residual", "residual_k4s", "residual_weight",
    "out_words", "direct", "out_image", "out_row", "out_pixel",
    "at_outs", "at_spills", "at_bytes", "at_pixels", "at_taps",
    "inv", "low", "high", "zp", "then",
)  # fmt: skip


def gemm(
    module: ModuleText,
    name: str,
    *,
    dot: str,
    lanes: int,
    rows: int,
    vectors: int,
    clamp: str,
    float_zp: bool,
    float_out: bool,
    packs: bool,
    then: str = NOTHING,
) -> None:
    """Write the kernel for register tiles of `rows` pixels by `vectors` vectors of output channels.

    ``packs``: bytes are narrowed by instructions of x86.
    """
    panel = lanes * vectors
    words = panel if float_out else panel // 4
    with GEMM.kernel(module, name) as (fn, a, scratch, tasks):
        requant = Requant(fn, a, lanes, clamp, float_zp, then)
        pixels, taps, spilled = (scratch + at for at in (a.at_pixels, a.at_taps, a.at_bytes))

        def task(t: Value) -> None:
            block_task = BlockTask.of(fn, a, t)
            height, width, group = block_task.height, block_task.width, block_task.group
            block_task.pack(pixels)

            def gather() -> None:
                fn.call_pointer(
                    a.pointer("gather"),
                    pixels,
                    taps,
                    height,
                    width,
                    a.stride_h * a.pitch,
                    a.stride_w * a.pixel_bytes,
                    a.pitch,
                    a.tap_row,
                    a.tap_pixel,
                )

            fn.when(a.gather.eq(0), lambda: None, gather)
            count = height * width
            _offsets(block_task, scratch, 4 * words, rows)
            first, last = block_task.panels()

            def each_panel(j: Value) -> None:
                word0 = j * words
                full = word0 + words <= a.out_words
                direct = full.select(a.direct.eq(1), 0)
                to = direct.select(a.pointer("out") + (group * a.out_words + word0) * 4, spilled)
                places = scratch + direct.select(a.at_outs, a.at_spills)
                number = group * a.panels + j
                weight = a.pointer("weight") + number * a.panel_bytes
                consts = a.pointer("consts") + number * (CONST_ROWS * 4 * panel)
                terms = [requant.terms(consts, 4 * panel, v) for v in range(vectors)]
                tiles = (count + (rows - 1)) // rows

                def ahead(i: Value) -> Value:
                    """Tiles take turns in asking for the next panel; too few for all lines would only slow down."""
                    return (tiles >= vectors).select(a.panel_bytes + i % vectors * LINE_BYTES, 0)

                def tile(i: Value) -> None:
                    p = (i * rows).min(count - rows).max(0)
                    totals = _sums(
                        fn,
                        a,
                        DOTS[dot],
                        requant,
                        vectors,
                        rows,
                        p,
                        scratch,
                        taps,
                        weight,
                        consts,
                        number,
                        ahead(i),
                    )
                    reals = [[requant.real(total, terms[v]) for v, total in enumerate(row)] for row in totals]
                    made = reals if float_out else [[row] for row in requant.in_rows(reals, packs)]
                    for m, row in enumerate(made):
                        at = to + fn.load(places + (p + m) * 8, I64)
                        for v, one in enumerate(row):
                            fn.store(one, at + v * (4 * lanes))

                fn.loop(tiles, tile)

                def spill() -> None:
                    block_task.unpack(spilled, word0, words, width * (4 * words))

                fn.when(direct, lambda: None, spill)

            fn.loop(last, each_panel, start=first)

        tasks.each(task)


def _sums(
    fn: Function,
    a: LoadedArgs,
    dot: Dot,
    requant: Requant,
    vectors: int,
    rows: int,
    p: Value,
    scratch: Value,
    taps: Value,
    weight: Value,
    consts: Value,
    number: Value,
    ahead: Value,
) -> list[list[Value]]:
    """The sums of a register tile: per pixel, per vector of channels of a panel."""
    base = [taps + fn.load(scratch + (p + m) * 8, I64) for m in range(rows)]
    start = [requant.first(consts, v) for v in range(vectors)]

    def run(r: Value, w: Value, *totals: Value) -> list[Value]:
        offset = fn.load(a.pointer("runs") + r * 8, I64)
        before = [list(totals[m * vectors : (m + 1) * vectors]) for m in range(rows)]
        if rows == 1:
            made, w = _streams(fn, dot, base[0], w, offset, a.run_k4s, before[0])
            return [w, *made]
        sums, w = product(fn, dot, base, w, offset, a.run_k4s, before, ahead)
        return [w, *(total for row in sums for total in row)]

    _, *totals = fn.loop(a.run_count, run, [weight, *(start * rows)])
    sums = [list(totals[m * vectors : (m + 1) * vectors]) for m in range(rows)]
    if dot is MADDUBS:
        _residual(fn, a, dot, base, number * vectors, sums)
    return sums


def _streams(
    fn: Function,
    dot: Dot,
    pixel: Value,
    weight: Value,
    offset: Value,
    k4s: Value,
    start: Sequence[Value],
    streams: int = 2,
) -> tuple[list[Value], Value]:
    """Like `product` for one pixel, but several equal parts of the weights at the same time.

    Each weight is used once then, so reading them is what takes the time: nothing is asked for ahead, which took a
    fifth to a third more.
    """
    vectors, lanes = len(start), start[0].type.lanes
    part = k4s // streams
    far, skip = part * dot.pixel_bytes, part * (dot.weight_bytes * lanes * vectors)

    def step(k: Value, w: Value, *totals: Value) -> list[Value]:
        made = [w + dot.weight_bytes // dot.steps * lanes * vectors]
        for n in range(streams):
            weights = weights_at(fn, dot, w + skip * n, lanes, vectors)
            own = totals[n * vectors : (n + 1) * vectors]
            made += accumulate(fn, dot, own, pixel + (k + far * n), weights)
        return made

    zero = [fn.const(0, start[0].type)] * (vectors * (streams - 1))
    at, *totals = fn.loop(offset + far, step, [weight, *start, *zero], start=offset, step=STEP_BYTES)
    sums = [reduce(Value.__add__, totals[v::vectors]) for v in range(vectors)]
    left = k4s - part * streams
    rest, at = product(fn, dot, [pixel], at + skip * (streams - 1), offset + far * streams, left, [sums])
    return rest[0], at


def _residual(
    fn: Function, a: LoadedArgs, dot: Dot, base: Sequence[Value], column: Value, sums: list[list[Value]]
) -> None:
    """Add products of the residual weights to the sums of a panel, whose first vector of channels has that number."""
    for v in range(len(sums[0])):
        place = a.pointer("residual") + (column + v) * 8

        def step(i: Value, *totals: Value) -> list[Value]:
            offset = fn.load(a.pointer("residual_k4s") + i * 8, I64)
            at = a.pointer("residual_weight") + i * (dot.weight_bytes * totals[0].type.lanes)
            made, _ = product(fn, dot, base, at, offset, fn.i64(1), [[total] for total in totals])
            return [total for row in made for total in row]

        done = fn.loop(fn.load(place + 8, I64), step, [row[v] for row in sums], start=fn.load(place, I64))
        for row, total in zip(sums, done, strict=True):
            row[v] = total


def product(
    fn: Function,
    dot: Dot,
    pixels: Sequence[Value],
    weight: Value,
    offset: Value,
    k4s: Value,
    start: Sequence[Sequence[Value]],
    ahead: Value | None = None,
) -> tuple[list[list[Value]], Value]:
    """Add to the sums of some pixels (rows of vectors) the products of neighbouring k4s.

    The k4s of every pixel begin `offset` bytes behind its pointer, the weights at `weight`, which is returned too,
    moved on. A line that lies `ahead` of each step's is asked for, for later.
    """
    vectors, lanes = len(start[0]), start[0][0].type.lanes
    step_bytes = dot.weight_bytes // dot.steps * lanes * vectors

    # one step of a k4 at a time: two would need more registers than there are
    def step(k: Value, w: Value, *totals: Value) -> list[Value]:
        if ahead is not None:
            fn.prefetch(w + ahead, level=2)
        weights = weights_at(fn, dot, w, lanes, vectors)
        sums: list[Value] = []
        for m, pixel in enumerate(pixels):
            sums += accumulate(fn, dot, totals[m * vectors : (m + 1) * vectors], pixel + k, weights)
        return [w + step_bytes, *sums]

    flat = [total for row in start for total in row]
    end = offset + k4s * dot.pixel_bytes
    weight, *totals = fn.loop(end, step, [weight, *flat], start=offset, step=STEP_BYTES)
    return [totals[m * vectors : (m + 1) * vectors] for m in range(len(start))], weight


def _offsets(of: BlockTask, scratch: Value, spill_bytes: int, rows: int) -> None:
    """Store where the first tap of each pixel of the block lies, and where its bytes go, directly and by way of
    scratch.

    Fewer pixels than a tile has are filled up with the last one.
    """
    fn, a, height, width = of.fn, of.a, of.height, of.width
    corner = of.corner()

    def pixel(p: Value, r: Value, c: Value, n: Value) -> None:
        fn.store(r * a.tap_row + c * a.tap_pixel, scratch + p * 8)
        fn.store(corner + r * a.out_row + c * a.out_pixel, scratch + a.at_outs + p * 8)
        fn.store(n * spill_bytes, scratch + a.at_spills + p * 8)

    def row(r: Value) -> None:
        fn.loop(width, lambda c: pixel(r * width + c, r, c, r * width + c))

    fn.loop(height, row)
    count = height * width
    fn.loop(fn.i64(rows), lambda p: pixel(p, height - 1, width - 1, count - 1), start=count)

"""Depthwise convolution: 16 channels for every 128 bits of a vector, taps of a row side by side in each lane.

A task computes some rows of a group of channels. Every row of the input is turned into *k4s* once, and a ring of
scratch keeps as many such rows as a window needs. A k4 holds, for each channel, the bytes of four neighbouring columns
in one 32-bit lane (or of two, as 16-bit values); there is one at every even column. An output at an even column
multiplies k4s by the weights as they are, one at an odd column by weights moved by one tap. Taps of a k4 outside the
window have weight 0.

Bytes are interleaved, and sums narrowed, inside the 128-bit pieces of vectors (narrow.py). Both keep the same channels
in a piece, so that the channels of an output pixel come out in order.

A group of few channels does not fill a vector. Then the columns of a row are divided into ranges, two or four, and a
vector has the same channels of a pixel of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refsim.exec.cpu.args import ArgLayout, LoadedArgs
from refsim.exec.cpu.dot import DOTS, DPBUSD, Dot, dpbusd, madd_pairs
from refsim.exec.cpu.epilogue import CONST_ROWS, NOTHING, Requant
from refsim.exec.cpu.ir import I8, I16, I32, Function, ModuleText, Value, vec
from refsim.exec.cpu.narrow import VECTORS

#: Tasks: images x row blocks x groups of channels, groups fastest. The last group ends at the last channel and may
#: overlap the one before, with the same bytes. Where a tensor is not in an NHWC layout (`direct_in`, `direct_out`
#: are 0), its region goes through scratch, as pixels of `group_words` words. `border` points at a pixel of zero points.
#: Pixels beyond the last column are stored at `at_none`. `range_w`: columns of the output from a range to the next,
#: `range_columns` of the input. `ring`: rows of k4s, a power of two, less one.
DEPTHWISE = ArgLayout(
    "x", "x_image", "x_row", "x_pixel", "height", "width",
    "out", "out_image", "out_row", "out_pixel", "out_h", "out_w",
    "pack", "pack_args", "unpack", "unpack_args", "direct_in", "direct_out", "group_words", "columns",
    "weight", "consts", "border", "row_blocks", "block_h", "groups", "first", "last_channel",
    "stride_h", "pad_h", "pad_w", "extent_h", "dilation_h", "k4s", "ring", "k4_pitch", "range_w", "range_columns",
    "at_in", "at_out", "at_none",
    "inv", "low", "high", "zp", "then",
)  # fmt: skip

#: Output pixels that are computed together; fewer where a window takes more than `MANY_VECTORS` vectors of weights,
#: which the registers would not hold.
PIXELS, FEW_PIXELS = 4, 2
MANY_VECTORS = 12
#: The most vectors of weights whose products are written out one by one; a kernel for more has loops over the window.
MAX_VECTORS = 64


def taps_of_k4(dot: Dot) -> int:
    """Neighbouring columns that a k4 holds."""
    return 4 if dot is DPBUSD else 2


def k4s_for(dot: Dot, extent: int, parity: int) -> int:
    """K4s that a row of a window needs which begins at an even (0) or odd (1) column."""
    return -(-(extent + parity) // taps_of_k4(dot))


def parities(stride: int) -> tuple[int, ...]:
    """Columns modulo 2 at which windows begin."""
    return (0, 1) if stride % 2 else (0,)


def is_long(dot: Dot, taps_h: int, extent: int, stride: int) -> bool:
    """Whether the kernel has loops over the rows and the k4s of a window."""
    return taps_h * sum(k4s_for(dot, extent, parity) for parity in parities(stride)) > MAX_VECTORS


def pixels_together(dot: Dot, taps_h: int, extent: int, stride: int) -> int:
    """Output pixels that the kernel computes at a time."""
    most = max(taps_h * k4s_for(dot, extent, parity) for parity in parities(stride))
    return PIXELS if most <= MANY_VECTORS else FEW_PIXELS


def depthwise(
    module: ModuleText,
    name: str,
    *,
    dot: str,
    lanes: int,
    ranges: int,
    words: int,
    taps_h: int,
    extent_w: int,
    stride_w: int,
    clamp: str,
    float_zp: bool,
    packs: bool,
    then: str = NOTHING,
) -> None:
    """Write the kernel for one height of window, one width that it spans, and one horizontal stride.

    ``words``: channel words of a group, `lanes` / ``ranges`` of them or fewer if the tensor has no more.
    """
    kind = DOTS[dot]
    counts = {parity: k4s_for(kind, extent_w, parity) for parity in parities(stride_w)}
    vectors_of = taps_h * sum(counts.values())
    long = is_long(kind, taps_h, extent_w, stride_w)
    pixels = pixels_together(kind, taps_h, extent_w, stride_w)
    size = 4 * lanes  # of a vector, in bytes
    own = size // ranges  # channels of a group
    with DEPTHWISE.kernel(module, name) as (fn, a, scratch, tasks):
        requant = Requant(fn, a, lanes, clamp, float_zp, then)
        border = fn.load(a.pointer("border"), vec(I8, own))

        def task(t: Value) -> None:
            group, rest = t % a.groups, t // a.groups
            row0, image = rest % a.row_blocks * a.block_h, rest // a.row_blocks
            rows = a.block_h.min(a.out_h - row0)
            channel0 = (a.first + group * own).min(a.last_channel)
            weight = a.pointer("weight") + group * (VECTORS * vectors_of * size)
            consts = a.pointer("consts") + group * (CONST_ROWS * VECTORS * size)
            top = row0 * a.stride_h - a.pad_h
            region = (rows - 1) * a.stride_h + a.extent_h

            def pack() -> None:
                fn.call_pointer(
                    a.pointer("pack"), a.pointer("pack_args"), image, top, region, fn.i64(0) - a.pad_w, a.columns,
                    channel0.shr(2), a.group_words, scratch + a.at_in, a.columns * a.group_words * 4,
                )  # fmt: skip

            inside = a.direct_in.eq(1)
            fn.when(inside, lambda: None, pack)
            corner = a.pointer("x") + (image * a.x_image + top * a.x_row - a.pad_w * a.x_pixel + channel0)
            pixel_bytes = inside.select(a.x_pixel, a.group_words * 4)
            source = _Source(
                fn, a, kind, border, ranges,
                at=inside.select(corner, scratch + a.at_in),
                row_bytes=inside.select(a.x_row, a.columns * a.group_words * 4),
                pixel_bytes=pixel_bytes,
                rows=(inside.select(fn.i64(0) - top, 0), inside.select(a.height, region)),
                columns=(inside.select(a.pad_w, 0), inside.select(a.width, a.columns)),
            )  # fmt: skip

            direct = a.direct_out.eq(1)
            target = a.pointer("out") + (image * a.out_image + row0 * a.out_row + channel0)
            to = direct.select(target, scratch + a.at_out)
            pixel_step = direct.select(a.out_pixel, a.group_words * 4)
            row_step = direct.select(a.out_row, a.out_w * a.group_words * 4)

            def ring(row: Value) -> Value:
                return scratch + (row & a.ring) * a.k4_pitch

            def out_row(r: Value, made: Value) -> Value:
                """Rows are counted from the task's first one, of the output and of the input."""
                begins = r * a.stride_h
                needed = begins + a.extent_h
                fn.loop(needed, lambda row: source.make_k4s(row, ring(row)), start=made.max(begins))
                lines = [] if long else [ring(begins + a.dilation_h * i) for i in range(taps_h)]
                place = to + r * row_step

                def chunk(j: Value) -> None:
                    # of the first pixel; a row of windows moves by whole k4s in two pixels
                    k4 = j * stride_w // 2 * (VECTORS * size)
                    base = [line + k4 for line in lines]
                    sums = looped(begins, k4) if long else [unrolled(v, base) for v in range(VECTORS)]
                    found = [reals(v, totals) for v, totals in enumerate(sums)]
                    for p in range(pixels):
                        done = requant.narrowed([vector[p] for vector in found], packs, False)
                        for part in range(ranges):
                            column = j + (a.range_w * part + p)
                            first = part * own
                            kept = (
                                done if 4 * words == size else done.shuffle(range(first, first + 4 * words))
                            )
                            at = place + column * pixel_step
                            # no branch: or this pixel would be computed on its own behind it
                            there = (column < a.out_w).select(at, scratch + a.at_none)
                            fn.store(kept, there if p or part else at)

                def reals(v: int, totals: Sequence[Value]) -> list[Value]:
                    """Of the channels in vector v: the real values of all pixels."""
                    terms = requant.terms(consts, VECTORS * size, v)
                    return [requant.real(total, terms) for total in totals]

                def unrolled(v: int, base: Sequence[Value]) -> list[Value]:
                    """Of the channels in vector v: the sums of all pixels."""
                    first = requant.first(consts, v)
                    found = []
                    for p in range(pixels):
                        column = p * stride_w
                        parity = column % 2
                        number = taps_h * counts[0] if parity else 0
                        total = first
                        for line in base:
                            for q in range(counts[parity]):
                                k4 = column // 2 + q * (taps_of_k4(kind) // 2)
                                data = fn.load(line + (k4 * VECTORS + v) * size, vec(I32, lanes))
                                taps = fn.load(weight + (number * VECTORS + v) * size, vec(I32, lanes))
                                total = _step(fn, kind, total, data, taps)
                                number += 1
                        found.append(total)
                    return found

                def looped(begins: Value, k4: Value) -> list[list[Value]]:
                    """The sums of all pixels, by vector."""
                    k4_bytes = VECTORS * size
                    held = [requant.first(consts, v) for v in range(VECTORS) for _ in range(pixels)]

                    def each_row(i: Value, *before: Value) -> list[Value]:
                        line, totals = ring(begins + a.dilation_h * i) + k4, list(before)
                        for parity, count in counts.items():
                            alike = [p for p in range(pixels) if p * stride_w % 2 == parity]
                            numbers = [v * pixels + p for v in range(VECTORS) for p in alike]
                            begin = taps_h * counts[0] if parity else 0
                            row = weight + (i * count + begin) * k4_bytes

                            def each_k4(
                                q: Value, *before: Value, alike: Any = alike, row: Value = row
                            ) -> list[Value]:
                                found: list[Value] = []
                                at, taps = line + q * (taps_of_k4(kind) // 2 * k4_bytes), row + q * k4_bytes
                                for v in range(VECTORS):
                                    weights = fn.load(taps + v * size, vec(I32, lanes))
                                    for p in alike:
                                        data = fn.load(
                                            at + (p * stride_w // 2 * VECTORS + v) * size, vec(I32, lanes)
                                        )
                                        found.append(_step(fn, kind, before[len(found)], data, weights))
                                return found

                            after = fn.loop(count, each_k4, [totals[n] for n in numbers])
                            for n, total in zip(numbers, after, strict=True):
                                totals[n] = total
                        return totals

                    sums = fn.loop(taps_h, each_row, held)
                    return [list(sums[v * pixels : (v + 1) * pixels]) for v in range(VECTORS)]

                fn.loop(a.range_w, chunk, step=pixels)
                return needed

            fn.loop(rows, out_row, [fn.i64(0)])

            def spill() -> None:
                fn.call_pointer(
                    a.pointer("unpack"), a.pointer("unpack_args"), image, row0, rows, fn.i64(0), a.out_w,
                    channel0.shr(2), a.group_words, scratch + a.at_out, a.group_words * 4,
                    a.out_w * a.group_words * 4,
                )  # fmt: skip

            fn.when(direct, lambda: None, spill)

        tasks.each(task)


def _step(fn: Function, dot: Dot, total: Value, k4: Value, weight: Value) -> Value:
    if dot is DPBUSD:
        return dpbusd(fn, total, k4, weight)
    pairs = vec(I16, 2 * total.type.lanes)
    return total + madd_pairs(fn, k4.bits(pairs), weight.bits(pairs))


class _Source:
    """The input of a task: where its first row and column lie, which rows and columns of it are in the image."""

    def __init__(
        self,
        fn: Function,
        a: LoadedArgs,
        dot: Dot,
        border: Value,
        ranges: int,
        *,
        at: Value,
        row_bytes: Value,
        pixel_bytes: Value,
        rows: tuple[Value, Value],
        columns: tuple[Value, Value],
    ) -> None:
        self.fn, self.a, self.dot, self.border, self.ranges = fn, a, dot, border, ranges
        self.at, self.row_bytes, self.pixel_bytes = at, row_bytes, pixel_bytes
        self.first_row, self.height = rows
        self.first_column, self.width = columns

    def make_k4s(self, row: Value, to: Value) -> None:
        """The k4s of a row, at every even column, to scratch."""
        fn, size = self.fn, self.border.type.lanes * self.ranges
        inside = (row - self.first_row).compare("ult", self.height)
        width = inside.select(self.width, 0)
        line = self.at + row * self.row_bytes

        def put(u: Value, k4: Sequence[Value]) -> None:
            for v, vector in enumerate(k4):
                fn.store(vector, to + (u * (VECTORS * size) + v * size))

        if self.dot is not DPBUSD:
            fn.loop(self.a.k4s, lambda u: put(u, _pairs16(*self._pair(line, width, u * 2))))
            return

        # the second pair of columns of a k4 is the first one of the next
        def step(u: Value, *before: Value) -> tuple[Value, ...]:
            after = self._pair(line, width, u * 2 + 2)
            put(u, fours(before, after))
            return after

        fn.loop(self.a.k4s, step, self._pair(line, width, fn.i64(0)))

    def _pair(self, line: Value, width: Value, column: Value) -> tuple[Value, Value]:
        """Two neighbouring pixels, bytes side by side: the lower and the upper halves of all pieces."""
        first, second = (self._pixel(line, width, column + k) for k in range(2))
        return tuple(interleave(first, second, half) for half in range(2))  # type: ignore[return-value]

    def _pixel(self, line: Value, width: Value, column: Value) -> Value:
        """The pixels of a column of all ranges."""

        def one(column: Value) -> Value:
            inside = (column - self.first_column).compare("ult", width)
            at = inside.select(line + column * self.pixel_bytes, self.a.pointer("border"))
            return self.fn.load(at, self.border.type)

        found = [one(column + self.a.range_columns * r if r else column) for r in range(self.ranges)]
        while len(found) > 1:
            found = [a.concat(b) for a, b in zip(found[::2], found[1::2], strict=True)]
        return found[0] ^ -128 if self.dot is DPBUSD else found[0]


def interleave(a: Value, b: Value, half: int) -> Value:
    """Elements of two vectors side by side, of the lower or the upper half of every 128-bit piece."""
    piece = 128 // a.type.bits
    starts = range(half * piece // 2, a.type.lanes, piece)
    return a.shuffle(
        [s + k + which for s in starts for k in range(piece // 2) for which in (0, a.type.lanes)], b
    )


def fours(before: Sequence[Value], after: Sequence[Value]) -> list[Value]:
    """K4s of four bytes from the halves of two pairs of columns."""
    words = vec(I16, before[0].type.lanes // 2)
    return [
        interleave(first.bits(words), second.bits(words), half).bits(vec(I32, words.lanes // 2))
        for first, second in zip(before, after, strict=True)
        for half in range(2)
    ]


def _pairs16(low: Value, high: Value) -> list[Value]:
    """K4s of two 16-bit values from the halves of a pair of columns: each byte twice, then shifted."""
    words = vec(I16, low.type.lanes // 2)
    return [
        (interleave(half, half, upper).bits(words) >> 8).bits(vec(I32, words.lanes // 2))
        for half in (low, high)
        for upper in range(2)
    ]

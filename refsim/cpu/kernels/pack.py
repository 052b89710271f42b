"""Between a tensor's layout and *pixel rows*: scratch where the channel words of a pixel are neighbours.

`pack` copies a rectangle of pixels into pixel rows, a frame of the zero point where it leaves the image, and widens or
shifts the elements to what a dot product wants; `unpack` copies pixel rows of bytes out to a layout. Four pixels by
four channel words move as one 4x4 shuffle of words.
"""

from __future__ import annotations

from collections.abc import Callable

from refsim.cpu.ir import I8, I16, I32, I64, PTR, Function, Module, Value, vec
from refsim.cpu.kernels.args import Fields, Loaded
from refsim.cpu.kernels.cells import TRANSPOSE4
from refsim.cpu.view import BLOCKS, ROWS

#: Elements of packed pixel rows: bytes as they are, bytes with 128 added (unsigned), or 16-bit integers.
S8, U8, S16 = "s8", "u8", "s16"
BYTES_PER_WORD = {S8: 4, U8: 4, S16: 8}

#: `border` is a word of four zero points; strides as in `View`. `up_h`, `up_w`: rows and columns of the rectangle that
#: one row and column of the image take, the others being frame (more than 1 for transposed convolutions).
PACK = Fields(
    "source", "height", "width", "image_stride", "row_stride", "quad_stride", "pixel_stride", "word_stride",
    "border", "up_h", "up_w",
)  # fmt: skip
#: n, first row, rows, first column, columns, first channel word, channel words, destination, bytes of a packed row.
PACK_PARAMS = (PTR, I64, I64, I64, I64, I64, I64, I64, PTR, I64)

UNPACK = Fields("out", "image_stride", "row_stride", "quad_stride", "pixel_stride", "word_stride")
#: n, first row, rows, first column, columns, first channel word, channel words, source, bytes of a pixel.
UNPACK_PARAMS = (PTR, I64, I64, I64, I64, I64, I64, I64, PTR, I64)


def for_words(
    fn: Function, last: Value, lanes: int, move: Callable[[Value, int], None], start: Value | int = 0
) -> None:
    """Run ``move(word, how many)`` from start to last: in vectors of `lanes`, then of 4, then one by one."""
    done = start if isinstance(start, Value) else fn.i64(start)
    for width in sorted({lanes, 4, 1}, reverse=True):
        whole = last - (last - done) % width if width > 1 else last
        fn.loop(whole, lambda i, width=width: move(i, width), start=done, step=width)
        done = whole


def put(fn: Function, element: str, words: Value, to: Value) -> None:
    """Store a vector of words (i32) as elements."""
    lanes = words.type.lanes
    if element == S16:
        words = words.bits(vec(I8, 4 * lanes)).sext(I16)
    elif element == U8:
        words = words ^ -0x7F7F7F80
    fn.store(words, to)


def pack(module: Module, name: str, *, kind: str, element: str, lanes: int) -> None:
    """Write a function of `PACK_PARAMS` for one kind of layout and one kind of element."""
    size = BYTES_PER_WORD[element]
    with module.function(name, PACK_PARAMS) as fn:
        block, n, row0, rows, column0, columns, word0, words, to, pitch = fn.params
        a = PACK.read(fn, block)
        source = a.pointer("source") + (n * a.image_stride + word0 * a.word_stride)
        border = a.i32("border").splat(lanes)
        pixel_bytes = words * size

        def fill(at: Value, pixels: Value) -> None:
            def move(i: Value, width: int) -> None:
                put(fn, element, border.shuffle(range(width)), at + i * size)

            for_words(fn, pixels * words, lanes, move)

        def copy(at: Value, row: Value, first: Value, last: Value) -> None:
            """Columns first to last (excluded) of an image row."""
            if kind == ROWS:
                _copy_rows(fn, a, element, lanes, at, row, first, last, words)
            else:
                _copy_quads(fn, a, kind, element, at, row, first, last, words)

        def spread(at: Value, row: Value, left: Value, stop: Value) -> None:
            """Copy to every `up_w`-th column, over a frame."""
            fill(at, columns)

            def one(column: Value) -> None:
                inside = column + column0

                def hit() -> None:
                    place = inside // a.up_w
                    copy(at + column * pixel_bytes, row, place, place + 1)

                fn.when((inside % a.up_w).eq(0), hit)

            fn.loop(stop, one, start=left)

        def each_row(r: Value) -> None:
            at = to + r * pitch
            row = row0 + r
            high = a.height * a.up_h
            left = (fn.i64(0) - column0).max(0).min(columns)
            stop = (a.width * a.up_w - column0).max(left).min(columns)
            inside = (row >= 0).select((row < high).select((row % a.up_h).eq(0), 0), 0)

            def interior() -> None:
                from_row = source + (row // a.up_h) * a.row_stride

                def dense() -> None:
                    fill(at, left)
                    copy(at + left * pixel_bytes, from_row, column0 + left, column0 + stop)
                    fill(at + stop * pixel_bytes, columns - stop)

                fn.when(a.up_w.eq(1), dense, lambda: spread(at, from_row, left, stop))

            fn.when(inside, interior, lambda: fill(at, columns))

        fn.loop(rows, each_row)


def _copy_rows(
    fn: Function,
    a: Loaded,
    element: str,
    lanes: int,
    to: Value,
    row: Value,
    first: Value,
    last: Value,
    words: Value,
) -> None:
    """From a layout whose pixels are rows of words themselves; one run if no channels lie between."""
    size = BYTES_PER_WORD[element]
    whole = (words * 4).eq(a.pixel_stride)
    runs = whole.select(1, last - first)
    length = whole.select((last - first) * words, words)

    def run(i: Value) -> None:
        at = row + (first + i) * a.pixel_stride
        begin = to + i * words * size

        def move(k: Value, width: int) -> None:
            put(fn, element, fn.load(at + k * 4, vec(I32, width)), begin + k * size)

        for_words(fn, length, lanes, move)

    fn.loop((first < last).select(runs, 0), run)


def _copy_quads(
    fn: Function,
    a: Loaded,
    kind: str,
    element: str,
    to: Value,
    row: Value,
    first: Value,
    last: Value,
    words: Value,
) -> None:
    """Four pixels at a time; a block of four that is only partly wanted stores only what is."""
    size = BYTES_PER_WORD[element]
    pixel_bytes = words * size
    word_stride = fn.i64(16) if kind == BLOCKS else a.word_stride
    begin = first & -4 if kind == BLOCKS else first

    def quad(w: Value) -> None:
        at = row + (w.shr(2) * a.quad_stride if kind == BLOCKS else w * 4)
        place = to + (w - first) * pixel_bytes
        complete = (w >= first).select(w + 4 <= last, 0)

        def store(pixel: int, words_of: Value, k: Value) -> None:
            put(fn, element, words_of, place + (pixel * pixel_bytes + k * size))

        def all_words(guarded: bool) -> None:
            def store_one(pixel: int, value: Value, k: Value) -> None:
                if guarded:
                    here = w + pixel
                    wanted = (here >= first).select(here < last, 0)
                    fn.when(wanted, lambda: store(pixel, value, k))
                else:
                    store(pixel, value, k)

            def four(k: Value) -> None:
                lines = [fn.load(at + (k + j) * word_stride, vec(I32, 4)) for j in range(4)]
                square = lines[0].concat(lines[1]).concat(lines[2].concat(lines[3])).shuffle(TRANSPOSE4)
                for pixel in range(4):
                    store_one(pixel, square.shuffle(range(4 * pixel, 4 * pixel + 4)), k)

            def one(k: Value) -> None:
                line = fn.load(at + k * word_stride, vec(I32, 4))
                for pixel in range(4):
                    store_one(pixel, line.shuffle([pixel]), k)

            whole = words & -4
            fn.loop(whole, four, step=4)
            fn.loop(words, one, start=whole)

        fn.when(complete, lambda: all_words(False), lambda: all_words(True))

    fn.loop(last, quad, start=begin, step=4)


def unpack(module: Module, name: str, *, kind: str) -> None:
    """Write a function of `UNPACK_PARAMS` for one kind of layout; columns begin at a multiple of 4."""
    with module.function(name, UNPACK_PARAMS) as fn:
        block, n, row0, rows, column0, columns, word0, words, source, pixel_bytes = fn.params
        a = UNPACK.read(fn, block)
        out = a.pointer("out") + (n * a.image_stride + word0 * a.word_stride)
        word_stride = {ROWS: fn.i64(4), BLOCKS: fn.i64(16)}.get(kind, a.word_stride)

        def each_row(r: Value) -> None:
            to = out + (row0 + r) * a.row_stride
            at = source + r * columns * pixel_bytes

            def pixel(w: Value) -> None:
                column = column0 + w
                place = to + (
                    column.shr(2) * a.quad_stride + (column & 3) * 4
                    if kind == BLOCKS
                    else column * a.pixel_stride
                )
                begin = at + w * pixel_bytes

                def move(k: Value) -> None:
                    fn.store(fn.load(begin + k * 4, I32), place + k * word_stride)

                fn.loop(words, move)

            def quad(w: Value) -> None:
                column = column0 + w
                place = to + (column.shr(2) * a.quad_stride if kind == BLOCKS else column * 4)
                begin = at + w * pixel_bytes

                def four(k: Value) -> None:
                    lines = [fn.load(begin + (j * pixel_bytes + k * 4), vec(I32, 4)) for j in range(4)]
                    square = lines[0].concat(lines[1]).concat(lines[2].concat(lines[3])).shuffle(TRANSPOSE4)
                    for j in range(4):
                        fn.store(square.shuffle(range(4 * j, 4 * j + 4)), place + (k + j) * word_stride)

                def one(k: Value) -> None:
                    line = [fn.load(begin + (j * pixel_bytes + k * 4), vec(I32, 1)) for j in range(4)]
                    pair = line[0].concat(line[1]).concat(line[2].concat(line[3]))
                    fn.store(pair, place + k * word_stride)

                whole = words & -4
                fn.loop(whole, four, step=4)
                fn.loop(words, one, start=whole)

            done = fn.i64(0) if kind == ROWS else columns & -4
            if kind != ROWS:
                fn.loop(done, quad, step=4)
            fn.loop(columns, pixel, start=done)

        fn.loop(rows, each_row)

"""Between any layout and *NHWC scratch*: working memory where the channel words of a pixel are neighbours.

Kernels that cannot work on a layout as it lies in memory work on NHWC scratch instead. `pack` copies a rectangle of
pixels there, with a frame of the zero point where the rectangle leaves the image, and widens or shifts the elements to
what a dot product wants. `unpack` copies bytes from there to a layout. Both are functions of their own, called through
pointers by the kernels of every family: so no family is compiled for every layout. Four pixels by four channel words
move as one 4x4 transposition of words.
"""

from __future__ import annotations

from collections.abc import Callable

from refsim.exec.cpu.args import ArgLayout, LoadedArgs
from refsim.exec.cpu.ir import I8, I16, I32, I64, PTR, Function, ModuleText, Value, vec
from refsim.exec.cpu.strides import NHWC, TILED
from refsim.exec.cpu.tile4x4 import TRANSPOSE4, concat, quarters

#: Elements in NHWC scratch: bytes as they are, bytes with 128 added (unsigned), or 16-bit integers.
S8, U8, S16 = "s8", "u8", "s16"
BYTES_PER_WORD = {S8: 4, U8: 4, S16: 8}

#: `border` is a word of four zero points; strides as in `PackedStrides`. `input_dilation_*`: rows and columns of the
#: rectangle that one row and column of the image take; the others are frame (more than 1 for transposed convolutions).
PACK = ArgLayout(
    "source", "height", "width", "image_stride", "row_stride", "pixel4_stride", "pixel_stride", "word_stride",
    "border", "input_dilation_h", "input_dilation_w",
)  # fmt: skip
#: n, first row, rows, first column, columns, first channel word, channel words, destination, bytes of a packed row.
PACK_PARAMS = (PTR, I64, I64, I64, I64, I64, I64, I64, PTR, I64)

UNPACK = ArgLayout("out", "image_stride", "row_stride", "pixel4_stride", "pixel_stride", "word_stride")
#: n, first row, rows, first column, columns, first channel word, channel words, source, bytes of a pixel, of a row.
UNPACK_PARAMS = (PTR, I64, I64, I64, I64, I64, I64, I64, PTR, I64, I64)


def convert(element: str, words: Value) -> Value:
    """A vector of words (i32) as elements."""
    if element == S16:
        return words.bits(vec(I8, 4 * words.type.lanes)).sext(I16)
    return words ^ -0x7F7F7F80 if element == U8 else words


def pack(module: ModuleText, name: str, *, kind: str, element: str, lanes: int, fixed: int) -> None:
    """Write a function of `PACK_PARAMS` for one kind of layout and one kind of element.

    ``fixed`` is the number of channel words if it is always the same, else 0.
    """
    size = BYTES_PER_WORD[element]
    with module.function(name, PACK_PARAMS) as fn:
        block, n, row0, rows, column0, columns, word0, given, to, pitch = fn.params
        words = fn.i64(fixed) if fixed else given
        a = PACK.read(fn, block)
        source = a.pointer("source") + (n * a.image_stride + word0 * a.word_stride)
        border = convert(element, a.i32("border").splat(lanes))
        pixel_bytes = words * size

        def fill(at: Value, pixels: Value) -> None:
            def move(i: Value, width: int) -> None:
                fn.store(border.shuffle(range(width * border.type.lanes // lanes)), at + i * size)

            fn.loop_vectors(pixels * words, lanes, move)

        def copy(at: Value, row: Value, first: Value, last: Value) -> None:
            """Columns first to last (excluded) of an image row."""
            if kind == NHWC:
                _copy_rows(fn, a, element, lanes, at, row, first, last, words, fixed)
            else:
                _Pixel4s(fn, a, kind, element, words, fixed).copy(at, row, first, last)

        def spread(at: Value, row: Value, left: Value, stop: Value) -> None:
            """Copy to every `input_dilation_w`-th column, over a frame."""
            fill(at, columns)

            def one(column: Value) -> None:
                inside = column + column0

                def hit() -> None:
                    place = inside // a.input_dilation_w
                    copy(at + column * pixel_bytes, row, place, place + 1)

                fn.when((inside % a.input_dilation_w).eq(0), hit)

            fn.loop(stop, one, start=left)

        high = a.height * a.input_dilation_h
        left = (fn.i64(0) - column0).max(0).min(columns)
        stop = (a.width * a.input_dilation_w - column0).max(left).min(columns)

        def each_row(r: Value) -> None:
            at = to + r * pitch
            row = row0 + r
            inside = (row >= 0).select((row < high).select((row % a.input_dilation_h).eq(0), 0), 0)

            def interior() -> None:
                from_row = source + (row // a.input_dilation_h) * a.row_stride

                def dense() -> None:
                    fill(at, left)
                    copy(at + left * pixel_bytes, from_row, column0 + left, column0 + stop)
                    fill(at + stop * pixel_bytes, columns - stop)

                fn.when(a.input_dilation_w.eq(1), dense, lambda: spread(at, from_row, left, stop))

            fn.when(inside, interior, lambda: fill(at, columns))

        fn.loop(rows, each_row)


def _copy_rows(
    fn: Function,
    a: LoadedArgs,
    element: str,
    lanes: int,
    to: Value,
    row: Value,
    first: Value,
    last: Value,
    words: Value,
    fixed: int,
) -> None:
    """From a layout whose pixels are rows of words themselves; one run if no channels lie between."""
    size = BYTES_PER_WORD[element]
    if fixed:

        def pixel(i: Value) -> None:
            line = fn.load(row + i * a.pixel_stride, vec(I32, fixed))
            fn.store(convert(element, line), to + (i - first) * (fixed * size))

        fn.loop(last, pixel, start=first)
        return
    whole = (words * 4).eq(a.pixel_stride)
    runs = whole.select(1, last - first)
    length = whole.select((last - first) * words, words)

    def run(i: Value) -> None:
        at = row + (first + i) * a.pixel_stride
        begin = to + i * words * size

        def move(k: Value, width: int) -> None:
            fn.store(convert(element, fn.load(at + k * 4, vec(I32, width))), begin + k * size)

        fn.loop_vectors(length, lanes, move)

    fn.loop((first < last).select(runs, 0), run)


class _Pixel4s:
    """Copy from a layout where four pixels of a word are neighbours, four pixels at a time."""

    def __init__(
        self, fn: Function, a: LoadedArgs, kind: str, element: str, words: Value, fixed: int
    ) -> None:
        self.fn, self.a, self.kind, self.element, self.words, self.fixed = fn, a, kind, element, words, fixed
        self.size = BYTES_PER_WORD[element]
        self.pixel_bytes = words * self.size
        self.word_stride = fn.i64(16) if kind == TILED else a.word_stride

    def copy(self, to: Value, row: Value, first: Value, last: Value) -> None:
        """Columns first to last (excluded); blocks of four that are only partly wanted store only what is."""
        fn = self.fn
        begin = (first + 3) & -4 if self.kind == TILED else first
        end = begin + ((last - begin) & -4).max(0)

        def whole(w: Value) -> None:
            self._pixel4(self._at(row, w), to + (w - first) * self.pixel_bytes, None)

        def part(w: Value) -> None:
            self._pixel4(self._at(row, w), to + (w - first) * self.pixel_bytes, (w, first, last))

        if self.kind == TILED:
            fn.loop(begin, part, start=first & -4, step=4)
        fn.loop(end, whole, start=begin, step=4)
        fn.loop(last, part, start=end.max(first) if self.kind != TILED else end, step=4)

    def _at(self, row: Value, w: Value) -> Value:
        return row + (w.shr(2) * self.a.pixel4_stride if self.kind == TILED else w * 4)

    def _pixel4(self, at: Value, to: Value, wanted: tuple[Value, Value, Value] | None) -> None:
        """All words of four pixels; with (w, first, last) only pixels between."""
        fn, size = self.fn, self.size

        def store(pixel: int, value: Value, place: Value) -> None:
            def put() -> None:
                fn.store(value, place + self.pixel_bytes * pixel)

            if wanted is None:
                put()
            else:
                w, first, last = wanted
                fn.when((w + pixel >= first).select(w + pixel < last, 0), put)

        def four(source: Value, place: Value) -> None:
            lines = [fn.load(source + self.word_stride * j, vec(I32, 4)) for j in range(4)]
            # quarters of elements: 16 bytes of a pixel, or 32
            square = convert(self.element, concat(lines).shuffle(TRANSPOSE4))
            for pixel, piece in enumerate(quarters(square)):
                store(pixel, piece, place)

        def one(source: Value, place: Value) -> None:
            line = convert(self.element, fn.load(source, vec(I32, 4)))
            for pixel, piece in enumerate(quarters(line)):
                store(pixel, piece, place)

        if self.fixed:
            for k in range(0, self.fixed - 3, 4):
                four(at + self.word_stride * k, to + k * size)
            for k in range(self.fixed & -4, self.fixed):
                one(at + self.word_stride * k, to + k * size)
            return

        def step(width: int, move: Callable[[Value, Value], None]) -> Callable[..., list[Value]]:
            def body(_: Value, source: Value, place: Value) -> list[Value]:
                move(source, place)
                return [source + self.word_stride * width, place + width * size]

            return body

        source, place = fn.loop(self.words // 4, step(4, four), [at, to])
        fn.loop(self.words & 3, step(1, one), [source, place])


def unpack(module: ModuleText, name: str, *, kind: str, fixed: int) -> None:
    """Write a function of `UNPACK_PARAMS` for one kind of layout; columns begin at a multiple of 4.

    ``fixed`` is the number of channel words, and a quarter of the bytes of a pixel, if it is always the same, else 0.
    """
    with module.function(name, UNPACK_PARAMS) as fn:
        block, n, row0, rows, column0, columns, word0, given, source, given_bytes, pitch = fn.params
        words, pixel_bytes = (fn.i64(fixed), fn.i64(4 * fixed)) if fixed else (given, given_bytes)
        a = UNPACK.read(fn, block)
        out = a.pointer("out") + (n * a.image_stride + word0 * a.word_stride)
        word_stride = {NHWC: fn.i64(4), TILED: fn.i64(16)}.get(kind, a.word_stride)

        def pixel(at: Value, to: Value, w: Value) -> None:
            column = column0 + w
            if kind == TILED:
                place = to + (column.shr(2) * a.pixel4_stride + (column & 3) * 4)
            else:
                place = to + column * a.pixel_stride
            begin = at + w * pixel_bytes

            def move(k: Value, width: int) -> None:
                fn.store(fn.load(begin + k * 4, vec(I32, width)), place + k * word_stride)

            fn.loop_vectors(words, 4 if kind == NHWC else 1, move)

        def four(begin: Value, place: Value) -> None:
            lines = [fn.load(begin + pixel_bytes * j, vec(I32, 4)) for j in range(4)]
            square = concat(lines).shuffle(TRANSPOSE4)
            if kind == TILED:
                fn.store(square, place)
                return
            for j, piece in enumerate(quarters(square)):
                fn.store(piece, place + word_stride * j)

        def one(begin: Value, place: Value) -> None:
            fn.store(concat([fn.load(begin + pixel_bytes * j, vec(I32, 1)) for j in range(4)]), place)

        def pixel4(at: Value, to: Value, w: Value) -> None:
            column = column0 + w
            place = to + (column.shr(2) * a.pixel4_stride if kind == TILED else column * 4)
            begin = at + w * pixel_bytes
            if fixed:
                for k in range(0, fixed - 3, 4):
                    four(begin + 4 * k, place + word_stride * k)
                for k in range(fixed & -4, fixed):
                    one(begin + 4 * k, place + word_stride * k)
                return

            def step(width: int, move: Callable[[Value, Value], None]) -> Callable[..., list[Value]]:
                def body(_: Value, begin: Value, place: Value) -> list[Value]:
                    move(begin, place)
                    return [begin + 4 * width, place + word_stride * width]

                return body

            begin, place = fn.loop(words // 4, step(4, four), [begin, place])
            fn.loop(words & 3, step(1, one), [begin, place])

        def each_row(r: Value) -> None:
            to = out + (row0 + r) * a.row_stride
            at = source + r * pitch
            done = fn.i64(0) if kind == NHWC else columns & -4
            if kind != NHWC:
                fn.loop(done, lambda w: pixel4(at, to, w), step=4)
            fn.loop(columns, lambda w: pixel(at, to, w), start=done)

        fn.loop(rows, each_row)

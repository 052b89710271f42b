"""Between dense float tensors and packed int8.

*contiguous*: the floats are contiguous in the dim that the int8 layout packs. They become bytes in NHWC scratch, which
`unpack` lays out; and back. *strided*: the floats are contiguous along W and the layout packs channels, so that a word
takes its four bytes from four rows of floats.
"""

from __future__ import annotations

from functools import reduce

from refsim.exec.cpu.args import ArgLayout, LoadedArgs
from refsim.exec.cpu.elementwise.kernel import real
from refsim.exec.cpu.epilogue import FULL, Requant
from refsim.exec.cpu.ir import F32, I8, I32, Function, ModuleText, Value, vec
from refsim.exec.cpu.strides import PLANAR, TILED

_VALUES = ("a_scale", "a_zp", "inv", "low", "high", "zp")
#: `real_*`: strides of the float tensor. `columns`: pixels of a row with those that only pad it.
CONTIGUOUS = ArgLayout(
    "real", "real_image", "real_row", "real_pixel", "move", "move_args",
    "height", "width", "columns", "channels", "words", "row_blocks", "rows_per_task", *_VALUES,
)  # fmt: skip
STRIDED = ArgLayout(
    "real", "real_image", "real_row", "real_channel", "zeros",
    "int8", "image_stride", "row_stride", "pixel4_stride", "pixel_stride", "word_stride",
    "height", "width", "columns", "channels", "words", *_VALUES,
)  # fmt: skip


def _number(x: Value) -> Value:
    """Floats; NaN counts as 0."""
    return x.compare("ord", x).select(x, 0.0)


def _lanes_below(fn: Function, lanes: int, count: Value) -> Value:
    """Condition per lane: its number is below a count."""
    return fn.vector(list(range(lanes)), I32) < count.trunc(I32).splat(lanes)


def quantize_contiguous(module: ModuleText, name: str, *, lanes: int) -> None:
    """Write the kernel: floats to NHWC scratch, then `move` (an `unpack`) lays them out."""
    with CONTIGUOUS.kernel(module, name) as (fn, a, scratch, tasks):
        requant = Requant(fn, a, lanes, FULL)
        zp = a.i32("zp").splat(lanes)

        def task(t: Value) -> None:
            image, row0 = t // a.row_blocks, t % a.row_blocks * a.rows_per_task
            height = a.rows_per_task.min(a.height - row0)

            def pixel(r: Value, w: Value) -> None:
                to = scratch + (r * a.columns + w) * a.words * 4
                at = a.pointer("real") + (
                    image * a.real_image + (row0 + r) * a.real_row + w.min(a.width - 1) * a.real_pixel
                )
                count = (w < a.width).select(a.channels, 0)

                # a vector may reach into the next pixel's place, which is written after it
                def some(k: Value) -> None:
                    q = requant.integers(_number(fn.load(at + k * 4, vec(F32, lanes))))
                    fn.store(_lanes_below(fn, lanes, count - k).select(q, zp).trunc(I8), to + k)

                fn.loop(a.words * 4, some, step=lanes)

            fn.loop(height, lambda r: fn.loop(a.columns, lambda w: pixel(r, w)))
            zero = fn.i64(0)
            fn.call_pointer(
                a.pointer("move"), a.pointer("move_args"),
                image, row0, height, zero, a.columns, zero, a.words, scratch, a.words * 4, a.columns * a.words * 4,
            )  # fmt: skip

        tasks.each(task)


def dequantize_contiguous(module: ModuleText, name: str, *, lanes: int) -> None:
    """Write the kernel: `move` (a `pack`) brings the bytes to NHWC scratch, then they become floats."""
    with CONTIGUOUS.kernel(module, name) as (fn, a, scratch, tasks):

        def task(t: Value) -> None:
            image, row0 = t // a.row_blocks, t % a.row_blocks * a.rows_per_task
            height = a.rows_per_task.min(a.height - row0)
            zero = fn.i64(0)
            pitch = a.width * a.words * 4
            fn.call_pointer(
                a.pointer("move"), a.pointer("move_args"),
                image, row0, height, zero, a.width, zero, a.words, scratch, pitch,
            )  # fmt: skip
            to = a.pointer("real") + image * a.real_image

            def run(at: Value, out: Value, count: Value) -> None:
                def some(k: Value, width: int) -> None:
                    fn.store(real(a, "a", fn.load(at + k, vec(I8, width))), out + k * 4)

                fn.loop_vectors(count, lanes, some)

            def row(r: Value) -> None:
                at, out = scratch + r * pitch, to + (row0 + r) * a.real_row

                def whole() -> None:
                    run(at, out, a.width * a.channels)

                def pixels() -> None:
                    fn.loop(a.width, lambda w: run(at + w * a.words * 4, out + w * a.real_pixel, a.channels))

                fn.when((a.channels & 3).eq(0).select((a.channels * 4).eq(a.real_pixel), 0), whole, pixels)

            fn.loop(height, row)

        tasks.each(task)


def quantize_strided(module: ModuleText, name: str, *, lanes: int, kind: str, packs: bool) -> None:
    """Write the kernel; tasks are rows. ``packs``: bytes are narrowed by instructions of x86."""
    with STRIDED.kernel(module, name) as (fn, a, scratch, tasks):
        requant = Requant(fn, a, lanes, FULL)
        zps = (a.i32("zp") & 255) * 0x01010101

        def task(t: Value) -> None:
            image, row = t // a.height, t % a.height
            floats = a.pointer("real") + (image * a.real_image + row * a.real_row)
            out = a.pointer("int8") + (image * a.image_stride + row * a.row_stride)

            def piece(c: Value, w: Value) -> None:
                reals = []
                for k in range(4):
                    channel = c * 4 + k
                    known = channel < a.channels
                    at = known.select(floats + (channel * a.real_channel + w * 4), a.pointer("zeros"))
                    reals.append(_number(fn.load(at, vec(F32, lanes))))
                made = _words(requant, reals, packs)
                # channels and pixels that there are not
                missing = (c * 4 + 4 - a.channels).max(0).trunc(I32) << 3
                there = missing.eq(0).select(-1, fn.const(0x00FF_FFFF, I32).shr(missing - 8))
                made = (made & there.splat(lanes)) | (zps & (there ^ -1)).splat(lanes)
                made = _lanes_below(fn, lanes, a.width - w).select(made, zps.splat(lanes))
                _store_words(fn, a, kind, lanes, made, out + c * a.word_stride, w, scratch)

            fn.loop(a.words, lambda c: fn.loop(a.columns, lambda w: piece(c, w), step=lanes))

        tasks.each(task)


def _words(requant: Requant, reals: list[Value], packs: bool) -> Value:
    """Four vectors of real values as bytes, those of a lane side by side in a word."""
    lanes = requant.lanes
    if not packs:
        parts = [(requant.integers(t) & 255) << (8 * k) for k, t in enumerate(reals)]
        return reduce(Value.__or__, parts)
    made = requant.narrowed(reals, packs, False)
    return made.shuffle(
        [16 * n + 4 * k + i for n in range(lanes // 4) for i in range(4) for k in range(4)]
    ).bits(vec(I32, lanes))


def _place(fn: Function, a: LoadedArgs, kind: str, w: Value) -> Value:
    """Offset of a pixel's word."""
    if kind == TILED:
        return w.shr(2) * a.pixel4_stride + (w & 3) * 4
    return w * (4 if kind == PLANAR else a.pixel_stride)


def _store_words(
    fn: Function, a: LoadedArgs, kind: str, lanes: int, words: Value, to: Value, w: Value, scratch: Value
) -> None:
    """Words of neighbouring pixels, up to `columns` of a row."""

    def singly() -> None:
        fn.store(words, scratch)
        fn.loop(
            (a.columns - w).min(lanes),
            lambda i: fn.store(fn.load(scratch + i * 4, I32), to + _place(fn, a, kind, w + i)),
        )

    def whole() -> None:
        if kind == PLANAR:
            fn.store(words, to + w * 4)
        elif kind == TILED:
            for q in range(lanes // 4):
                fn.store(words.shuffle(range(4 * q, 4 * q + 4)), to + (w.shr(2) + q) * a.pixel4_stride)
        else:

            def apart() -> None:
                for k in range(lanes):
                    fn.store(words.lane(k), to + (w + k) * a.pixel_stride)

            fn.when(a.pixel_stride.eq(4), lambda: fn.store(words, to + w * 4), apart)

    fn.when(w + lanes <= a.columns, whole, singly)


def dequantize_strided(module: ModuleText, name: str, *, lanes: int, kind: str) -> None:
    """Write the kernel; tasks are rows."""
    with STRIDED.kernel(module, name) as (fn, a, _, tasks):

        def task(t: Value) -> None:
            image, row = t // a.height, t % a.height
            floats = a.pointer("real") + (image * a.real_image + row * a.real_row)
            source = a.pointer("int8") + (image * a.image_stride + row * a.row_stride)

            def piece(c: Value, w: Value, width: int) -> None:
                words = _load_words(fn, a, kind, width, source + c * a.word_stride, w)
                for k in range(4):
                    channel = c * 4 + k
                    # the lane's byte, with its sign, one a lane of 32 bits
                    q = ((words << (24 - 8 * k)) >> 24).trunc(I8)

                    def put(q: Value = q, channel: Value = channel) -> None:
                        fn.store(real(a, "a", q), floats + (channel * a.real_channel + w * 4))

                    fn.when(channel < a.channels, put)

            def channel_word(c: Value) -> None:
                fn.loop_vectors(a.width, lanes, lambda w, width: piece(c, w, width))

            fn.loop(a.words, channel_word)

        tasks.each(task)


def _load_words(fn: Function, a: LoadedArgs, kind: str, count: int, at: Value, w: Value) -> Value:
    """Words of neighbouring pixels; vectors begin at multiples of 4."""
    if kind == PLANAR or (kind == TILED and count == 1):
        return fn.load(at + _place(fn, a, kind, w), vec(I32, count))
    if kind == TILED:
        found = [fn.load(at + (w.shr(2) + q) * a.pixel4_stride, vec(I32, 4)) for q in range(count // 4)]
    else:
        found = [fn.load(at + (w + k) * a.pixel_stride, vec(I32, 1)) for k in range(count)]
    while len(found) > 1:
        found = [found[i].concat(found[i + 1]) for i in range(0, len(found), 2)]
    return found[0]

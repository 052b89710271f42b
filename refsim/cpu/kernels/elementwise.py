"""Operators that work element by element on packed int8: add, requantize, copy, and pixel shuffle by 2.

`flat` runs over whole buffers of one layout without padding. `rows` brings blocks of any layouts to pixel rows
(pack.py), works there, clears the lanes beyond the channels, and lays the result out.
"""

from __future__ import annotations

from collections.abc import Callable

from refsim.cpu.ir import I1, I8, I32, VOID, Function, Module, Value, vec
from refsim.cpu.kernels.args import KERNEL_PARAMS, Fields, Loaded
from refsim.cpu.kernels.cells import TRANSPOSE4
from refsim.cpu.kernels.epilogue import Requant
from refsim.cpu.kernels.pack import for_words
from refsim.cpu.kernels.tables import PAIRS, TABLE, VECTOR_BYTES, lookup

#: What is done with the elements of the inputs. `ADD_SCALED` multiplies the second one by alpha, `BOUNDED` clamps
#: real values to [least, most] between the two quantizations; `TABLE` and `PAIRS` look the result up (tables.py).
ADD, ADD_SCALED, RESCALE, BOUNDED, COPY = "add", "add_scaled", "rescale", "bounded", "copy"
INPUTS = {ADD: 2, ADD_SCALED: 2, RESCALE: 1, BOUNDED: 1, COPY: 1, TABLE: 1, **dict.fromkeys(PAIRS, 2)}

_VALUES = (
    "a_scale", "a_zp", "b_scale", "b_zp", "alpha", "least", "most", "inv", "low", "high", "zp", "tables",
)  # fmt: skip
FLAT = Fields("a", "b", "out", "words", "words_per_task", *_VALUES)
#: `rows_per_task` rows of an image make a task; `mask` is for the last channel word, `at_b` a place in scratch.
#: Sizes are those of the (first) input; `out_words` is of the output.
ROWS_OF = Fields(
    "pack_a", "pack_a_args", "pack_b", "pack_b_args", "unpack", "unpack_args",
    "height", "width", "words", "out_words", "row_blocks", "rows_per_task", "mask", "at_b", "at_out", *_VALUES,
)  # fmt: skip


def real(a: Loaded, which: str, q: Value) -> Value:
    """Bytes as the real numbers they stand for: f32(q - zp) * scale."""
    lanes = q.type.lanes
    return (q.sext(I32) - a.i32(f"{which}_zp").splat(lanes)).to_f32() * a.f32(f"{which}_scale").splat(lanes)


def operation(fn: Function, a: Loaded, op: str, clamp: str) -> Callable[..., Value] | None:
    """A function of one or two vectors of bytes; None if they stay as they are."""
    if op == TABLE or op in PAIRS:
        return lookup(fn, a, op)

    def compute(first: Value, second: Value | None = None) -> Value:
        t = real(a, "a", first)
        if second is not None:
            addend = real(a, "b", second)
            if op == ADD_SCALED:
                addend = a.f32("alpha").splat(first.type.lanes) * addend
            t = t + addend
        if op == BOUNDED:
            least, most = (a.f32(name).splat(first.type.lanes) for name in ("least", "most"))
            t = t.max(least).min(most)
        return Requant(fn, a, first.type.lanes, clamp).bytes(t)

    return None if op == COPY else compute


def _over(
    fn: Function,
    compute: Callable[..., Value],
    inputs: list[Value],
    to: Value,
    first: Value | int,
    last: Value,
    op: str,
    lanes: int,
) -> None:
    """Compute the words from first to last (excluded)."""
    # a vector of 32-bit lanes takes `lanes` bytes: a quarter as many words
    at_once = VECTOR_BYTES if op == TABLE or op in PAIRS else lanes

    def move(i: Value, width: int) -> None:
        at = i * 4
        step = min(at_once, 4 * width)
        for part in range(0, 4 * width, step):
            read = [fn.load(source + at + part, vec(I8, step)) for source in inputs]
            fn.store(compute(*read), to + at + part)

    for_words(fn, last, lanes, move, start=first)


def flat(module: Module, name: str, *, op: str, lanes: int, clamp: str) -> None:
    """Write the kernel for equal layouts without padding."""
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, _ = fn.params
        a = FLAT.read(fn, block)
        inputs = [a.pointer("a"), a.pointer("b")][: INPUTS[op]]
        first = begin * a.words_per_task
        last = (end * a.words_per_task).min(a.words)
        if op == COPY:
            at = first * 4
            size = ((last - first) * 4).max(0)
            fn.call(
                "llvm.memcpy.p0.p0.i64", VOID, a.pointer("out") + at, inputs[0] + at, size, fn.const(0, I1)
            )
            return
        compute = operation(fn, a, op, clamp)
        assert compute is not None
        _over(fn, compute, inputs, a.pointer("out"), first, last, op, lanes)


def rows(module: Module, name: str, *, op: str, lanes: int, clamp: str, shuffle: bool) -> None:
    """Write the kernel for any layouts; with `shuffle`, channels become 2x2 pixels at the end."""
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, scratch = fn.params
        a = ROWS_OF.read(fn, block)
        compute = operation(fn, a, op, clamp)
        buffers = [scratch, scratch + a.at_b][: INPUTS[op]]

        def task(t: Value) -> None:
            image = t // a.row_blocks
            row0 = t % a.row_blocks * a.rows_per_task
            height = a.rows_per_task.min(a.height - row0)
            pixels = height * a.width
            zero = fn.i64(0)
            for which, buffer in zip("ab", buffers, strict=False):
                fn.call_pointer(
                    a.pointer(f"pack_{which}"), a.pointer(f"pack_{which}_args"),
                    image, row0, height, zero, a.width, zero, a.words, buffer, a.width * a.words * 4,
                )  # fmt: skip
            if compute is not None:
                _over(fn, compute, buffers, scratch, 0, pixels * a.words, op, lanes)

            def write(first: Value, count: Value, width: Value, source: Value) -> None:
                _mask_last_word(fn, a, source, count * width)
                fn.call_pointer(
                    a.pointer("unpack"), a.pointer("unpack_args"),
                    image, first, count, zero, width, zero, a.out_words, source, a.out_words * 4,
                    width * a.out_words * 4,
                )  # fmt: skip

            if shuffle:
                made = scratch + a.at_out
                _shuffle_pixels(fn, a, scratch, made, height)
                write(row0 * 2, height * 2, a.width * 2, made)
            else:
                write(row0, height, a.width, scratch)

        fn.loop(end, task, start=begin)


def _mask_last_word(fn: Function, a: Loaded, at: Value, pixels: Value) -> None:
    """Clear the lanes beyond the channels."""

    def pixel(p: Value) -> None:
        word = at + (p * a.out_words + (a.out_words - 1)) * 4
        fn.store(fn.load(word, I32) & a.i32("mask"), word)

    fn.when(a.mask.eq(-1), lambda: None, lambda: fn.loop(pixels, pixel))


def _shuffle_pixels(fn: Function, a: Loaded, source: Value, to: Value, height: Value) -> None:
    """Pixel rows of 4C channels to twice as many rows and columns of C: lane (dy, dx) of word c is channel c.

    Four input words become one output word in each of the four pixels; words beyond the last read what lies there.
    """
    out_row = a.width * 2 * a.out_words * 4

    def pixel(r: Value, w: Value) -> None:
        at = source + (r * a.width + w) * a.words * 4
        corner = to + r * 2 * out_row + w * 2 * a.out_words * 4

        def four(g: Value) -> None:
            lanes = fn.load(at + g * 16, vec(I8, 16)).shuffle(TRANSPOSE4).bits(vec(I32, 4))
            for k in range(4):
                place = corner + (k // 2) * out_row + (k % 2) * a.out_words * 4 + g * 4
                fn.store(lanes.shuffle([k]), place)

        fn.loop(a.out_words, four)

    fn.loop(height, lambda r: fn.loop(a.width, lambda w: pixel(r, w)))

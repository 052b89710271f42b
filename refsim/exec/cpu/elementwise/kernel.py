"""Operators that work element by element on packed int8: add, requantize, copy, and pixel shuffle by 2.

`linear` runs over whole buffers of one layout from end to end, where no padding is in the way. `via_nhwc` brings
blocks of any layouts to NHWC scratch, works there, clears the lanes beyond the channels, and lays the result out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from refsim.exec.cpu.args import ArgLayout, LoadedArgs
from refsim.exec.cpu.elementwise.lut_kernel import GATHER, LUT, OF_PAIRS, gather, lookup
from refsim.exec.cpu.epilogue import RANGE, Requant
from refsim.exec.cpu.ir import I1, I8, I32, VOID, Function, ModuleText, Value, vec
from refsim.exec.cpu.narrow import VECTORS, narrow_in_order
from refsim.exec.cpu.table import VECTOR_BYTES
from refsim.exec.cpu.tile4x4 import TRANSPOSE4

#: Operations on the elements of the inputs. `LUT` and pairs (lut_kernel.py) look the result up, the others compute
#: it.
ADD, ADD_SCALED, PRODUCT, RESCALE = "add", "add_scaled", "product", "rescale"
BOUNDED, COPY, FMA = "bounded", "copy", "fma"


@dataclass(frozen=True)
class Formula:
    """The sum of the real inputs, or their ``product``.

    ``scaled``: the second one times alpha; ``bounded``: clamped to [least, most].
    """

    inputs: int
    scaled: bool = False
    bounded: bool = False
    product: bool = False


#: Operations that compute as the operators are defined, rounding after rounding.
FORMULAS = {
    ADD: Formula(2),
    ADD_SCALED: Formula(2, scaled=True),
    PRODUCT: Formula(2, product=True),
    RESCALE: Formula(1),
    BOUNDED: Formula(1, bounded=True),
}
INPUTS = (
    {op: formula.inputs for op, formula in FORMULAS.items()}
    | {COPY: 1, FMA: 2, LUT: 1, GATHER: 1}
    | dict.fromkeys(OF_PAIRS, 2)
)

_VALUES = (
    "a_scale", "a_zp", "b_scale", "b_zp", "alpha", "least", "most", "inv", "low", "high", "zp", "luts",
)  # fmt: skip
LINEAR = ArgLayout("a", "b", "out", "words", "words_per_task", *_VALUES)
#: `rows_per_task` rows of an image make a task; `mask` is for the last channel word, `at_b` a place in scratch.
#: Sizes are those of the (first) input; `out_words` is of the output.
VIA_NHWC = ArgLayout(
    "pack_a", "pack_a_args", "pack_b", "pack_b_args", "unpack", "unpack_args",
    "height", "width", "words", "out_words", "row_blocks", "rows_per_task", "mask", "at_b", "at_out", *_VALUES,
)  # fmt: skip


#: The second input has one pixel, of `words` words, for all `pixels`; `pixels_per_task` make a task.
REPEATED = ArgLayout("a", "b", "out", "words", "pixels", "pixels_per_task", *_VALUES)


def real(a: LoadedArgs, which: str, q: Value) -> Value:
    """Bytes as the real numbers they stand for: f32(q - zp) * scale."""
    lanes = q.type.lanes
    return (q.sext(I32) - a.i32(f"{which}_zp").splat(lanes)).to_f32() * a.f32(f"{which}_scale").splat(lanes)


#: ``read(first, count)``: so many bytes from the first on, a vector of each input.
Read = Callable[[int, int], list[Value]]


@dataclass(frozen=True)
class Operation:
    """What is done with bytes: ``compute(read, count)`` gives that many, at most ``lanes``."""

    lanes: int
    compute: Callable[[Read, int], Value]


def operation(fn: Function, a: LoadedArgs, op: str, lanes: int, clamp: str, packs: bool) -> Operation:
    """Any operation but a copy. With ``packs``, four vectors of 32-bit lanes are narrowed together."""
    if op == LUT or op in OF_PAIRS:
        look = lookup(fn, a, op)
        return Operation(VECTOR_BYTES, lambda read, count: look(*read(0, count)))
    if op == GATHER:
        each = gather(fn, a)
        return Operation(lanes, lambda read, count: each(*read(0, count)))
    wide = _fma(fn, a) if op == FMA else _formula(fn, a, FORMULAS[op], clamp)

    def compute(read: Read, count: int) -> Value:
        each = min(lanes, count)
        parts = [wide(*read(k, each)) for k in range(0, count, each)]
        if len(parts) == VECTORS:
            return narrow_in_order(fn, parts)
        return reduce(Value.concat, (part.max(-128).min(127).trunc(I8) for part in parts))

    return Operation(VECTORS * lanes if packs else lanes, compute)


def _formula(fn: Function, a: LoadedArgs, formula: Formula, clamp: str) -> Callable[..., Value]:
    """As the operators are defined, with every rounding of theirs."""

    def wide(first: Value, second: Value | None = None) -> Value:
        t = real(a, "a", first)
        if second is not None:
            addend = real(a, "b", second)
            if formula.scaled:
                addend = a.f32("alpha").splat(first.type.lanes) * addend
            t = t * addend if formula.product else t + addend
        if formula.bounded:
            least, most = (a.f32(name).splat(first.type.lanes) for name in ("least", "most"))
            t = t.max(least).min(most)
        return Requant(fn, a, first.type.lanes, clamp).wide(t)

    return wide


def _fma(fn: Function, a: LoadedArgs) -> Callable[..., Value]:
    """a_scale * a + (b_scale * b + alpha), each rounded once."""

    def wide(first: Value, second: Value) -> Value:
        lanes = first.type.lanes
        x, y = (q.sext(I32).to_f32() for q in (first, second))
        scale_a, scale_b, offset = (a.f32(name).splat(lanes) for name in ("a_scale", "b_scale", "alpha"))

        def fma(q: Value, scale: Value, addend: Value) -> Value:
            return fn.call(f"llvm.fma.v{lanes}f32", q.type, q, scale, addend)

        return Requant(fn, a, lanes, RANGE).rounded(fma(x, scale_a, fma(y, scale_b, offset)))

    return wide


def _over(
    fn: Function, done: Operation, inputs: list[Value], to: Value, first: Value | int, last: Value
) -> None:
    """Compute the words from first to last (excluded)."""

    def move(i: Value, width: int) -> None:
        at = i * 4

        def read(k: int, count: int) -> list[Value]:
            return [fn.load(source + at + k, vec(I8, count)) for source in inputs]

        fn.store(done.compute(read, 4 * width), to + at)

    fn.loop_vectors(last, done.lanes // 4, move, start=first)


def linear(module: ModuleText, name: str, *, op: str, lanes: int, clamp: str, packs: bool) -> None:
    """Write the kernel for equal layouts without padding."""
    with LINEAR.kernel(module, name) as (fn, a, _, tasks):
        inputs = [a.pointer("a"), a.pointer("b")][: INPUTS[op]]
        first = tasks.begin * a.words_per_task
        last = (tasks.end * a.words_per_task).min(a.words)
        if op == COPY:
            at = first * 4
            size = ((last - first) * 4).max(0)
            fn.call(
                "llvm.memcpy.p0.p0.i64", VOID, a.pointer("out") + at, inputs[0] + at, size, fn.const(0, I1)
            )
            return
        done = operation(fn, a, op, lanes, clamp, packs)
        _over(fn, done, inputs, a.pointer("out"), first, last)


def repeated(module: ModuleText, name: str, *, op: str, lanes: int, clamp: str, packs: bool) -> None:
    """Write the kernel for pixels that all meet the same one."""
    with REPEATED.kernel(module, name) as (fn, a, _, tasks):
        done = operation(fn, a, op, lanes, clamp, packs)

        def pixel(p: Value) -> None:
            at = p * (a.words * 4)
            _over(fn, done, [a.pointer("a") + at, a.pointer("b")], a.pointer("out") + at, 0, a.words)

        fn.loop((tasks.end * a.pixels_per_task).min(a.pixels), pixel, start=tasks.begin * a.pixels_per_task)


def via_nhwc(
    module: ModuleText, name: str, *, op: str, lanes: int, clamp: str, packs: bool, shuffle: bool
) -> None:
    """Write the kernel for any layouts; with `shuffle`, channels become 2x2 pixels at the end."""
    with VIA_NHWC.kernel(module, name) as (fn, a, scratch, tasks):
        done = None if op == COPY else operation(fn, a, op, lanes, clamp, packs)
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
            if done is not None:
                _over(fn, done, buffers, scratch, 0, pixels * a.words)

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

        tasks.each(task)


def _mask_last_word(fn: Function, a: LoadedArgs, at: Value, pixels: Value) -> None:
    """Clear the lanes beyond the channels."""

    def pixel(p: Value) -> None:
        word = at + (p * a.out_words + (a.out_words - 1)) * 4
        fn.store(fn.load(word, I32) & a.i32("mask"), word)

    fn.when(a.mask.eq(-1), lambda: None, lambda: fn.loop(pixels, pixel))


def _shuffle_pixels(fn: Function, a: LoadedArgs, source: Value, to: Value, height: Value) -> None:
    """NHWC pixels of 4C channels to twice as many rows and columns of C: lane (dy, dx) of word c is channel c.

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

"""Kernels for rows that are quantized at run time and for 4-bit weights in groups; a strip is a vector of outputs.

Where rows are quantized, `differences` writes q - zp as floats. They and the weights are integers, and a group's sum of
their products stays below 2**24, so floats add it up exactly, in any order. What follows is rounded as the definition
says: once for each operation.

Where rows stay floats, the order of their sums is part of the definition. So a vector never holds neighbours along K,
and every operation is done in that order, for all outputs of a strip at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from refsim.exec.cpu.args import ArgLayout, LoadedArgs
from refsim.exec.cpu.ir import F32, I8, I32, I64, Function, ModuleText, Value, vec
from refsim.ops.base.group_linear import BLOCK
from refsim.ops.base.int4 import ZERO
from refsim.ops.base.row_range import LEAST, NO_RANGE, WIDTH

#: ``per_line`` rows stand in a line of zero points, which takes ``line_bytes``.
DIFFERENCES = ArgLayout("x", "scale", "zp", "values", "k", "per_line", "line_bytes")
#: ``weight`` has the bytes of a file, strip by strip, the outputs of a strip next to each other; ``padded`` outputs.
SUMS = ArgLayout(
    "x", "scale", "weight", "weight_scales", "bias", "out", "rows", "k", "outputs", "padded", "groups", "group_pairs"
)  # fmt: skip
RANGE = ArgLayout("x", "out", "k", "rows", "per_line", "words", "qmin", "qmax")
#: ``table`` has the bytes of a file, the even element of each in the low nibble.
LOOKUP = ArgLayout("indices", "table", "scales", "out", "rows", "width", "groups", "group")

#: Rows that a strip of weights is multiplied with at a time.
ROWS = 4
_MAGIC, _MAGIC_BITS = 12582912.0, 0x4B400000


def differences(module: ModuleText, name: str, *, lanes: int) -> None:
    """Write the kernel: q - zp of every value; tasks are rows."""
    with DIFFERENCES.kernel(module, name) as (fn, a, _, tasks):

        def row(r: Value) -> None:
            inverse = fn.const(1.0, F32) / fn.load(a.pointer("scale") + r * 4, F32)
            at = a.pointer("zp") + (r // a.per_line * a.line_bytes + r % a.per_line)
            zp = fn.load(at, I8).sext(I32).to_f32()
            low, high = fn.const(-128.0, F32) - zp, fn.const(127.0, F32) - zp

            def some(i: Value, width: int) -> None:
                kind = vec(F32, width)
                y = fn.load(a.pointer("x") + (r * a.k + i) * 4, kind) * inverse.splat(width)
                y = y.compare("ord", y).select(y, 0.0).max(low.splat(width)).min(high.splat(width))
                whole = (y + _MAGIC).bits(vec(I32, width)) - _MAGIC_BITS
                fn.store(whole.to_f32(), a.pointer("values") + (r * a.k + i) * 4)

            fn.loop_vectors(a.k, lanes, some)

        tasks.each(row)


def _pair(fn: Function, at: Value, lanes: int) -> tuple[Value, Value]:
    """The weights of two neighbours along K, as floats, for the outputs of a strip."""
    both = fn.load(at, vec(I8, lanes)).zext(I32)
    return ((both & 15) - ZERO).to_f32(), (both.shr(4) - ZERO).to_f32()


def _put(fn: Function, total: Value, to: Value, left: Value, scratch: Value, lanes: int) -> None:
    """Store a strip's results: all, or those that are outputs."""

    def some() -> None:
        fn.store(total, scratch)
        fn.loop(left, lambda i: fn.store(fn.load(scratch + i * 4, I32), to + i * 4))

    fn.when(left >= lanes, lambda: fn.store(total, to), some)


#: What adds up some rows: the first output of a strip, its weights, the rows' numbers, and where they lie.
TotalsOf = Callable[[Function, LoadedArgs, Value, Value, list[Value], list[Value]], Sequence[Value]]


def _in_strips(module: ModuleText, name: str, lanes: int, rows: int, bias: bool, totals_of: TotalsOf) -> None:
    """Write a kernel that adds up ``rows`` rows at a time, for a strip of outputs; tasks are strips."""
    with SUMS.kernel(module, name) as (fn, a, scratch, tasks):

        def strip(t: Value) -> None:
            first = t * lanes
            weight = a.pointer("weight") + t * lanes * (a.k // 2)

            def some(r0: Value) -> None:
                # the last row again, if there is no other
                numbers = [(r0 + i).min(a.rows - 1) for i in range(rows)]
                sources = [a.pointer("x") + r * a.k * 4 for r in numbers]
                totals = totals_of(fn, a, first, weight, numbers, sources)
                for r, total in zip(numbers, totals, strict=True):
                    if bias:
                        total = total + fn.load(a.pointer("bias") + first * 4, vec(F32, lanes))
                    to = a.pointer("out") + (r * a.outputs + first) * 4
                    _put(fn, total, to, a.outputs - first, scratch, lanes)

            fn.loop(a.rows, some, step=rows)

        tasks.each(strip)


def many_rows(module: ModuleText, name: str, *, lanes: int, bias: bool) -> None:
    """Write the kernel for quantized rows, ``x`` being their `differences`; tasks are strips."""
    kind = vec(F32, lanes)

    def totals_of(
        fn: Function, a: LoadedArgs, first: Value, weight: Value, numbers: list[Value], sources: list[Value]
    ) -> Sequence[Value]:
        steps = [fn.load(a.pointer("scale") + r * 4, F32).splat(lanes) for r in numbers]
        none = [fn.const(0.0, kind)] * ROWS

        def group(g: Value, *totals: Value) -> tuple[Value, ...]:
            def pair(j: Value, *sums: Value) -> tuple[Value, ...]:
                at = g * a.group_pairs + j
                even, odd = _pair(fn, weight + at * lanes, lanes)
                added = []
                for acc, source in zip(sums, sources, strict=True):
                    x = source + at * 8
                    both = even * fn.load(x, F32).splat(lanes) + odd * fn.load(x + 4, F32).splat(lanes)
                    added.append(acc + both)
                return tuple(added)

            sums = fn.loop(a.group_pairs, pair, none)
            scales = fn.load(a.pointer("weight_scales") + (g * a.padded + first) * 4, kind)
            rows = zip(sums, steps, totals, strict=True)
            return tuple(acc * (step * scales) + total for acc, step, total in rows)

        return fn.loop(a.groups, group, none)

    _in_strips(module, name, lanes, ROWS, bias, totals_of)


# --- rows that stay floats ---------------------------------------------------------------------------------


def _read(fn: Function, at: Value, flush: bool) -> Value:
    """A float of a row; with ``flush`` a denormal one counts as 0."""
    x = fn.load(at, F32)
    return ((x.bits(I32) & 0x7FFFFFFF) < 0x00800000).select(0.0, x) if flush else x


def _mul_add(fn: Function, x: Value, weight: Value, total: Value, fused: bool) -> Value:
    """x * weight + total in every lane: two roundings, or one if ``fused``."""
    lanes = weight.type.lanes
    if fused:
        return fn.call(f"llvm.fma.v{lanes}f32", weight.type, x.splat(lanes), weight, total)
    return x.splat(lanes) * weight + total


def float_rows(
    module: ModuleText, name: str, *, lanes: int, rows: int, bias: bool, fused: bool, flush: bool
) -> None:
    """Write the kernel for ``rows`` rows at a time that are not quantized: one sum over K; tasks are strips."""
    kind = vec(F32, lanes)

    def totals_of(
        fn: Function, a: LoadedArgs, first: Value, weight: Value, numbers: list[Value], sources: list[Value]
    ) -> Sequence[Value]:
        def group(g: Value, *totals: Value) -> tuple[Value, ...]:
            scales = fn.load(a.pointer("weight_scales") + (g * a.padded + first) * 4, kind)

            def pair(j: Value, *sums: Value) -> tuple[Value, ...]:
                at = g * a.group_pairs + j
                for number, values in enumerate(_pair(fn, weight + at * lanes, lanes)):
                    wf = values * scales
                    sums = tuple(
                        _mul_add(fn, _read(fn, source + at * 8 + 4 * number, flush), wf, total, fused)
                        for total, source in zip(sums, sources, strict=True)
                    )
                return sums

            return fn.loop(a.group_pairs, pair, totals)

        return fn.loop(a.groups, group, [fn.const(0.0, kind)] * rows)

    _in_strips(module, name, lanes, rows, bias, totals_of)


def single_row(
    module: ModuleText, name: str, *, lanes: int, tree: int, bias: bool, fused: bool, flush: bool
) -> None:
    """Write the kernel for rows that stand alone and are not quantized; tasks are strips.

    Scratch holds the sums of the ``tree`` lanes of the definition, a vector of outputs each.
    """
    with SUMS.kernel(module, name) as (fn, a, scratch, tasks):
        kind = vec(F32, lanes)
        step = 4 * lanes

        def strip(t: Value) -> None:
            first = t * lanes
            weight = a.pointer("weight") + t * lanes * (a.k // 2)

            def row(r: Value) -> None:
                fn.loop(tree, lambda i: fn.store(fn.const(0.0, kind), scratch + i * step))

                def four(b: Value) -> None:
                    at = scratch + (b & (tree - 1)) * step
                    total = fn.load(at, kind)
                    group = b * (BLOCK // 2) // a.group_pairs
                    scales = fn.load(a.pointer("weight_scales") + (group * a.padded + first) * 4, kind)
                    for half in range(BLOCK // 2):
                        pair = b * (BLOCK // 2) + half
                        for number, values in enumerate(_pair(fn, weight + pair * lanes, lanes)):
                            x = _read(fn, a.pointer("x") + (r * a.k + pair * 2 + number) * 4, flush)
                            total = _mul_add(fn, x, values * scales, total, fused)
                    fn.store(total, at)

                fn.loop(a.k // BLOCK, four)
                half = tree // 2
                while half:

                    def add(i: Value, half: int = half) -> None:
                        at = scratch + i * step
                        fn.store(fn.load(at, kind) + fn.load(at + half * step, kind), at)

                    fn.loop(half, add)
                    half //= 2
                total = fn.load(scratch, kind)
                if bias:
                    total = total + fn.load(a.pointer("bias") + first * 4, kind)
                to = a.pointer("out") + (r * a.outputs + first) * 4
                _put(fn, total, to, a.outputs - first, scratch, lanes)

            fn.loop(a.rows, row)

        tasks.each(strip)


# --- rows of a table ---------------------------------------------------------------------------------------


def lookup(module: ModuleText, name: str, *, lanes: int, even: bool) -> None:
    """Write the kernel: rows of a table times the scales of their groups; tasks are output rows.

    ``even``: a group has an even number of elements, so that it begins with a whole byte.
    """
    with LOOKUP.kernel(module, name) as (fn, a, _, tasks):

        def row(r: Value) -> None:
            number = fn.load(a.pointer("indices") + r * 4, I32).sext(I64)
            to = a.pointer("out") + r * a.width * 4

            def found() -> None:
                def group(g: Value) -> None:
                    scale = fn.load(a.pointer("scales") + (number * a.groups + g) * 4, F32)

                    def some(i: Value, width: int) -> None:
                        d = g * a.group + i
                        at = a.pointer("table") + (number * (a.width // 2) + d // 2)
                        if width == 1:
                            nibble = fn.load(at, I8).zext(I32).shr((d % 2 * 4).trunc(I32)) & 15
                            fn.store((nibble - ZERO).to_f32() * scale, to + d * 4)
                            return
                        both = fn.load(at, vec(I8, width // 2)).zext(I32)
                        order = [n // 2 + n % 2 * (width // 2) for n in range(width)]
                        nibbles = (both & 15).shuffle(order, both.shr(4))
                        fn.store((nibbles - ZERO).to_f32() * scale.splat(width), to + d * 4)

                    if even:
                        fn.loop_vectors(a.group, lanes, some)
                    else:
                        fn.loop(a.group, lambda i: some(i, 1))

                fn.loop(a.groups, group)

            def none() -> None:
                def zeros(i: Value, width: int) -> None:
                    fn.store(fn.const(0.0, vec(F32, width)), to + i * 4)

                fn.loop_vectors(a.width, lanes, zeros)

            fn.when(number.compare("ult", a.rows), found, none)

        tasks.each(row)


# --- scales and zero points --------------------------------------------------------------------------------


def _scaled(fn: Function, x: Value, k: Value, width: Value, lanes: int) -> tuple[Value, Value, Value]:
    """(scale, lo, hi) of a row that begins at ``x``; ``width``: of the quantized range."""
    kind = vec(F32, lanes)
    zero, one = fn.const(0.0, F32), fn.const(1.0, F32)
    whole = k - k % lanes

    def several(i: Value, lo: Value, hi: Value) -> tuple[Value, Value]:
        v = fn.load(x + i * 4, kind)
        return v.min(lo), v.max(hi)  # the second if the first is NaN

    low, high = fn.loop(whole, several, [fn.const(0.0, kind)] * 2, step=lanes)
    lo, hi = zero, zero
    for lane in range(lanes):
        lo, hi = low.lane(lane).min(lo), high.lane(lane).max(hi)

    def single(i: Value, lo: Value, hi: Value) -> tuple[Value, Value]:
        v = fn.load(x + i * 4, F32)
        return v.min(lo), v.max(hi)

    lo, hi = fn.loop(k, single, [lo, hi], start=whole)
    s = (hi - lo) / width
    nothing = s.eq(0.0) | (one / s).eq(float("inf"))
    s = nothing.select(fn.const(float(NO_RANGE), F32), s)
    least = fn.const(float(LEAST), F32)
    larger, wide = least / s, fn.const(float(LEAST * WIDTH), F32)
    small, no_low, no_high = s < least, lo.eq(0.0), hi.eq(0.0)
    # if both are 0, the scale is not small
    below = no_high.select(zero - wide, lo * larger)
    above = no_low.select(wide, hi * larger)
    return small.select(least, s), small.select(below, lo), small.select(above, hi)


def row_scales(module: ModuleText, name: str, *, lanes: int) -> None:
    """Write the kernel: the scale of every row; tasks are rows."""
    with RANGE.kernel(module, name) as (fn, a, _, tasks):
        width = (a.i32("qmax") - a.i32("qmin")).to_f32()

        def row(r: Value) -> None:
            s, _lo, _hi = _scaled(fn, a.pointer("x") + r * a.k * 4, a.k, width, lanes)
            fn.store(s, a.pointer("out") + r * 4)

        tasks.each(row)


def row_zero_points(module: ModuleText, name: str, *, lanes: int) -> None:
    """Write the kernel: the zero points of rows, four to a word; tasks are words."""
    with RANGE.kernel(module, name) as (fn, a, _, tasks):
        low, high = a.i32("qmin").to_f32(), a.i32("qmax").to_f32()
        width = (a.i32("qmax") - a.i32("qmin")).to_f32()
        zero = fn.const(0.0, F32)

        def magnitude(v: Value) -> Value:
            return (v.bits(I32) & 0x7FFFFFFF).bits(F32)

        def word(t: Value) -> None:
            def byte(i: Value) -> None:
                place = t % a.words * 4 + i
                known = place < a.per_line
                row = t // a.words * a.per_line + known.select(place, 0)
                s, lo, hi = _scaled(fn, a.pointer("x") + row * a.k * 4, a.k, width, lanes)
                below, above = lo / s, hi / s
                left, right = magnitude(low) - magnitude(below), magnitude(high) - magnitude(above)
                z = (left < right).select(low - below, high - above)
                z = z.compare("ord", z).select(z, zero).max(low).min(high)
                whole = (z + _MAGIC).bits(I32) - _MAGIC_BITS
                fn.store(known.select(whole, 0).trunc(I8), a.pointer("out") + t * 4 + i)

            fn.loop(4, byte)

        tasks.each(word)

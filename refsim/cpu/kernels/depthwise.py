"""Depthwise convolution: one vector of channels at a time, taps of a row side by side in each lane.

A task packs its rectangle of the input (pack.py) and turns every row into *units*: at each even column, the bytes of
four neighbouring columns (or the 16-bit values of two) of each channel in one 32-bit lane. An output at an even
column uses units with the weights as they are, one at an odd column with the weights moved by one tap; a tap that
a unit holds beyond the window has weight 0.
"""

from __future__ import annotations

from refsim.cpu.ir import I8, I16, I32, Function, Module, Value, vec
from refsim.cpu.kernels.args import KERNEL_PARAMS, Fields, Loaded
from refsim.cpu.kernels.dot import DOTS, DPBUSD, Dot, dpbusd, madd_pairs
from refsim.cpu.kernels.epilogue import Requant

#: Tasks: images x row blocks x parts, parts fastest. A part is some neighbouring groups of channels: tasks should not
#: write to the same lines of memory. The last group ends at the last channel and may overlap the one before, with the
#: same bytes. `*_pitch`: bytes of a packed row, and of a row of units.
DEPTHWISE = Fields(
    "pack", "pack_args", "unpack", "unpack_args", "weight", "consts", "out",
    "row_blocks", "parts", "groups", "words",
    "out_h", "out_w", "block_h", "stride_h", "pad_h", "pad_w", "reach_h", "dilation_h", "columns",
    "pitch", "unit_pitch", "direct", "out_image", "out_row", "out_pixel",
    "at_units", "at_bytes",
    "inv", "low", "high", "zp",
)  # fmt: skip


def taps_of_unit(dot: Dot) -> int:
    """Neighbouring columns that a unit holds."""
    return 4 if dot is DPBUSD else 2


def units_for(dot: Dot, reach: int, parity: int) -> int:
    """Units that a row of a window needs which begins at an even (0) or odd (1) column."""
    return -(-(reach + parity) // taps_of_unit(dot))


def depthwise(
    module: Module,
    name: str,
    *,
    dot: str,
    lanes: int,
    taps_h: int,
    reach_w: int,
    stride_w: int,
    clamp: str,
    float_zp: bool,
) -> None:
    """Write the kernel for one height of window, one width that it spans, and one horizontal stride."""
    kind = DOTS[dot]
    with module.function(name, KERNEL_PARAMS) as fn:
        block, begin, end, scratch = fn.params
        a = DEPTHWISE.read(fn, block)
        requant = Requant(fn, a, lanes, clamp, float_zp)
        parities = (0, 1) if stride_w % 2 else (0,)
        counts = [units_for(kind, reach_w, parity) for parity in parities]
        vector_bytes = 4 * lanes

        def task(t: Value) -> None:
            part, rest = t % a.parts, t // a.parts
            row0, image = rest % a.row_blocks * a.block_h, rest // a.row_blocks
            last = a.groups * (part + 1) // a.parts
            fn.loop(last, lambda g: group_of(image, row0, g), start=a.groups * part // a.parts)

        def group_of(image: Value, row0: Value, group: Value) -> None:
            height = a.block_h.min(a.out_h - row0)
            word0 = (group * (lanes // 4)).min(a.words - lanes // 4)
            rows = (height - 1) * a.stride_h + a.reach_h
            fn.call_pointer(
                a.pointer("pack"), a.pointer("pack_args"), image, row0 * a.stride_h - a.pad_h, rows,
                fn.i64(0) - a.pad_w, a.columns, word0, fn.i64(lanes // 4), scratch, a.pitch,
            )  # fmt: skip
            units = scratch + a.at_units
            _make_units(fn, a, kind, lanes, scratch, units, rows)

            row_bytes = a.words * 16  # a word per channel
            at = a.pointer("weight") + word0 * 16
            vectors = [fn.load(at + row_bytes * v, vec(I32, lanes)) for v in range(taps_h * sum(counts))]
            weights = []  # [parity][row][unit]
            for count in counts:
                weights.append([vectors[i * count : (i + 1) * count] for i in range(taps_h)])
                vectors = vectors[taps_h * count :]
            consts = a.pointer("consts") + word0 * 16
            direct = a.direct.eq(1)
            corner = a.pointer("out") + (image * a.out_image + row0 * a.out_row + word0 * 4)
            to = direct.select(corner, scratch + a.at_bytes)
            row_step = direct.select(a.out_row, a.out_w * lanes)
            pixel_step = direct.select(a.out_pixel, fn.i64(lanes))

            first, terms = requant.first(consts, 0), requant.terms(consts, row_bytes, 0)

            def output(base: Value, parity: int) -> Value:
                total = first
                for i in range(taps_h):
                    line = base + a.unit_pitch * a.dilation_h * i
                    for q, weight in enumerate(weights[parity][i]):
                        unit = line + q * (taps_of_unit(kind) // 2) * vector_bytes
                        total = _step(fn, kind, total, fn.load(unit, vec(I32, lanes)), weight)
                return requant.apply(total, terms)

            def row(r: Value) -> None:
                line = units + r * a.stride_h * a.unit_pitch
                place = to + r * row_step

                def one(j: Value) -> None:
                    fn.store(output(line + j * (stride_w // 2 * vector_bytes), 0), place + j * pixel_step)

                if len(parities) == 1:
                    fn.loop(a.out_w, one)
                    return

                def pair(i: Value) -> None:
                    base, at = line + i * (stride_w * vector_bytes), place + i * 2 * pixel_step
                    # both before a store: they may share units
                    both = output(base, 0), output(base + (stride_w - 1) // 2 * vector_bytes, 1)
                    for number, made in enumerate(both):
                        fn.store(made, at + pixel_step * number)

                pairs = a.out_w // 2
                fn.loop(pairs, pair)
                last = line + pairs * (stride_w * vector_bytes)
                fn.when(
                    (a.out_w & 1).eq(1), lambda: fn.store(output(last, 0), place + pairs * 2 * pixel_step)
                )

            fn.loop(height, row)

            def spill() -> None:
                fn.call_pointer(
                    a.pointer("unpack"), a.pointer("unpack_args"), image, row0, height, fn.i64(0), a.out_w,
                    word0, fn.i64(lanes // 4), scratch + a.at_bytes, fn.i64(lanes), a.out_w * lanes,
                )  # fmt: skip

            fn.when(direct, lambda: None, spill)

        fn.loop(end, task, start=begin)


def _step(fn: Function, dot: Dot, total: Value, unit: Value, weight: Value) -> Value:
    if dot is DPBUSD:
        return dpbusd(fn, total, unit, weight)
    pairs = vec(I16, 2 * total.type.lanes)
    return total + madd_pairs(fn, unit.bits(pairs), weight.bits(pairs))


def _make_units(
    fn: Function, a: Loaded, dot: Dot, lanes: int, source: Value, units: Value, rows: Value
) -> None:
    """Units at the even columns of every packed row; the last ones read a little of what follows."""
    pixel = lanes * (1 if dot is DPBUSD else 2)

    def one(r: Value, u: Value) -> None:
        at = source + (r * a.pitch + u * 2 * pixel)
        to = units + (r * a.unit_pitch + u * 4 * lanes)
        if dot is DPBUSD:
            four = fn.load(at, vec(I8, 4 * lanes))
            fn.store(four.shuffle([lanes * column + c for c in range(lanes) for column in range(4)]), to)
        else:
            two = [fn.load(at + k * pixel, vec(I16, lanes)) for k in range(2)]
            fn.store(two[0].shuffle([s + c for c in range(lanes) for s in (0, lanes)], two[1]), to)

    count = (a.columns + 1) // 2
    fn.loop(rows, lambda r: fn.loop(count, lambda u: one(r, u)))

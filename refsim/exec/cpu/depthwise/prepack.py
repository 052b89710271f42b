"""Prepack a depthwise convolution for its kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.conv_problem import Window, constant_rows, window
from refsim.exec.cpu.depthwise import kernel
from refsim.exec.cpu.depthwise.kernel import parities, pixels_together, taps_of_unit, units_for
from refsim.exec.cpu.dot import DPBUSD, MADDWD, Dot
from refsim.exec.cpu.gemm.gather import S8, pack, unpack
from refsim.exec.cpu.gemm.prepack import pack_block, unpack_block
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments, Job, combine
from refsim.exec.cpu.narrow import VECTORS, order
from refsim.exec.cpu.runner import makespan
from refsim.exec.cpu.strides import ROWS
from refsim.ops.base.spec import Call

#: A task's region of an input that has to be packed: about this much, so that it stays in near caches.
REGION_BYTES = 48 * 1024
#: Cycles, for estimates: of a vector besides its products, of making a unit of four vectors, of a task.
VECTOR, UNIT, TASK = 3.0, 14.0, 800.0
#: Vectors of weights that the kernel is written out for.
MAX_VECTORS = 64


@dataclass(frozen=True)
class Groups:
    """`count` groups of ``VECTORS * lanes`` channels from `first` on, none ending beyond the last channel."""

    lanes: int
    first: int
    count: int

    def channels(self, total: int) -> np.ndarray:
        """The channel of each lane: int64 (count, vectors, lanes); beyond the last one it stands for none."""
        size = VECTORS * self.lanes
        starts = np.minimum(self.first + size * np.arange(self.count), max(0, total - size))
        return np.minimum(starts[:, None, None] + order(self.lanes), total - 1)


def groups(channels: int, isa: Isa) -> Iterator[Groups]:
    """All channels in groups as wide as the processor's vectors; what is left in one of the narrowest that holds it."""
    lanes = isa.lanes
    while lanes > 4 and VECTORS * lanes > channels:
        lanes //= 2
    whole = channels // (VECTORS * lanes)
    if whole:
        yield Groups(lanes, 0, whole)
    first = whole * VECTORS * lanes
    if first == channels:
        return
    while lanes > 4 and VECTORS * lanes // 2 >= channels - first:
        lanes //= 2
    yield Groups(lanes, first, 1)


def refuses(call: Call) -> str | None:
    w = window(call)
    vectors = sum(units_for(MADDWD, w.reach[1], parity) for parity in parities(w.stride[1])) * w.kernel[0]
    return (
        None if vectors <= MAX_VECTORS else f"a window of {w.kernel[0]} rows that spans {w.reach[1]} columns"
    )


def _weights(w: Window, dot: Dot) -> np.ndarray:
    """Units of weights, int8 or int16: parity with row and unit, channel, tap of the unit."""
    channels, kh, kw = w.weight.shape[0], *w.kernel
    taps = taps_of_unit(dot)
    rows = w.weight.reshape(channels, kh, kw)
    parts = []
    for parity in parities(w.stride[1]):
        count = units_for(dot, w.reach[1], parity)
        line = np.zeros((channels, kh, count * taps), np.int8)
        line[:, :, parity : parity + w.reach[1] : w.dilation[1]] = rows
        parts.append(line.reshape(channels, kh * count, taps))
    units = np.concatenate(parts, 1).transpose(1, 0, 2)
    return units if dot is DPBUSD else units.astype(np.int16)


def lower(call: Call, isa: Isa, threads: int) -> Job:
    """The job of a depthwise convolution."""
    w = window(call)
    dot = DPBUSD if isa.dpbusd else MADDWD
    found = list(groups(w.out.channels, isa))
    rows = _rows(w, isa, dot, found, threads)
    # all channels of some rows, then of the next ones: each thread has rows of its own, as in the steps around
    return combine(
        [_part(call.op.name, w, isa, dot, g, rows) for g in found], w.out.images * -(-w.out.rows // rows)
    )


def _rows(w: Window, isa: Isa, dot: Dot, found: list[Groups], threads: int) -> int:
    """Output rows of a task, so that threads end soonest; tasks make the units of rows that they share again."""
    least_blocks = 1
    if w.x.kind != ROWS:
        row_bytes = 4 * max(g.lanes for g in found) * (w.x.pixels + 2 * w.padding[1])
        fitting = (REGION_BYTES // row_bytes - w.reach[0]) // w.stride[0] + 1
        least_blocks = -(-w.out.rows // max(1, min(w.out.rows, fitting)))
    if threads == 1:
        return -(-w.out.rows // least_blocks)
    products = w.kernel[0] * units_for(dot, w.reach[1], 0)

    def cycles(rows: int) -> float:
        made = (rows - 1) * w.stride[0] + w.reach[0]
        whole = rows * w.out.pixels * VECTORS * (products + VECTOR) + made * w.x.pixels / 2 * UNIT
        blocks = w.out.images * -(-w.out.rows // rows)
        # half as wide takes half as long; a quarter as wide does not take less
        each = [TASK + whole * max(0.5, g.lanes / isa.lanes) for g in found for _ in range(g.count)]
        return makespan(each * blocks, threads)

    first = min(w.out.rows, max(least_blocks, threads))
    last = min(w.out.rows, max(least_blocks, 8 * threads))
    return min((-(-w.out.rows // n) for n in range(first, last + 1)), key=cycles)


def _part(name: str, w: Window, isa: Isa, dot: Dot, part: Groups, block_h: int) -> Job:
    """The job of some groups of channels."""
    lanes, channels = part.lanes, w.out.channels
    words = min(lanes, channels // 4)
    pixel_bytes = 4 * words
    reach, (stride_h, stride_w) = w.reach, w.stride
    at_once = pixels_together(dot, w.kernel[0], reach[1], stride_w)
    # the last pixels that are computed together may lie beyond the row
    last = -(-w.out.pixels // at_once) * at_once - 1
    units = (
        last * stride_w // 2
        + max(units_for(dot, reach[1], p) for p in parities(stride_w)) * taps_of_unit(dot) // 2
    )
    columns = (w.out.pixels - 1) * stride_w + reach[1]
    direct_in, direct_out = (side.kind == ROWS for side in (w.x, w.out))
    region = (block_h - 1) * stride_h + reach[0]
    ring = 1 << (reach[0] - 1).bit_length()
    unit_pitch = units * 4 * VECTORS * lanes
    at_in = ring * unit_pitch
    at_out = at_in + (0 if direct_in else -(-(region * columns * pixel_bytes + 64) // 64) * 64)
    at_none = at_out + (0 if direct_out else block_h * w.out.pixels * pixel_bytes)
    float_zp = w.float_zp and not w.zp_is_exact
    lane = part.channels(channels)
    weight = _weights(w, dot)[:, lane].transpose(1, 0, 2, 3, 4)
    consts = constant_rows(w, dot.offset, float_zp)[:, lane].transpose(1, 0, 2, 3)
    args = Arguments()
    block = args.block(
        kernel.DEPTHWISE,
        {"x": "x", "out": "out"},
        x_image=w.x.image_stride,
        x_row=w.x.row_stride,
        x_pixel=w.x.pixel_stride,
        height=w.x.rows,
        width=w.x.pixels,
        out_image=w.out.image_stride,
        out_row=w.out.row_stride,
        out_pixel=w.out.pixel_stride,
        out_h=w.out.rows,
        out_w=w.out.pixels,
        pack=compiled.address(pack, kind=w.x.kind, element=S8, lanes=isa.lanes, fixed=words),
        pack_args=args.address(pack_block(args, w.x, w.in_zp, (1, 1))),
        unpack=compiled.address(unpack, kind=w.out.kind, fixed=words),
        unpack_args=args.address(unpack_block(args, w.out)),
        direct_in=int(direct_in),
        direct_out=int(direct_out),
        group_words=words,
        columns=columns,
        weight=args.address(np.ascontiguousarray(weight)),
        consts=args.address(np.ascontiguousarray(consts)),
        border=args.address(np.full(4 * lanes, w.in_zp, np.int8)),
        row_blocks=-(-w.out.rows // block_h),
        block_h=block_h,
        groups=part.count,
        first=part.first,
        last_channel=max(0, channels - 4 * lanes),
        stride_h=stride_h,
        pad_h=w.padding[0],
        pad_w=w.padding[1],
        reach_h=reach[0],
        dilation_h=w.dilation[0],
        units=units,
        ring=ring - 1,
        unit_pitch=unit_pitch,
        at_in=at_in,
        at_out=at_out,
        at_none=at_none,
        **w.shared_fields(),
    )
    return args.job(
        name=name,
        kernel=compiled.address(
            kernel.depthwise,
            dot=dot.name,
            lanes=lanes,
            words=words,
            taps_h=w.kernel[0],
            reach_w=reach[1],
            stride_w=stride_w,
            clamp=w.clamp,
            float_zp=float_zp,
            packs=isa.packs,
        ),
        block=block,
        tasks=w.out.images * -(-w.out.rows // block_h) * part.count,
        scratch=at_none + 64,
    )

"""Prepack a depthwise convolution for its kernel.

The constants of the estimate come from layers timed by `python -m bench.peers`
on an AMD EPYC (Zen 4).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from refsim.exec.cpu import compiled
from refsim.exec.cpu.conv_problem import ConvProblem, constant_rows
from refsim.exec.cpu.depthwise import kernel
from refsim.exec.cpu.depthwise.kernel import k4s_for, parities, pixels_together, taps_of_k4
from refsim.exec.cpu.dot import DPBUSD, MADDWD, Dot
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments, Job, combine
from refsim.exec.cpu.narrow import VECTORS, order
from refsim.exec.cpu.nhwc.kernel import S8
from refsim.exec.cpu.runner import makespan
from refsim.exec.cpu.strides import NHWC, TO_PIXEL

#: A task's region of an input that has to be packed: about this much, so that it stays in near caches.
REGION_BYTES = 48 * 1024
#: Cycles, for the estimate of `_rows`: of a vector besides its products, of making a k4 of four vectors, of a task.
VECTOR, K4, TASK = 3.0, 14.0, 800.0


@dataclass(frozen=True)
class ChannelGroups:
    """`count` groups of ``VECTORS * lanes`` channels from `first` on, none ending beyond the last channel."""

    lanes: int
    first: int
    count: int

    def channels(self, total: int, ranges: int) -> np.ndarray:
        """The channel of each lane, once for each range: int64 (count, vectors, lanes * ranges).

        Beyond the last one it stands for none.
        """
        size = VECTORS * self.lanes
        starts = np.maximum(np.minimum(self.first + size * np.arange(self.count), total - size), 0)
        return np.minimum(starts[:, None, None] + order(self.lanes * ranges) % size, total - 1)

    def ranges(self, conv: ConvProblem, isa: Isa, together: int) -> int:
        """Ranges of columns, each at least as wide as what is computed together, so that vectors are full."""
        count = isa.lanes // self.lanes
        while count > 1 and -(-conv.out.pixels // count) < together:
            count //= 2
        return count


def groups(channels: int, isa: Isa) -> Iterator[ChannelGroups]:
    """All channels in groups as wide as the processor's vectors; what is left in one of the narrowest that holds it."""
    lanes = isa.lanes
    while lanes > 4 and VECTORS * lanes > channels:
        lanes //= 2
    whole = channels // (VECTORS * lanes)
    if whole:
        yield ChannelGroups(lanes, 0, whole)
    first = whole * VECTORS * lanes
    if first == channels:
        return
    while lanes > 4 and VECTORS * lanes // 2 >= channels - first:
        lanes //= 2
    yield ChannelGroups(lanes, first, 1)


def _weights(conv: ConvProblem, dot: Dot) -> np.ndarray:
    """K4s of weights, int8 or int16: parity with row and k4, channel, tap of the k4."""
    channels, kh, kw = conv.weight.shape[0], *conv.kernel
    taps = taps_of_k4(dot)
    rows = conv.weight.reshape(channels, kh, kw)
    parts = []
    for parity in parities(conv.stride[1]):
        count = k4s_for(dot, conv.extent[1], parity)
        line = np.zeros((channels, kh, count * taps), np.int8)
        line[:, :, parity : parity + conv.extent[1] : conv.dilation[1]] = rows
        parts.append(line.reshape(channels, kh * count, taps))
    k4s = np.concatenate(parts, 1).transpose(1, 0, 2)
    return k4s if dot is DPBUSD else k4s.astype(np.int16)


def lower(name: str, conv: ConvProblem, isa: Isa, threads: int) -> Job:
    """The job of a depthwise convolution."""
    dot = DPBUSD if isa.dpbusd else MADDWD
    found = list(groups(conv.out.channels, isa))
    rows = _rows(conv, isa, dot, found, threads)
    # all channels of some rows, then of the next ones: each thread has rows of its own, as in the steps around
    return combine(
        [_part(name, conv, isa, dot, g, rows) for g in found],
        conv.out.images * -(-conv.out.rows // rows),
    )


def _rows(conv: ConvProblem, isa: Isa, dot: Dot, found: list[ChannelGroups], threads: int) -> int:
    """Output rows of a task, so that threads end soonest; tasks make the k4s of rows that they share again."""
    least_blocks = 1
    if conv.x.kind != NHWC:
        row_bytes = 4 * max(g.lanes for g in found) * (conv.x.pixels + 2 * conv.padding[1])
        fitting = (REGION_BYTES // row_bytes - conv.extent[0]) // conv.stride[0] + 1
        least_blocks = -(-conv.out.rows // max(1, min(conv.out.rows, fitting)))
    if threads == 1:
        return -(-conv.out.rows // least_blocks)
    products = conv.kernel[0] * k4s_for(dot, conv.extent[1], 0)

    def cycles(rows: int) -> float:
        made = (rows - 1) * conv.stride[0] + conv.extent[0]
        whole = rows * conv.out.pixels * VECTORS * (products + VECTOR) + made * conv.x.pixels / 2 * K4
        blocks = conv.out.images * -(-conv.out.rows // rows)
        each = [TASK + whole * g.lanes / isa.lanes for g in found for _ in range(g.count)]
        return makespan(each * blocks, threads)

    first = min(conv.out.rows, max(least_blocks, threads))
    last = min(conv.out.rows, max(least_blocks, 8 * threads))
    return min((-(-conv.out.rows // n) for n in range(first, last + 1)), key=cycles)


def _part(name: str, conv: ConvProblem, isa: Isa, dot: Dot, part: ChannelGroups, block_h: int) -> Job:
    """The job of some groups of channels."""
    lanes, channels = part.lanes, conv.out.channels
    words = min(lanes, channels // 4)
    pixel_bytes = 4 * words
    extent, (stride_h, stride_w) = conv.extent, conv.stride
    at_once = pixels_together(dot, conv.kernel[0], extent[1], stride_w)
    ranges = part.ranges(conv, isa, at_once)
    range_w = -(-conv.out.pixels // ranges)
    # the last pixels that are computed together may lie beyond the row, or in the next range
    last = -(-range_w // at_once) * at_once - 1
    window_k4s = max(k4s_for(dot, extent[1], p) for p in parities(stride_w))
    k4s = last * stride_w // 2 + window_k4s * taps_of_k4(dot) // 2
    columns = (conv.out.pixels - 1) * stride_w + extent[1]
    direct_in, direct_out = (side.kind == NHWC for side in (conv.x, conv.out))
    region = (block_h - 1) * stride_h + extent[0]
    ring = 1 << (extent[0] - 1).bit_length()
    k4_pitch = k4s * 4 * VECTORS * lanes * ranges
    at_in = ring * k4_pitch
    at_out = at_in + (0 if direct_in else -(-(region * columns * pixel_bytes + 64) // 64) * 64)
    at_none = at_out + (0 if direct_out else block_h * conv.out.pixels * pixel_bytes)
    lane = part.channels(channels, ranges)
    weight = _weights(conv, dot)[:, lane].transpose(1, 0, 2, 3, 4)
    consts = constant_rows(conv, dot.offset)[:, lane].transpose(1, 0, 2, 3)
    args = Arguments()
    block = args.block(
        kernel.DEPTHWISE,
        {"x": "x", "out": "out"},
        **conv.x.fields("x_{}", TO_PIXEL),
        **conv.out.fields("out_{}", TO_PIXEL),
        height=conv.x.rows,
        width=conv.x.pixels,
        out_h=conv.out.rows,
        out_w=conv.out.pixels,
        **conv.side_fields(args, isa, S8, words),
        direct_in=int(direct_in),
        direct_out=int(direct_out),
        group_words=words,
        columns=columns,
        weight=args.address(np.ascontiguousarray(weight)),
        consts=args.address(np.ascontiguousarray(consts)),
        border=args.address(np.full(4 * lanes, conv.in_zp, np.int8)),
        row_blocks=-(-conv.out.rows // block_h),
        block_h=block_h,
        groups=part.count,
        first=part.first,
        last_channel=max(0, channels - 4 * lanes),
        stride_h=stride_h,
        pad_h=conv.padding[0],
        pad_w=conv.padding[1],
        extent_h=extent[0],
        dilation_h=conv.dilation[0],
        k4s=k4s,
        ring=ring - 1,
        k4_pitch=k4_pitch,
        range_w=range_w,
        range_columns=range_w * stride_w,
        at_in=at_in,
        at_out=at_out,
        at_none=at_none,
        **conv.epilogue_fields(args),
    )
    entry = compiled.address(
        kernel.depthwise,
        dot=dot.name,
        lanes=lanes * ranges,
        ranges=ranges,
        words=words,
        taps_h=conv.kernel[0],
        extent_w=extent[1],
        stride_w=stride_w,
        **conv.epilogue_variant(packs=isa.packs),
    )
    tasks = conv.out.images * -(-conv.out.rows // block_h) * part.count
    return args.job(name, entry, block, tasks, at_none + 64)

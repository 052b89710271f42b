"""Prepack a depthwise convolution for its kernel."""

from __future__ import annotations

import numpy as np

from refsim.cpu import native
from refsim.cpu.job import Arguments, Job
from refsim.cpu.kernels import depthwise as kernel
from refsim.cpu.kernels.depthwise import taps_of_unit, units_for
from refsim.cpu.kernels.dot import DPBUSD, MADDWD, Dot
from refsim.cpu.kernels.pack import pack, unpack
from refsim.cpu.lower.gemm import pack_block, unpack_block
from refsim.cpu.lower.window import Window, constant_rows, window
from refsim.cpu.target import Isa
from refsim.cpu.view import ROWS
from refsim.op import Call

#: Units of a task: about this much, so that they stay in near caches.
UNIT_BYTES = 48 * 1024
#: Vectors of weights that the kernel is written out for.
MAX_VECTORS = 64


def _parities(w: Window) -> tuple[int, ...]:
    return (0, 1) if w.stride[1] % 2 else (0,)


def refuses(call: Call) -> str | None:
    w = window(call)
    vectors = sum(units_for(MADDWD, w.reach[1], parity) for parity in _parities(w)) * w.kernel[0]
    return (
        None if vectors <= MAX_VECTORS else f"a window of {w.kernel[0]} rows that spans {w.reach[1]} columns"
    )


def _weights(w: Window, dot: Dot) -> np.ndarray:
    """Units of weights: parity, row, unit, channel, tap of the unit."""
    channels, kh, kw = w.weight.shape[0], *w.kernel
    taps = taps_of_unit(dot)
    rows = w.weight.reshape(channels, kh, kw)
    parts = []
    for parity in _parities(w):
        count = units_for(dot, w.reach[1], parity)
        line = np.zeros((channels, kh, count * taps), np.int8)
        line[:, :, parity : parity + w.reach[1] : w.dilation[1]] = rows
        parts.append(line.reshape(channels, kh * count, taps))
    per_channel = np.concatenate(parts, 1)  # channel, unit, tap
    if dot is not DPBUSD:
        per_channel = per_channel.astype(np.int16)
    return np.ascontiguousarray(per_channel.transpose(1, 0, 2)).view(np.uint8).reshape(-1)


def lower(call: Call, isa: Isa, threads: int) -> Job:
    """The job of a depthwise convolution."""
    w = window(call)
    dot = DPBUSD if isa.dpbusd else MADDWD
    channels = w.out.channels
    lanes = min(isa.lanes, 1 << (channels.bit_length() - 1))
    words = channels // 4
    groups = -(-channels // lanes)
    reach = w.reach
    # windows of outputs read whole units, the last of which may begin past the window
    columns = (w.out.pixels - 1) * w.stride[1] + reach[1] + 2 * taps_of_unit(dot)
    columns += columns % 2
    pitch = columns * lanes * (dot.pixel_bytes // 4)
    unit_pitch = columns // 2 * 4 * lanes
    fitting = (UNIT_BYTES // unit_pitch - reach[0]) // w.stride[0] + 1
    most = -(-w.out.rows // max(1, -(-2 * threads // (groups * w.out.images)))) if threads > 1 else w.out.rows
    block_h = max(1, min(w.out.rows, max(2, fitting), most))
    row_blocks = -(-w.out.rows // block_h)
    block_h = -(-w.out.rows // row_blocks)
    blocks = w.out.images * row_blocks
    parts = min(groups, -(-4 * threads // blocks)) if threads > 1 else 1
    region = (block_h - 1) * w.stride[0] + reach[0]
    float_zp = w.float_zp and not w.zp_is_exact
    at_units = -(-(region * pitch + 64) // 64) * 64
    at_bytes = at_units + region * unit_pitch + 64
    args = Arguments()
    block = args.block(
        kernel.DEPTHWISE,
        {"out": "out"},
        pack=native.address(pack, kind=w.x.kind, element=dot.element, lanes=isa.lanes, fixed=lanes // 4),
        pack_args=args.address(pack_block(args, w.x, w.in_zp, (1, 1))),
        unpack=native.address(unpack, kind=w.out.kind, fixed=lanes // 4),
        unpack_args=args.address(unpack_block(args, w.out)),
        weight=args.address(_weights(w, dot)),
        consts=args.address(constant_rows(w, dot.offset, float_zp).reshape(-1)),
        row_blocks=row_blocks,
        parts=parts,
        groups=groups,
        words=words,
        out_h=w.out.rows,
        out_w=w.out.pixels,
        block_h=block_h,
        stride_h=w.stride[0],
        pad_h=w.padding[0],
        pad_w=w.padding[1],
        reach_h=reach[0],
        dilation_h=w.dilation[0],
        columns=columns,
        pitch=pitch,
        unit_pitch=unit_pitch,
        direct=int(w.out.kind == ROWS),
        out_image=w.out.image_stride,
        out_row=w.out.row_stride,
        out_pixel=w.out.pixel_stride,
        at_units=at_units,
        at_bytes=at_bytes,
        **w.shared_fields(),
    )
    return Job(
        name=call.op.name,
        kernel=native.address(
            kernel.depthwise,
            dot=dot.name,
            lanes=lanes,
            taps_h=w.kernel[0],
            reach_w=reach[1],
            stride_w=w.stride[1],
            clamp=w.clamp,
            float_zp=float_zp,
        ),
        block=block,
        tasks=blocks * parts,
        scratch=at_bytes + block_h * w.out.pixels * lanes + 64,
        slots=tuple(args.slots),
        keep=tuple(args.keep),
    )

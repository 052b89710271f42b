"""Jobs for pooling between a dequantize and a quantize, computed on the bytes themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from refsim.aten.pool import PoolWindow
from refsim.aten.reduce import dealt_and_whole
from refsim.core.layout import C
from refsim.core.qmath import inv_scale
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu import compiled
from refsim.exec.cpu.elementwise import prepack as elementwise
from refsim.exec.cpu.elementwise.prepack import UNBOUNDED, largest
from refsim.exec.cpu.epilogue import clamp_for, shared_fields
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments, Job
from refsim.exec.cpu.pool import kernel
from refsim.exec.cpu.strides import NHWC, TO_PIXEL, strides_of
from refsim.ops.base.spec import Call


def _why_not(x: TensorDesc, out: TensorDesc) -> str | None:
    if strides_of(x).kind != NHWC or strides_of(out).kind != NHWC:
        return "channel words of a pixel are not neighbours"
    if any(side.layout.inner != C for side in (x, out) if len(side.shape) == 4):
        return "channels are not packed"
    return None if len(x.shape) == 4 else f"{len(x.shape)} dims"


def _pixel_bytes(x: TensorDesc) -> int:
    return strides_of(x).words * 4


def _at_once(nbytes: int, most: int) -> int:
    """A power of two, at most all bytes of a pixel."""
    return min(most, 1 << (nbytes.bit_length() - 1))


Bounds = tuple[float, float]


def maxpool(x: Call, bounds: Bounds, args: Sequence[Any], out: Call, isa: Isa) -> tuple[Job, ...] | str:
    """The jobs of dequantize, clamp, max_pool2d and quantize, or why there are none; clamping keeps the order too."""
    source, target = x.descs["x"], out.out
    if (reason := _why_not(source, target)) is not None:
        return reason
    window = PoolWindow.of(source.shape[-2:], *args)
    side, made = strides_of(source), strides_of(target)
    nbytes = _pixel_bytes(source)
    same = bounds == UNBOUNDED and _map_is_identity(x, out)
    arguments = Arguments()
    block = arguments.block(
        kernel.MAXPOOL,
        {"x": "x", "out": "out" if same else "pooled"},
        bytes=nbytes,
        height=side.rows,
        width=side.pixels,
        out_h=made.rows,
        out_w=made.pixels,
        **_pairs(kernel=window.kernel, stride=window.stride, pad=window.padding, dilation=window.dilation),
        **side.fields("x_{}", TO_PIXEL),
        **made.fields("out_{}", TO_PIXEL),
    )
    taps_h, taps_w = window.kernel if _all_in_reach(window) else (0, 0)
    entry = compiled.address(
        kernel.maxpool, size=_at_once(nbytes, 4 * isa.lanes), taps_h=taps_h, taps_w=taps_w
    )
    temps = () if same else (("pooled", target.nbytes),)
    name = "dequantize, max_pool2d, quantize"
    job = arguments.job(name, entry, block, made.images * made.rows, temps=temps)
    if same:
        return (job,)
    after = elementwise.bounded(replace(x, descs={"x": target}), bounds, out)
    return job, elementwise.linear(replace(after, copied=True), isa).renamed(x="pooled")


def _all_in_reach(window: PoolWindow) -> bool:
    """Whether windows are small, have no gaps, and some tap in the image each."""
    lasts = ((n - 1) * s - p for n, s, p in zip(window.out, window.stride, window.padding, strict=True))
    begins = all(last < size for last, size in zip(lasts, window.size, strict=True))
    small = window.kernel[0] * window.kernel[1] <= kernel.MOST_TAPS
    return small and window.dilation == (1, 1) and begins


def _pairs(**values: tuple[int, ...]) -> dict[str, int]:
    return {
        f"{name}_{axis}": size
        for name, sizes in values.items()
        for axis, size in zip("hw", sizes, strict=True)
    }


def _map_is_identity(x: Call, out: Call) -> bool:
    """Whether a dequantize and a quantize give back every byte."""
    every = np.arange(-128, 128, dtype=np.int8)
    real = x.op.define(x.params, x.target, every)
    return bool(np.array_equal(out.op.define(out.params, out.target, real), every))


#: Bytes of a pixel whose means a task makes, and the most vectors of them at once: whole vectors.
MEAN_BYTES, MEAN_VECTORS = 64, 4


def mean(x: Call, bounds: Bounds, args: Sequence[Any], out: Call, isa: Isa) -> tuple[Job, ...] | str:
    """The job of dequantize, clamp, mean over all pixels and quantize, or why there is none."""
    source, target = x.descs["x"], out.out
    if (reason := _why_not(source, target)) is not None:
        return reason
    dims = [d % 4 for d in args[0] or ()]
    if sorted(dims) != [2, 3] or (len(args) > 2 and args[2] is not None):
        return "not over height and width"
    side = strides_of(source)
    lines = {2: (side.rows, side.row_stride), 3: (side.pixels, side.pixel_stride)}
    (outer, x_outer), (inner, x_inner) = (lines[dim] for dim in dealt_and_whole(dims))
    nbytes = _pixel_bytes(source)
    if target.nbytes != nbytes * side.images:
        return "the output has padding"
    p, q = x.params, out.params
    inv = inv_scale(q.scale)
    arguments = Arguments()
    block = arguments.block(
        kernel.MEAN,
        {"x": "x", "out": "out"},
        bytes=nbytes,
        part=MEAN_BYTES,
        parts=-(-nbytes // MEAN_BYTES),
        outer=outer,
        inner=inner,
        x_image=side.image_stride,
        x_outer=x_outer,
        x_inner=x_inner,
        out_image=nbytes,
        count=np.float32(side.rows * side.pixels),
        a_scale=np.float32(p.scale),
        a_zp=p.zp,
        least=np.float32(bounds[0]),
        most=np.float32(bounds[1]),
        **shared_fields(inv, q.zp, relu=False),
    )
    clamp = clamp_for(largest(256.0, p.scale, bounds) * float(inv), q.zp, relu=False)
    entry = compiled.address(
        kernel.mean,
        lanes=_at_once(nbytes, isa.lanes),
        vectors=MEAN_VECTORS if nbytes >= MEAN_VECTORS * isa.lanes else 1,
        bounded=bounds != UNBOUNDED,
        clamp=clamp,
    )
    tasks = side.images * -(-nbytes // MEAN_BYTES)
    return (arguments.job("dequantize, mean, quantize", entry, block, tasks),)

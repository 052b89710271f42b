"""Jobs for quantize and dequantize: `contiguous`, `strided`, and `via_4c` (`contiguous`, then a transposition)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from refsim.core.layout import PACKED_4C, C, H, N, W
from refsim.core.qmath import inv_scale
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu import compiled
from refsim.exec.cpu.epilogue import shared_fields
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments, Job
from refsim.exec.cpu.nhwc.prepack import pack_fields, unpack_fields
from refsim.exec.cpu.quantize import kernel
from refsim.exec.cpu.relayout.prepack import column_strides, transpose_job
from refsim.exec.cpu.strides import TILED, strides_of
from refsim.ops.base.spec import Call

#: Bytes of rows in NHWC scratch that a task works on: few enough for the nearest cache.
ROW_BYTES = 16 * 1024


def _sides(call: Call) -> tuple[TensorDesc, TensorDesc]:
    """The float side and the int8 side."""
    x, out = call.descs["x"], call.out
    return (x, out) if out.is_int8 else (out, x)


def _contiguous_dim(real: TensorDesc) -> int:
    return real.layout.dim_order[-1]


def contiguous_why_not(call: Call) -> str | None:
    """Why the floats do not lie in the order of the int8 words, or None."""
    real, packed = _sides(call)
    same = _contiguous_dim(real) == packed.layout.inner
    return None if same else "the float side is contiguous in another dim"


def strided_why_not(call: Call) -> str | None:
    """Why the call is not between floats along W and words of channels, or None."""
    real, packed = _sides(call)
    fits = _contiguous_dim(real) == W and packed.layout.inner == C
    return None if fits else "not columns of floats to words of channels"


def _values(call: Call) -> dict[str, float | np.floating | int]:
    p = call.params
    return {
        "a_scale": np.float32(p.scale),
        "a_zp": p.zp,
        **shared_fields(inv_scale(p.scale), p.zp, relu=False),
    }


def contiguous(call: Call, isa: Isa) -> Job:
    """The job for a float side that is contiguous in the packed dim."""
    real, packed = _sides(call)
    side = strides_of(packed)
    layout, strides = packed.layout, [4 * s for s in real.strides_whcn]
    row_dim = ({W, H, C} - {layout.inner, layout.outer}).pop()
    quantizes = call.out.is_int8
    columns = -(-side.pixels // 4) * 4 if side.kind == TILED and quantizes else side.pixels
    row_bytes = columns * side.words * 4
    per_task = max(1, min(side.rows, ROW_BYTES // row_bytes))
    args = Arguments()
    move = unpack_fields(args, side, name="move") if quantizes else pack_fields(args, side, isa, name="move")
    block = args.block(
        kernel.CONTIGUOUS,
        {"real": "x" if quantizes else "out"},
        real_image=strides[N],
        real_row=strides[row_dim],
        real_pixel=strides[layout.outer],
        **move,
        height=side.rows,
        width=side.pixels,
        columns=columns,
        channels=side.channels,
        words=side.words,
        row_blocks=-(-side.rows // per_task),
        rows_per_task=per_task,
        **_values(call),
    )
    build = kernel.quantize_contiguous if quantizes else kernel.dequantize_contiguous
    entry = compiled.address(build, lanes=isa.lanes)
    tasks = side.images * -(-side.rows // per_task)
    return args.job(call.op.name, entry, block, tasks, per_task * row_bytes + 64)


def strided(call: Call, isa: Isa) -> Job:
    """The job between columns of floats and words of channels."""
    real, packed = _sides(call)
    side = strides_of(packed)
    strides = [4 * s for s in real.strides_whcn]
    quantizes = call.out.is_int8
    args = Arguments()
    block = args.block(
        kernel.STRIDED,
        {"real": "x", "int8": "out"} if quantizes else {"real": "out", "int8": "x"},
        real_image=strides[N],
        real_row=strides[H],
        real_channel=strides[C],
        zeros=args.address(np.zeros(64, np.float32)),
        **side.fields("{}_stride"),
        height=side.rows,
        width=side.pixels,
        columns=-(-side.pixels // 4) * 4 if side.kind == TILED else side.pixels,
        channels=side.channels,
        words=side.words,
        **_values(call),
    )
    entry = (
        compiled.address(kernel.quantize_strided, lanes=isa.lanes, kind=side.kind, packs=isa.packs)
        if quantizes
        else compiled.address(kernel.dequantize_strided, lanes=isa.lanes, kind=side.kind)
    )
    job = args.job(call.op.name, entry, block, side.images * side.rows, 4 * isa.lanes)
    whole = quantizes and side.pixels % isa.lanes == 0  # the last vector of a row ends with it
    return replace(job, exact=("x",)) if whole else job


def via_4c_why_not(call: Call) -> str | None:
    """Why the call is not between floats along C and words of columns, or None."""
    real, packed = _sides(call)
    fits = _contiguous_dim(real) == C and packed.layout.inner == W
    return None if fits else "not channels of floats to words of columns"


def via_4c(call: Call, isa: Isa) -> tuple[Job, Job]:
    """Two jobs between channels of floats and words of columns: by way of 4C."""
    _, packed = _sides(call)
    middle = TensorDesc(packed.shape, PACKED_4C)
    side = column_strides(packed)
    if call.out.is_int8:
        first = contiguous(replace(call, out=middle), isa).renamed(out="middle")
        second = transpose_job(call.op.name, middle, side, "middle", to_columns=True, fill=call.params.zp)
    else:
        first = transpose_job(call.op.name, middle, side, "x", to_columns=False).renamed(out="middle")
        second = contiguous(replace(call, descs={"x": middle}), isa).renamed(x="middle")
    return replace(first, temps=(("middle", middle.nbytes),)), second

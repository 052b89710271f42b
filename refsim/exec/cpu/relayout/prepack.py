"""Jobs that move bytes from one layout to another, or from and to plain NCHW bytes.

`repack` is for two sides that pack the same dim: words move as they are. `transpose` is for a side that packs channels
and one that packs columns, or plain NCHW bytes: the bytes of a word go to four places.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from refsim.core.layout import C, W
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu import compiled
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.job import Arguments, Job
from refsim.exec.cpu.relayout import repack as repack_kernel
from refsim.exec.cpu.relayout import transpose as transpose_kernel
from refsim.exec.cpu.strides import NHWC, PLANAR, TILED, PackedStrides, strides_of
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import Family

#: Numbers of lanes, tiles or parts that kernels are written for, the largest first.
SIZES = (4, 2, 1)
#: Pixel16s of a task of `transpose`. Chosen on an AMD EPYC (Zen 4), `python -m bench.layouts`.
TASK_PIXEL16S = 64


@dataclass(frozen=True)
class ColumnStrides:
    """A side that packs columns: strides in bytes of an image, a channel, a row; bytes of a row.

    ``blocked``: its blocks hold four rows, and ``row`` is the stride of four.
    """

    image: int
    channel: int
    row: int
    row_bytes: int
    blocked: bool


def column_strides(desc: TensorDesc) -> ColumnStrides:
    """The strides of a tensor whose layout packs columns."""
    block = desc.layout.block_numel
    _, h, c, n = (stride * block for stride in desc.strides_whcn)
    blocked = desc.layout.outer_block > 1
    return ColumnStrides(n, c, h, -(-desc.sizes_whcn[W] // 4) * 4, blocked)


def nchw_strides(sizes_whcn: tuple[int, int, int, int]) -> ColumnStrides:
    """Plain NCHW bytes."""
    w, h, c, _ = sizes_whcn
    return ColumnStrides(c * h * w, h * w, w, w, False)


def transpose_job(
    call_name: str, packed: TensorDesc, other: ColumnStrides, source: str, to_columns: bool, fill: int = 0
) -> Job:
    """The job between a tensor that packs channels and another side that packs columns, or plain NCHW bytes.

    ``source`` is the input buffer's name; ``to_columns``: the tensor is the source; ``fill`` pads the output.
    """
    assert packed.layout.inner == C
    side = strides_of(packed)
    kind, height, width = side.kind, side.rows, side.pixels
    if side.words == 1 and (kind == NHWC or width % 4 == 0):
        kind = PLANAR  # the same bytes
    if (
        not other.blocked
        and other.row == other.row_bytes == width
        and 4 * side.row_stride == width * side.pixel4_stride
    ):
        height, width = 1, height * width  # rows follow each other on both sides
    rows, columns = transpose_kernel.PIXEL16[other.blocked]
    groups, pixel4s = -(-height // rows), -(-width // 4)
    task_pixel4s = min(pixel4s, TASK_PIXEL16S * columns // 4)
    task_groups = max(1, TASK_PIXEL16S * columns // 4 // pixel4s)
    args = Arguments()
    c_buffer, w_buffer = (source, "out") if to_columns else ("out", source)
    block = args.block(
        transpose_kernel.TRANSPOSE,
        {"c_side": c_buffer, "w_side": w_buffer},
        c_image=side.image_stride,
        c_group=side.row_stride * rows,
        c_pixel4=side.pixel4_stride,
        c_next=side.row_stride if other.blocked else side.pixel4_stride,
        c_pixel=side.pixel_stride,
        c_word=side.word_stride,
        w_image=other.image,
        w_channel=other.channel,
        w_group=other.row,
        height=height,
        width=width,
        channels=side.channels,
        words=side.words,
        row_bytes=other.row_bytes * side.rows if height < side.rows else other.row_bytes,
        fill=(fill & 255) * 0x01010101,
        fills=args.address(np.full(64, fill, np.int8)),
        groups=groups,
        pixel4s=pixel4s,
        task_groups=task_groups,
        task_pixel4s=task_pixel4s,
    )
    # two lines of each channel before the next channels; one where that would push pixels out of the first cache
    # (chosen on an AMD EPYC, Zen 4, `python -m bench.layouts`)
    most = 8 if side.words <= 24 else 4
    together = next((n for n in (most, *SIZES) if n * columns <= width), 1)
    lanes = min(together, 4 if kind == PLANAR else cpu().isa.lanes // 4)
    parts = 1
    if kind == NHWC and not to_columns:  # whole lines, rather half ones without a rest
        fitting = [n for n in SIZES if 4 * n <= side.words] or [1]
        parts = max(fitting, key=lambda n: (n > 1 and side.words % (4 * n) == 0, n))
    if kind == TILED:
        lanes = next(n for n in SIZES if n <= min(lanes, side.words))
    entry = compiled.address(
        transpose_kernel.transpose,
        kind=kind,
        to_columns=to_columns,
        blocked=other.blocked,
        pixel16s=together,
        lanes=lanes,
        parts=parts,
    )
    tasks = side.images * -(-groups // task_groups) * -(-pixel4s // task_pixel4s)
    return args.job(call_name, entry, block, tasks, transpose_kernel.SCRATCH)


def repack_why_not(call: Call) -> str | None:
    """Why a clone or staging step is not a repack within a packed dim."""
    if call.op.family is not Family.RELAYOUT:
        packed = _packed(call)
        if packed.layout.inner != W:
            return "the layout packs channels"
        # a last word would reach into the next row, which another thread may be at
        partial = call.op.family is Family.STAGE_OUT and packed.sizes_whcn[W] % 4
        return "rows of NCHW end within a word" if partial else None
    x, out = call.descs["x"].layout, call.out.layout
    if x == out:
        return "layouts are equal"
    return None if x.inner == out.inner else "layouts pack different dims"


def _packed(call: Call) -> TensorDesc:
    """The side of a staging step that is not plain NCHW bytes."""
    return call.out if call.op.family is Family.STAGE_IN else call.descs["x"]


def _plain(packed: PackedStrides) -> PackedStrides:
    """Plain NCHW bytes in the terms of a layout that packs columns: its channels are columns, its pixels are rows."""
    width, height = packed.channels, packed.pixels
    return replace(
        packed,
        kind=NHWC,
        image_stride=packed.rows * height * width,
        row_stride=height * width,
        pixel4_stride=4 * width,
        pixel_stride=width,
        word_stride=4,
    )


def _sides(call: Call) -> tuple[PackedStrides, PackedStrides]:
    if call.op.family is Family.STAGE_IN:
        return _plain(strides_of(call.out)), strides_of(call.out)
    if call.op.family is Family.STAGE_OUT:
        return strides_of(call.descs["x"]), _plain(strides_of(call.descs["x"]))
    return strides_of(call.descs["x"]), strides_of(call.out)


def _quarters(side: PackedStrides) -> PackedStrides:
    """Pixels that follow each other without padding, taken as four long ones."""
    longer = side.pixels // 4
    return replace(
        side,
        pixels=4,
        channels=side.channels * longer,
        pixel_stride=side.pixel_stride * longer,
        pixel4_stride=side.pixel4_stride * longer,
    )


def repack(call: Call) -> Job:
    """The job of a clone between two layouts that pack the same dim, or between columns and plain NCHW bytes."""
    x, out = _sides(call)
    if x.kind == out.kind and x.pixel_stride == out.pixel_stride == x.channels and x.pixels % 4 == 0:
        x, out = _quarters(x), _quarters(out)  # the same bytes: long rows
    args = Arguments()
    spare = 4 * x.words - x.channels
    block = args.block(
        repack_kernel.REPACK,
        {"x": "x", "out": "out"},
        **x.fields("x_{}"),
        **out.fields("out_{}"),
        height=x.rows,
        width=x.pixels,
        words=x.words,
        mask=(1 << 8 * (4 - spare)) - 1 if spare else -1,
    )
    tiles = {NHWC: x.words // 4, PLANAR: x.pixels // 4}.get(out.kind, 1)
    at_once = next((n for n in SIZES if n <= tiles), 1)
    entry = compiled.address(repack_kernel.repack, source=x.kind, to=out.kind, at_once=at_once)
    return args.job(call.op.name, entry, block, x.images * x.rows)


def transpose_why_not(call: Call) -> str | None:
    """Why a clone or staging step is not a transposition."""
    if call.op.family is Family.RELAYOUT:
        same = call.descs["x"].layout.inner == call.out.layout.inner
        return "both layouts pack the same dim" if same else None
    return None if _packed(call).layout.inner == C else "the layout packs columns"


def transpose(call: Call) -> Job:
    """The job of a clone or staging step."""
    name, family, x, out = call.op.name, call.op.family, call.descs["x"], call.out
    if family is Family.STAGE_IN:
        return transpose_job(name, out, nchw_strides(out.sizes_whcn), "x", to_columns=False)
    if family is Family.STAGE_OUT:
        return transpose_job(name, x, nchw_strides(x.sizes_whcn), "x", to_columns=True)
    if x.layout.inner == C:
        return transpose_job(name, x, column_strides(out), "x", to_columns=True)
    return transpose_job(name, out, column_strides(x), "x", to_columns=False)

"""Jobs that move bytes between layouts: of the same packed dim, or across, and from and to contiguous NCHW bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from refsim.core.layout import C, W
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu import compiled
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.job import Arguments, Job
from refsim.exec.cpu.relayout import kernel as repack
from refsim.exec.cpu.relayout import transpose as kernel
from refsim.exec.cpu.strides import BLOCKS, PLANES, ROWS, View, view
from refsim.ops.base.spec import Call

#: Lanes of vectors, and what is done together.
SIZES = (4, 2, 1)
#: Units of a task of `cross`.
TASK_UNITS = 64


@dataclass(frozen=True)
class Columns:
    """A side that packs columns: strides in bytes of an image, a channel, a row or four, a quad of columns."""

    image: int
    channel: int
    row: int
    quad: int
    row_bytes: int
    blocked: bool


def columns(desc: TensorDesc) -> Columns:
    """The strides of a tensor whose layout packs columns."""
    block = desc.layout.block_numel
    w, h, c, n = (stride * block for stride in desc.strides_whcn)
    blocked = desc.layout.outer_block > 1
    return Columns(n, c, h, w, -(-desc.sizes_whcn[W] // 4) * 4, blocked)


def contiguous(sizes_whcn: tuple[int, int, int, int]) -> Columns:
    """Plain NCHW bytes."""
    w, h, c, _ = sizes_whcn
    return Columns(c * h * w, h * w, w, 4, w, False)


def cross(
    call_name: str, packed: TensorDesc, other: Columns, source: str, to_columns: bool, fill: int = 0
) -> Job:
    """The job between a tensor that packs channels and the other side; ``source`` is the input buffer's name."""
    assert packed.layout.inner == C
    side = view(packed)
    kind, height, width = side.kind, side.rows, side.pixels
    if side.words == 1 and (kind == ROWS or width % 4 == 0):
        kind = PLANES  # the same bytes
    if (
        not other.blocked
        and other.row == other.row_bytes == width
        and 4 * side.row_stride == width * side.quad_stride
    ):
        height, width = 1, height * width  # rows follow each other on both sides
    rows, columns = kernel.UNIT[other.blocked]
    groups, quads = -(-height // rows), -(-width // 4)
    task_quads = min(quads, TASK_UNITS * columns // 4)
    task_groups = max(1, TASK_UNITS * columns // 4 // quads)
    args = Arguments()
    c_buffer, w_buffer = (source, "out") if to_columns else ("out", source)
    block = args.block(
        kernel.CROSS,
        {"c_side": c_buffer, "w_side": w_buffer},
        c_image=side.image_stride,
        c_group=side.row_stride * rows,
        c_quad=side.quad_stride,
        c_next=side.row_stride if other.blocked else side.quad_stride,
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
        quads=quads,
        task_groups=task_groups,
        task_quads=task_quads,
    )
    # two lines of each channel before the next channels; one where that would push pixels out of the first cache
    most = 8 if side.words <= 24 else 4
    together = next((n for n in (most, *SIZES) if n * columns <= width), 1)
    lanes = min(together, 4 if kind == PLANES else cpu().isa.lanes // 4)
    parts = 1
    if kind == ROWS and not to_columns:  # whole lines, rather half ones without a rest
        fitting = [n for n in SIZES if 4 * n <= side.words] or [1]
        parts = max(fitting, key=lambda n: (n > 1 and side.words % (4 * n) == 0, n))
    if kind == BLOCKS:
        lanes = next(n for n in SIZES if n <= min(lanes, side.words))
    return args.job(
        name=call_name,
        kernel=compiled.address(
            kernel.cross,
            kind=kind,
            to_columns=to_columns,
            blocked=other.blocked,
            units=together,
            lanes=lanes,
            parts=parts,
        ),
        block=block,
        tasks=side.images * -(-groups // task_groups) * -(-quads // task_quads),
        scratch=kernel.SCRATCH,
    )


def same_refuses(call: Call) -> str | None:
    """Why a clone or staging step is not a repack within a packed dim."""
    if call.op.name != "q8ta_clone":
        packed = _packed(call)
        if packed.layout.inner != W:
            return "the layout packs channels"
        # a last word would reach into the next row, which another thread may be at
        partial = call.op.name == "int8x4_to_nchw" and packed.sizes_whcn[W] % 4
        return "rows of NCHW end within a word" if partial else None
    x, out = call.descs["x"].layout, call.out.layout
    if x == out:
        return "layouts are equal"
    return None if x.inner == out.inner else "layouts pack different dims"


def _packed(call: Call) -> TensorDesc:
    """The side of a staging step that is not plain NCHW bytes."""
    return call.out if call.op.name == "nchw_to_int8x4" else call.descs["x"]


def _plain(packed: View) -> View:
    """NCHW bytes as the view of a layout that packs columns has them: pixels are rows."""
    width, height = packed.channels, packed.pixels
    return replace(
        packed,
        kind=ROWS,
        image_stride=packed.rows * height * width,
        row_stride=height * width,
        quad_stride=4 * width,
        pixel_stride=width,
        word_stride=4,
    )


def _sides(call: Call) -> tuple[View, View]:
    if call.op.name == "nchw_to_int8x4":
        return _plain(view(call.out)), view(call.out)
    if call.op.name == "int8x4_to_nchw":
        return view(call.descs["x"]), _plain(view(call.descs["x"]))
    return view(call.descs["x"]), view(call.out)


def _quarters(side: View) -> View:
    """Pixels that follow each other without padding, as four long ones."""
    longer = side.pixels // 4
    return replace(
        side,
        pixels=4,
        channels=side.channels * longer,
        pixel_stride=side.pixel_stride * longer,
        quad_stride=side.quad_stride * longer,
    )


def same(call: Call) -> Job:
    """The job of a clone between two layouts that pack the same dim, or between columns and plain NCHW bytes."""
    x, out = _sides(call)
    if x.kind == out.kind and x.pixel_stride == out.pixel_stride == x.channels and x.pixels % 4 == 0:
        x, out = _quarters(x), _quarters(out)  # the same bytes: long rows
    args = Arguments()
    sides: dict[str, int] = {}
    for name, side in (("x", x), ("out", out)):
        sides |= {
            f"{name}_image": side.image_stride,
            f"{name}_row": side.row_stride,
            f"{name}_quad": side.quad_stride,
            f"{name}_pixel": side.pixel_stride,
            f"{name}_word": side.word_stride,
        }
    spare = 4 * x.words - x.channels
    block = args.block(
        repack.REPACK,
        {"x": "x", "out": "out"},
        **sides,
        height=x.rows,
        width=x.pixels,
        words=x.words,
        mask=(1 << 8 * (4 - spare)) - 1 if spare else -1,
    )
    cells = {ROWS: x.words // 4, PLANES: x.pixels // 4}.get(out.kind, 1)
    at_once = next((n for n in SIZES if n <= cells), 1)
    return args.job(
        name=call.op.name,
        kernel=compiled.address(repack.repack, source=x.kind, to=out.kind, at_once=at_once),
        block=block,
        tasks=x.images * x.rows,
        scratch=0,
    )


def cross_refuses(call: Call) -> str | None:
    """Why a clone or staging step is not a crossing."""
    if call.op.name == "q8ta_clone":
        same = call.descs["x"].layout.inner == call.out.layout.inner
        return "both layouts pack the same dim" if same else None
    return None if _packed(call).layout.inner == C else "the layout packs columns"


def lower(call: Call) -> Job:
    """The job of a clone or staging step."""
    name, x, out = call.op.name, call.descs["x"], call.out
    if name == "nchw_to_int8x4":
        return cross(name, out, contiguous(out.sizes_whcn), "x", to_columns=False)
    if name == "int8x4_to_nchw":
        return cross(name, x, contiguous(x.sizes_whcn), "x", to_columns=True)
    if x.layout.inner == C:
        return cross(name, x, columns(out), "x", to_columns=True)
    return cross(name, out, columns(x), "x", to_columns=False)

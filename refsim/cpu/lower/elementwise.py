"""Jobs for add, relu, clone and pixel shuffle."""

from __future__ import annotations

from math import prod

import numpy as np

from refsim.cpu import native
from refsim.cpu.job import Arguments, Job
from refsim.cpu.kernels import elementwise as kernel
from refsim.cpu.kernels.elementwise import ADD, ADD_SCALED, COPY, RESCALE
from refsim.cpu.kernels.epilogue import FULL, clamp_for, shared_fields
from refsim.cpu.kernels.pack import S8, pack, unpack
from refsim.cpu.lower.gemm import pack_block, unpack_block
from refsim.cpu.target import Isa
from refsim.cpu.view import view
from refsim.op import Call
from refsim.qmath import inv_scale

WORDS_PER_TASK = 16 * 1024
ROW_BYTES = 16 * 1024

Fields = dict[str, float | np.floating | int]


def _plain(call: Call) -> tuple[str, str, Fields]:
    """Operation, clamp and parameters of a call."""
    p, name = call.params, call.op.name
    if name == "q8ta_add":
        op = ADD if p.alpha == 1.0 else ADD_SCALED
        inv = inv_scale(p.out_scale)
        bound = 255.0 * (p.a_scale + abs(p.alpha) * p.b_scale) * float(inv)
        own: Fields = {"a_scale": np.float32(p.a_scale), "a_zp": p.a_zp, "b_scale": np.float32(p.b_scale)}
        own |= {"b_zp": p.b_zp, "alpha": np.float32(p.alpha), **shared_fields(inv, p.out_zp, relu=False)}
        return op, clamp_for(bound, p.out_zp, relu=False), own
    nothing: Fields = {"b_scale": 0.0, "b_zp": 0, "alpha": 1.0}
    if name == "q8ta_clone" or (name == "q8ta_pixel_shuffle" and p.moves_bytes):
        return (
            COPY,
            FULL,
            {"a_scale": 1.0, "a_zp": 0, **nothing, **shared_fields(np.float32(1.0), 0, relu=False)},
        )
    relu = name == "q8ta_relu"
    inv = inv_scale(p.out_scale) if relu else np.float32(p.out_inv_scale)
    bound = 255.0 * p.in_scale * float(inv)
    own = {
        "a_scale": np.float32(p.in_scale),
        "a_zp": p.in_zp,
        **nothing,
        **shared_fields(inv, p.out_zp, relu),
    }
    return RESCALE, clamp_for(bound, p.out_zp, relu), own


def has_padding(call: Call) -> bool:
    """Whether the output's buffer holds bytes that are no elements."""
    return call.out.nbytes != prod(call.out.shape)


def flat_refuses(call: Call) -> str | None:
    """Why a call cannot run over its buffers from end to end."""
    layouts = {d.layout for d in call.descs.values()} | {call.out.layout}
    if len(layouts) > 1:
        return "layouts differ"
    copies = call.op.name == "q8ta_clone"
    return "the output has padding" if has_padding(call) and not copies else None


def flat(call: Call, isa: Isa) -> Job:
    """One job over whole buffers."""
    op, clamp, own = _plain(call)
    words = call.out.nbytes // 4
    args = Arguments()
    names = list(call.descs)
    buffers = {"a": names[0], "out": "out"} | ({"b": names[1]} if len(names) > 1 else {})
    block = args.block(
        kernel.FLAT,
        buffers,
        words=words,
        words_per_task=WORDS_PER_TASK,
        **({} if "b" in buffers else {"b": 0}),
        **own,
    )
    return Job(
        name=call.op.name,
        kernel=native.address(kernel.flat, op=op, lanes=isa.lanes, clamp=clamp),
        block=block,
        tasks=-(-words // WORDS_PER_TASK),
        scratch=0,
        slots=tuple(args.slots),
        keep=tuple(args.keep),
    )


def rows_refuses(call: Call) -> str | None:
    """Why a call cannot run over pixel rows."""
    packed = {d.layout.inner for d in call.descs.values()} | {call.out.layout.inner}
    if len(packed) > 1:
        return "layouts pack different dims"
    if call.op.name == "q8ta_clone" and call.padding.copied:
        return "padding is copied"
    if call.op.name == "q8ta_pixel_shuffle" and call.params.upscale != 2:
        return f"upscale {call.params.upscale}"
    return None


def rows(call: Call, isa: Isa) -> Job:
    """One job over blocks of pixel rows."""
    op, clamp, own = _plain(call)
    shuffle = call.op.name == "q8ta_pixel_shuffle"
    names = list(call.descs)
    x, out = view(call.descs[names[0]]), view(call.out)
    row_bytes = x.pixels * x.words * 4
    per_task = max(1, min(x.rows, ROW_BYTES // row_bytes))
    size = -(-per_task * row_bytes // 64) * 64 + 64  # a shuffle reads a little beyond the last pixel
    args = Arguments()
    packed = {}
    for letter, name in zip("ab", [*names, names[0]], strict=False):
        source = view(call.descs[name])
        packed[f"pack_{letter}"] = native.address(
            pack, kind=source.kind, element=S8, lanes=isa.lanes, fixed=0
        )
        packed[f"pack_{letter}_args"] = args.address(pack_block(args, source, 0, (1, 1), name))
    spare = out.words * 4 - out.channels
    block = args.block(
        kernel.ROWS_OF,
        {},
        **packed,
        unpack=native.address(unpack, kind=out.kind, fixed=0),
        unpack_args=args.address(unpack_block(args, out)),
        height=x.rows,
        width=x.pixels,
        words=x.words,
        out_words=out.words,
        row_blocks=-(-x.rows // per_task),
        rows_per_task=per_task,
        mask=(1 << (8 * (4 - spare))) - 1 if spare else -1,
        at_b=size,
        at_out=2 * size,
        **own,
    )
    return Job(
        name=call.op.name,
        kernel=native.address(kernel.rows, op=op, lanes=isa.lanes, clamp=clamp, shuffle=shuffle),
        block=block,
        tasks=x.images * -(-x.rows // per_task),
        scratch=2 * size + 4 * per_task * x.pixels * out.words * 4 + 64,
        slots=tuple(args.slots),
        keep=tuple(args.keep),
    )

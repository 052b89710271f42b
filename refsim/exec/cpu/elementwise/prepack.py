"""Jobs for add, relu, clone and pixel shuffle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from refsim.core.qmath import inv_scale
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu import compiled
from refsim.exec.cpu.elementwise import kernel
from refsim.exec.cpu.elementwise.kernel import ADD, ADD_SCALED, BOUNDED, COPY, RESCALE
from refsim.exec.cpu.epilogue import clamp_for, shared_fields
from refsim.exec.cpu.gemm.gather import S8, pack, unpack
from refsim.exec.cpu.gemm.prepack import pack_block, unpack_block
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments, Job
from refsim.exec.cpu.strides import view
from refsim.ops.base.spec import Call

WORDS_PER_TASK = 16 * 1024
ROW_BYTES = 16 * 1024

Scalars = dict[str, float | np.floating | int]


@dataclass(frozen=True)
class Elementwise:
    """What is done with each element: kernel operation, clamp, parameters; descriptions by buffer name.

    ``shuffle``: channels become 2x2 pixels. ``copied``: padding moves along. ``tables``: for operations that have them.
    """

    name: str
    inputs: Mapping[str, TensorDesc]
    out: TensorDesc
    op: str
    clamp: str
    values: Scalars
    shuffle: bool = False
    copied: bool = False
    tables: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int8))

    @property
    def has_padding(self) -> bool:
        """Whether the output's buffer holds bytes that are no elements."""
        return self.out.nbytes != prod(self.out.shape)


_UNUSED: Scalars = {
    "a_scale": 1.0,
    "a_zp": 0,
    "b_scale": 0.0,
    "b_zp": 0,
    "alpha": 1.0,
    "least": 0.0,
    "most": 0.0,
}


def describe(call: Call) -> Elementwise:
    """An add, relu, clone or pixel shuffle."""
    p, name = call.params, call.op.name
    relu = name == "q8ta_relu"
    if name == "q8ta_add":
        op = ADD if p.alpha == 1.0 else ADD_SCALED
        inv = inv_scale(p.out_scale)
        bound = 255.0 * (p.a_scale + abs(p.alpha) * p.b_scale) * float(inv)
        own: Scalars = {"a_scale": np.float32(p.a_scale), "a_zp": p.a_zp, "b_scale": np.float32(p.b_scale)}
        own |= {"b_zp": p.b_zp, "alpha": np.float32(p.alpha), **shared_fields(inv, p.out_zp, relu)}
    elif name == "q8ta_clone" or (name == "q8ta_pixel_shuffle" and p.moves_bytes):
        op, bound, own = COPY, 0.0, shared_fields(np.float32(1.0), 0, relu)
    else:
        op = RESCALE
        inv = inv_scale(p.out_scale) if relu else np.float32(p.out_inv_scale)
        bound = 255.0 * p.in_scale * float(inv)
        own = {"a_scale": np.float32(p.in_scale), "a_zp": p.in_zp, **shared_fields(inv, p.out_zp, relu)}
    clamp = clamp_for(bound, int(own["zp"]), relu)
    shuffle, copied = name == "q8ta_pixel_shuffle", name == "q8ta_clone"
    return Elementwise(name, call.descs, call.out, op, clamp, _UNUSED | own, shuffle, copied)


#: What clamps to nothing.
UNBOUNDED = (float("-inf"), float("inf"))


def largest(steps: float, scale: float, bounds: tuple[float, float]) -> float:
    """The magnitude that real values of at most so many steps have at most, once they are clamped to bounds."""
    least, most = bounds
    return max(steps * scale, least, -most)


def bounded(x: Call, bounds: tuple[float, float], out: Call) -> Elementwise:
    """A dequantize, a clamp of the real values, and a quantize, as one."""
    p, q = x.params, out.params
    inv = inv_scale(q.scale)
    own = _UNUSED | {"a_scale": np.float32(p.scale), "a_zp": p.zp, **shared_fields(inv, q.zp, relu=False)}
    own |= {"least": np.float32(bounds[0]), "most": np.float32(bounds[1])}
    clamp = clamp_for(largest(255.0, p.scale, bounds) * float(inv), q.zp, relu=False)
    name = "dequantize, quantize" if bounds == UNBOUNDED else "dequantize, clamp, quantize"
    op = RESCALE if bounds == UNBOUNDED else BOUNDED
    return Elementwise(name, x.descs, out.out, op, clamp, own)


def refuses(e: Elementwise) -> str | None:
    """Why an operation has no kernel."""
    return flat_refuses(e) and rows_refuses(e)


def lower(e: Elementwise, isa: Isa) -> Job:
    """One job, over whole buffers if that can be."""
    return rows(e, isa) if flat_refuses(e) else flat(e, isa)


def flat_refuses(e: Elementwise) -> str | None:
    """Why an operation cannot run over its buffers from end to end."""
    layouts = {d.layout for d in e.inputs.values()} | {e.out.layout}
    if len(layouts) > 1:
        return "layouts differ"
    if e.shuffle:
        return "pixels move"
    return "the output has padding" if e.has_padding and not e.copied else None


def flat(e: Elementwise, isa: Isa) -> Job:
    """One job over whole buffers."""
    words = e.out.nbytes // 4
    args = Arguments()
    names = list(e.inputs)
    buffers = {"a": names[0], "out": "out"} | ({"b": names[1]} if len(names) > 1 else {})
    block = args.block(
        kernel.FLAT,
        buffers,
        words=words,
        words_per_task=WORDS_PER_TASK,
        **({} if "b" in buffers else {"b": 0}),
        tables=args.address(e.tables),
        **e.values,
    )
    return args.job(
        name=e.name,
        kernel=compiled.address(kernel.flat, op=e.op, lanes=isa.lanes, clamp=e.clamp, packs=isa.packs),
        block=block,
        tasks=-(-words // WORDS_PER_TASK),
        scratch=0,
    )


def rows_refuses(e: Elementwise) -> str | None:
    """Why an operation cannot run over pixel rows."""
    packed = {d.layout.inner for d in e.inputs.values()} | {e.out.layout.inner}
    if len(packed) > 1:
        return "layouts pack different dims"
    x = next(iter(e.inputs.values()))
    if e.shuffle and e.out.shape[-1] != 2 * x.shape[-1]:
        return f"upscale {e.out.shape[-1] // x.shape[-1]}"
    return "padding is copied" if e.copied else None


def rows(e: Elementwise, isa: Isa) -> Job:
    """One job over blocks of pixel rows."""
    names = list(e.inputs)
    x, out = view(e.inputs[names[0]]), view(e.out)
    row_bytes = x.pixels * x.words * 4
    per_task = max(1, min(x.rows, ROW_BYTES // row_bytes))
    size = -(-per_task * row_bytes // 64) * 64 + 64  # a shuffle reads a little beyond the last pixel
    args = Arguments()
    packed = {}
    for letter, name in zip("ab", [*names, names[0]], strict=False):
        source = view(e.inputs[name])
        packed[f"pack_{letter}"] = compiled.address(
            pack, kind=source.kind, element=S8, lanes=isa.lanes, fixed=0
        )
        packed[f"pack_{letter}_args"] = args.address(pack_block(args, source, 0, (1, 1), name))
    spare = out.words * 4 - out.channels
    block = args.block(
        kernel.ROWS_OF,
        {},
        **packed,
        unpack=compiled.address(unpack, kind=out.kind, fixed=0),
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
        tables=args.address(e.tables),
        **e.values,
    )
    return args.job(
        name=e.name,
        kernel=compiled.address(
            kernel.rows, op=e.op, lanes=isa.lanes, clamp=e.clamp, packs=isa.packs, shuffle=e.shuffle
        ),
        block=block,
        tasks=x.images * -(-x.rows // per_task),
        scratch=2 * size + 4 * per_task * x.pixels * out.words * 4 + 64,
    )

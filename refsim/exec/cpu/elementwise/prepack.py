"""Jobs for operators on elements: affine functions of one or two inputs, copies, pixel shuffles by 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from refsim.core.layout import PACKED_4W, C
from refsim.core.qmath import inv_scale
from refsim.core.tensor import TensorDesc
from refsim.exec.cpu import compiled
from refsim.exec.cpu.elementwise import kernel
from refsim.exec.cpu.elementwise.kernel import ADD, ADD_SCALED, BOUNDED, COPY, PRODUCT, RESCALE
from refsim.exec.cpu.elementwise.lut_kernel import GATHER, LUT
from refsim.exec.cpu.epilogue import RANGE, clamp_for, shared_fields
from refsim.exec.cpu.isa import Isa
from refsim.exec.cpu.job import Arguments, Job
from refsim.exec.cpu.nhwc.prepack import pack_fields, unpack_fields
from refsim.exec.cpu.strides import NHWC, strides_of
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import Family

#: Size of a task, in words of a buffer (threads take many tasks at a time), and in bytes of an input's rows in NHWC
#: scratch: small enough for near caches.
WORDS_PER_TASK = 512
ROW_BYTES = 16 * 1024

Scalars = dict[str, float | np.floating | int]


@dataclass(frozen=True)
class Elementwise:
    """What is done with each element: kernel operation, clamp, parameters; and the tensors by buffer name.

    ``shuffle``: channels become 2x2 pixels. ``copied``: padding moves along. ``luts``: int8 lookup tables, for
    operations that have them. ``refused``: why no kernel computes this.
    """

    name: str
    inputs: Mapping[str, TensorDesc]
    out: TensorDesc
    op: str
    clamp: str
    values: Scalars
    shuffle: bool = False
    copied: bool = False
    luts: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int8))
    refused: str | None = None

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
#: Where bytes move or are looked up.
_AS_THEY_ARE = _UNUSED | shared_fields(np.float32(1.0), 0, relu=False)


def describe(call: Call) -> Elementwise:
    """An operator of one or two inputs whose bytes move, or are an affine function of each element."""
    op, shuffle, copied = call.op, call.op.family is Family.SHUFFLE, call.op.family is Family.RELAYOUT
    affine = op.affine(call.params) if op.affine is not None else None
    if affine is None:
        return Elementwise(op.name, call.descs, call.out, COPY, RANGE, _AS_THEY_ARE, shuffle, copied)
    values = _UNUSED | shared_fields(affine.inv, affine.zp, affine.relu)
    for letter, term in zip("ab", affine.terms, strict=False):
        values |= {f"{letter}_scale": np.float32(term.scale), f"{letter}_zp": term.zp}
    kind = RESCALE
    if len(affine.terms) == 2:
        factor = affine.terms[1].factor
        kind = ADD if factor == 1.0 else ADD_SCALED
        values["alpha"] = np.float32(factor)
    steps = 255.0 * sum(abs(term.factor) * term.scale for term in affine.terms) * float(affine.inv)
    clamp = clamp_for(steps, affine.zp, affine.relu)
    refused = None if affine.terms[0].factor == 1.0 else "the first input has a factor"
    return Elementwise(op.name, call.descs, call.out, kind, clamp, values, shuffle, copied, refused=refused)


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


def of_two(a: Call, b: Call, product: bool, out: Call) -> Elementwise:
    """Two dequantizes, their sum or product, and a quantize, as one."""
    p, r, q = a.params, b.params, out.params
    inv = inv_scale(q.scale)
    own = _UNUSED | {
        "a_scale": np.float32(p.scale),
        "a_zp": p.zp,
        "b_scale": np.float32(r.scale),
        "b_zp": r.zp,
    }
    reals = [255.0 * float(np.float32(side.scale)) for side in (p, r)]
    largest = reals[0] * reals[1] if product else sum(reals)
    clamp = clamp_for(largest * float(inv), q.zp, relu=False)
    refused = None if largest < 2.0**126 else "results may be no numbers"
    inputs, name = {"a": a.descs["x"], "b": b.descs["x"]}, "dequantize, dequantize, .., quantize"
    values = own | shared_fields(inv, q.zp, relu=False)
    return Elementwise(name, inputs, out.out, PRODUCT if product else ADD, clamp, values, refused=refused)


def repeated_why_not(e: Elementwise) -> str | None:
    """Why the second input is not one pixel for all of the first one's in the same order of channels, or None."""
    x, pixel = e.inputs["a"], e.inputs["b"]
    if e.refused or e.has_padding or len(x.shape) != 4 or pixel.shape != (1, x.shape[1], 1, 1):
        return e.refused or "not a pixel for all"
    if any(side.layout.inner != C for side in (x, e.out, pixel)):
        return "channels are not packed"
    sides = [strides_of(side) for side in (x, e.out, pixel)]
    whole = all(side.kind == NHWC and side.pixel_stride == x.shape[1] for side in sides)
    return None if whole and x.layout == e.out.layout else "pixels do not lie one behind the other"


def repeated(e: Elementwise, isa: Isa) -> Job:
    """One job for a second input that is one pixel."""
    words, pixels = e.inputs["b"].shape[1] // 4, e.out.nbytes // e.inputs["b"].shape[1]
    per_task = max(1, WORDS_PER_TASK // words)
    args = Arguments()
    block = args.block(
        kernel.REPEATED,
        {"a": "a", "b": "b", "out": "out"},
        words=words,
        pixels=pixels,
        pixels_per_task=per_task,
        luts=0,
        **e.values,
    )
    entry = compiled.address(kernel.repeated, op=e.op, lanes=isa.lanes, clamp=e.clamp, packs=isa.packs)
    return args.job(e.name, entry, block, -(-pixels // per_task))


def by_table(luts: np.ndarray, x: TensorDesc, out: TensorDesc, isa: Isa) -> Elementwise:
    """What a table of 256 bytes gives for each byte."""
    op = LUT if isa.lookup else GATHER
    return Elementwise("dequantize, .., quantize", {"x": x}, out, op, RANGE, _AS_THEY_ARE, luts=luts)


def why_not(e: Elementwise) -> str | None:
    """Why an operation has no kernel, or None."""
    return linear_why_not(e) and via_nhwc_why_not(e)


def lower(e: Elementwise, isa: Isa) -> Job:
    """One job, over whole buffers if that can be."""
    return via_nhwc(e, isa) if linear_why_not(e) else linear(e, isa)


def linear_why_not(e: Elementwise) -> str | None:
    """Why an operation cannot run over its buffers from end to end."""
    if e.refused:
        return e.refused
    layouts = {d.layout for d in e.inputs.values()} | {e.out.layout}
    if len(layouts) > 1:
        return "layouts differ"
    if e.shuffle:
        return "pixels move"
    return "the output has padding" if e.has_padding and not e.copied else None


def linear(e: Elementwise, isa: Isa) -> Job:
    """One job over whole buffers."""
    words = e.out.nbytes // 4
    args = Arguments()
    names = list(e.inputs)
    buffers = {"a": names[0], "out": "out"} | ({"b": names[1]} if len(names) > 1 else {})
    block = args.block(
        kernel.LINEAR,
        buffers,
        words=words,
        words_per_task=WORDS_PER_TASK,
        **({} if "b" in buffers else {"b": 0}),
        luts=args.address(e.luts),
        **e.values,
    )
    entry = compiled.address(kernel.linear, op=e.op, lanes=isa.lanes, clamp=e.clamp, packs=isa.packs)
    return args.job(e.name, entry, block, -(-words // WORDS_PER_TASK))


def copied(nbytes: int, source: str, to: str, isa: Isa) -> Job:
    """One job that copies whole words from a buffer to another."""
    words = TensorDesc((1, 1, 1, nbytes), PACKED_4W)
    return linear(Elementwise("copy", {source: words}, words, COPY, RANGE, _AS_THEY_ARE), isa).renamed(out=to)


def via_nhwc_why_not(e: Elementwise) -> str | None:
    """Why an operation cannot go by way of NHWC scratch."""
    if e.refused:
        return e.refused
    packed = {d.layout.inner for d in e.inputs.values()} | {e.out.layout.inner}
    if len(packed) > 1:
        return "layouts pack different dims"
    x = next(iter(e.inputs.values()))
    if e.shuffle and e.out.shape[-1] != 2 * x.shape[-1]:
        return f"upscale {e.out.shape[-1] // x.shape[-1]}"
    return "padding is copied" if e.copied else None


def via_nhwc(e: Elementwise, isa: Isa) -> Job:
    """One job over blocks of rows, by way of NHWC scratch."""
    names = list(e.inputs)
    x, out = strides_of(e.inputs[names[0]]), strides_of(e.out)
    row_bytes = x.pixels * x.words * 4
    per_task = max(1, min(x.rows, ROW_BYTES // row_bytes))
    size = -(-per_task * row_bytes // 64) * 64 + 64  # a shuffle reads a little beyond the last pixel
    args = Arguments()
    packed: dict[str, int] = {}
    for letter, name in zip("ab", [*names, names[0]], strict=False):
        packed |= pack_fields(args, strides_of(e.inputs[name]), isa, name=f"pack_{letter}", buffer=name)
    spare = out.words * 4 - out.channels
    block = args.block(
        kernel.VIA_NHWC,
        {},
        **packed,
        **unpack_fields(args, out),
        height=x.rows,
        width=x.pixels,
        words=x.words,
        out_words=out.words,
        row_blocks=-(-x.rows // per_task),
        rows_per_task=per_task,
        mask=(1 << (8 * (4 - spare))) - 1 if spare else -1,
        at_b=size,
        at_out=2 * size,
        luts=args.address(e.luts),
        **e.values,
    )
    entry = compiled.address(
        kernel.via_nhwc, op=e.op, lanes=isa.lanes, clamp=e.clamp, packs=isa.packs, shuffle=e.shuffle
    )
    scratch = 2 * size + 4 * per_task * x.pixels * out.words * 4 + 64
    return args.job(e.name, entry, block, x.images * -(-x.rows // per_task), scratch)

"""q8ta_pixel_shuffle: moves channels to space, and requantizes if input and output have different scales.

    out[n, c, oh, ow] = in[n, c*r*r + (oh % r)*r + ow % r, oh / r, ow / r]

Bytes move unchanged when zp_in == zp_out and |s_in - f32(1/inv)| <= 1e-7 * max(|s_in|, 1e-7); else
q = requant(f32(q - zp_in) * s_in). Source: ET-VK's q8ta_pixel_shuffle, which takes r == 2 only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.core import index
from refsim.core.errors import ParameterError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import as_f32, insert, lane
from refsim.core.launch import Launch, column_local
from refsim.core.layout import CHANNELS_PACKED_INT8, H
from refsim.core.push import PushWords, SpecWords, float32, hashed, int32, tensor, uint32, vectors
from refsim.core.qmath import f32, inv_scale, requant
from refsim.ops.base import elementwise, quantized
from refsim.ops.base.arg import Shapes
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import CaseSlot, Made, quantization, rule, twins
from refsim.ops.base.host.row import ModuleCall, plain
from refsim.ops.base.padding import OnDevice, Pad, Padding
from refsim.ops.base.spec import Call, KernelSpec, OpSpec, Upstream
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Affine, Family, Term


@dataclass(frozen=True)
class Params(quantized.Quantization):
    """Input scale and zero point, the *inverse* of the output's scale, its zero point, and the factor r."""

    where = "q8ta_pixel_shuffle"

    in_scale: float
    in_zp: int
    out_inv_scale: float
    out_zp: int
    upscale: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.upscale < 1:
            raise ParameterError(self.where, "upscale is too small", got=self.upscale, need=">= 1")

    @property
    def moves_bytes(self) -> bool:
        """Whether input and output have the same quantization, so that bytes only move."""
        in_scale, out_scale = np.float32(self.in_scale), inv_scale(self.out_inv_scale)
        close = abs(in_scale - out_scale) <= np.float32(1e-7) * max(in_scale, np.float32(1e-7))
        return bool(self.in_zp == self.out_zp and close)


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    r = params.upscale
    channels, height, width = x.shape[-3:]
    split = x.reshape(-1, channels // (r * r), r, r, height, width)
    moved = split.transpose(0, 1, 4, 2, 5, 3).reshape(
        *x.shape[:-3], channels // (r * r), height * r, width * r
    )
    if params.moves_bytes:
        return moved.copy()
    y = f32(moved.astype(np.int32) - params.in_zp) * np.float32(params.in_scale)
    return requant(y, np.float32(params.out_inv_scale), params.out_zp, target.profile.flags).astype(np.int8)


def out_shape(params: Params, shapes: Shapes, consts: Any, declared: Any) -> tuple[int, ...]:
    shape, r = shapes["x"], params.upscale
    if shape[-3] % (r * r):
        raise ShapeError("q8ta_pixel_shuffle", "channels do not divide", got=shape, need=f"C % {r * r} == 0")
    return (*shape[:-3], shape[-3] // (r * r), shape[-2] * r, shape[-1] * r)


def padding(call: Call) -> Padding:
    return Padding(Pad(0), Pad(0, OnDevice.UNTOUCHED))


def affine(params: Params) -> Affine | None:
    if params.moves_bytes:
        return None
    term = Term(params.in_scale, params.in_zp)
    return Affine((term,), np.float32(params.out_inv_scale), params.out_zp)


PUSH = PushWords(tensor("OUT"), tensor("X"), float32("IN_SCALE"), int32("IN_ZP"), *elementwise.REQUANT)
SPEC = SpecWords(
    hashed("OUT"), hashed("X"), uint32("MOVES_BYTES"), uint32("R", 2), vectors("OUT"), vectors("X")
)
OUT, X, IN_SCALE, IN_ZP, INV, ZP, FLAGS = PUSH.offsets
OUT_HASH, X_HASH, MOVES_BYTES, R, *_ = SPEC.offsets

COLUMNS = 4  # output columns of an invocation


def launch(call: Call) -> Launch:
    """Global size: channel words x output columns x (batch, output rows).

    With r == 2 an invocation takes two rows, so no other invocation reads the same bytes.
    """
    p = call.params
    w, h, c, n = call.out.sizes_whcn
    rows = 2 if p.upscale == 2 else 1
    return call.launched(
        (-(-c // 4), w, n * h),
        column_local(call.out, COLUMNS),
        (1, COLUMNS, rows),
        spec={"MOVES_BYTES": int(p.moves_bytes), "R": p.upscale},
        IN_SCALE=np.float32(p.in_scale),
        IN_ZP=p.in_zp,
        INV=np.float32(p.out_inv_scale),
        ZP=p.out_zp,
        FLAGS=call.target.profile.flags,
    )


@emulated_kernel
def kernel(reached, spec, push, x_words, out):  # type: ignore[no-untyped-def]
    out_hash, x_hash, moves_bytes, r = spec[OUT_HASH], spec[X_HASH], spec[MOVES_BYTES], spec[R]
    in_scale, inv = as_f32(push[IN_SCALE]), as_f32(push[INV])
    for z, y, c4 in np.ndindex(reached):
        left, column = y // COLUMNS * COLUMNS, y % COLUMNS
        w, h, c, n = left + column, z % push[OUT + H], 4 * c4, z // push[OUT + H]
        word = 0
        for k in range(index.lanes_inside(push, OUT, out_hash, w, h, c, n)):
            kw, kh, kc = index.lane_coord(out_hash, k, w, h, c)
            source = kc * r * r + kh % r * r + kw % r
            at = index.buf_idx(push, X, x_hash, kw // r, kh // r, source, n)
            q = lane(x_words[at // 4], at % 4)
            if moves_bytes == 0:
                q = requant(f32(q - push[IN_ZP]) * in_scale, inv, push[ZP], push[FLAGS])
            word = insert(word, k, q)
        out[index.word_idx(push, OUT, out_hash, w, h, c, n)] = word


def golden(slot: CaseSlot) -> Made:
    rng = slot.rng
    r = rng.choice([2, 2, 2, 1, 3])
    params = quantization(slot, "in", "out")
    out_scale = params.pop("out_scale")
    if slot.number % 5 % 3 == 0:  # quantized alike: bytes move
        out_scale, params["out_zp"] = params["in_scale"], params["in_zp"]
    params |= {"out_inv_scale": float(inv_scale(out_scale)), "upscale": r}
    if slot.large:
        return params, {"x": (1, (68 + slot.residue(2)) * r * r, 1, -(-70 // r))}, {}
    channels = slot.size(2, 6) * r * r
    return params, {"x": (slot.batch, channels, slot.size(1, 5), slot.size(0, 7))}, {}


EXAMPLE = Case(
    "q8ta_pixel_shuffle",
    dict(in_scale=0.02, in_zp=3, out_inv_scale=20.0, out_zp=-4, upscale=2),
    {"x": ((2, 20, 3, 7), "4C1W")},
    "4C1W",
)


def refuses(call: Call) -> str | None:
    """Upstream's kernel takes the four lanes of a word from the same lane of four words, which is so for r = 2 only."""
    if call.params.upscale != 2:
        return f"r = {call.params.upscale}, the host takes 2 only"
    return None if len(call.out.shape) == 4 else f"{len(call.out.shape)} dims, the host takes 4 only"


MODULE = ModuleCall(
    shaders=plain("q8ta_pixel_shuffle"),
    bindings=("out", "x", "meta:out", "meta:x"),
    push=("in_scale", "out_inv_scale", "in_zp", "out_zp", "upscale", "moves_bytes"),
    spec=("layout:x", "layout:out"),
    global_size=("n * ceil(c / 4) * h * w", "1", "1"),
    local_size="64,1,1",
    refuses=refuses,
)

OP = OpSpec(
    name="q8ta_pixel_shuffle",
    serialized="et_vk.q8ta_pixel_shuffle.default",
    family=Family.SHUFFLE,
    args=elementwise.args(Params, x=CHANNELS_PACKED_INT8, out=CHANNELS_PACKED_INT8),
    params=Params,
    define=define,
    out_shape=out_shape,
    padding=padding,
    kernel=KernelSpec(kernel, launch, PUSH, SPEC, elementwise.column_work_item),
    cases=rule(
        EXAMPLE,
        dict(x=(1, 128, 56, 56)),
        EXAMPLE.refused(ShapeError, "do not divide", x=(1, 6, 2, 5)),
        EXAMPLE.refused(ParameterError, "upscale", upscale=0),
        spread=1200,
        make=golden,
        hard=(twins(golden),),
    ),
    affine=affine,
    min_rank=3,
    any_channels=False,
    upstream=Upstream(module=MODULE, resizes=True),
)

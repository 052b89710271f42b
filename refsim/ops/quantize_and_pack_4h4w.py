"""quantize_and_pack_4h4w: rows of floats to int8 in 4H4W, the first step of linear operators that take a float input.

    q = int(clamp(rne(x * inv), -128 - zp, 127 - zp)) + zp,  inv = f32(1 / scale)

It is q8ta_quantize but for what lies out of range. Here the kernel adds the zero point as a float, converts, and clamps
last: q = clamp(int(rne(x * inv) + f32(zp)), -128, 127). So NaN, infinities and huge values are up to the device; see
``convert`` of the profiles. Rows beyond the last of a block of four hold the zero point.
Source: ET-VK's quantize_and_pack_4h4w_per_tensor. With leading dims it packs only the first plane, a defect there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refsim.core import index
from refsim.core.errors import LayoutError, ParameterError, ShapeError
from refsim.core.jit import emulated_kernel
from refsim.core.lanes import as_f32, insert
from refsim.core.launch import Launch
from refsim.core.layout import PACKED_4H4W, WIDTH_PACKED, C, H
from refsim.core.push import PushWords, SpecWords, hashed, tensor
from refsim.core.qmath import flush, inv_scale, to_int8_added
from refsim.ops.base import elementwise, quantized
from refsim.ops.base.case import Case
from refsim.ops.base.case_rule import CaseSlot, Made, quantization, rule
from refsim.ops.base.padding import Pad, Padding
from refsim.ops.base.spec import Call, KernelSpec, OpSpec
from refsim.ops.base.target import Target
from refsim.ops.base.traits import Family


@dataclass(frozen=True)
class Params(quantized.Quantization):
    """Scale and zero point of the int8 values."""

    where = "quantize_and_pack_4h4w"

    scale: float
    zp: int


def define(params: Params, target: Target, x: np.ndarray) -> np.ndarray:
    flags = target.profile.flags
    with np.errstate(invalid="ignore", over="ignore"):
        steps = flush(x, flags) * inv_scale(params.scale)
        return to_int8_added(steps, params.zp, flags).astype(np.int8)


def check(call: Call) -> None:
    k = call.out.shape[-1]
    if k % 4:
        raise ShapeError(Params.where, "K does not fill words", got=f"K = {k}", need="a multiple of 4")


def padding(call: Call) -> Padding:
    """There are no lanes. Rows beyond the last are 0.0 quantized, so the zero point."""
    return Padding(Pad(call.params.zp), Pad(call.params.zp))


PUSH = PushWords(tensor("OUT"), tensor("X"), *elementwise.REQUANT)
SPEC = SpecWords(hashed("OUT"), hashed("X"))
OUT, X, INV, ZP, FLAGS = PUSH.offsets
OUT_HASH, X_HASH = SPEC.offsets
ROWS = 4  # rows of an invocation: a block of the output


def launch(call: Call) -> Launch:
    """Global size: rows, padded to four in each plane x words along K. An invocation writes a block of four rows."""
    w, h, c, n = call.out.sizes_whcn
    return call.launched(
        (-(-h // 4) * 4 * c * n, w // 4, 1),
        (8, 8, 1),
        (ROWS, 1, 1),
        INV=inv_scale(call.params.scale),
        ZP=call.params.zp,
        FLAGS=call.target.profile.flags,
    )


def work_item(launch: Launch, word: Any, w: Any, h: Any, c: Any, n: Any) -> tuple[Any, Any, Any]:
    """The work item that writes the word at a coordinate."""
    _, height, channels, _ = launch.out.sizes_whcn
    return (n * channels + c) * (-(-height // 4) * 4) + h, w // 4, 0 * n


@emulated_kernel
def kernel(reached, spec, push, x_words, out):  # type: ignore[no-untyped-def]
    out_hash, x_hash = spec[OUT_HASH], spec[X_HASH]
    inv, zp, flags = as_f32(push[INV]), push[ZP], push[FLAGS]
    height = (push[OUT + H] + ROWS - 1) // ROWS * ROWS
    for _, k4, row in np.ndindex(reached):
        first, step = row // ROWS * ROWS, row % ROWS
        h, plane = (first + step) % height, (first + step) // height
        c, n = plane % push[OUT + C], plane // push[OUT + C]
        word = 0
        for k in range(4):
            q = zp
            if h < push[OUT + H]:
                real = as_f32(x_words[index.buf_idx(push, X, x_hash, 4 * k4 + k, h, c, n)])
                q = to_int8_added(flush(real, flags) * inv, zp, flags)
            word = insert(word, k, q)
        out[index.word_idx(push, OUT, out_hash, 4 * k4, h, c, n)] = word


def golden(slot: CaseSlot) -> Made:
    params = {name.removeprefix("in_"): value for name, value in quantization(slot, "in").items()}
    lead = slot.rng.choice([(), (2,), (2, 3)])
    shape = (*lead, slot.size(1, 12), 4 * (1 + slot.residue(0)) + 16 * slot.rng.integer(0, 4))
    if slot.large:
        shape = (slot.rng.integer(1, 2), 129 + slot.residue(1), 4 * (65 + slot.residue(0)))
    return params, {"x": shape}, {}


EXAMPLE = Case(Params.where, dict(scale=0.02, zp=3), {"x": ((6, 16), "W")}, "4H4W")

OP = OpSpec(
    name=Params.where,
    serialized="",
    family=Family.QUANTIZE_ROWS,
    args=elementwise.args(Params, x=(WIDTH_PACKED,), out=(PACKED_4H4W,)),
    params=Params,
    define=define,
    out_shape=elementwise.same_shape,
    padding=padding,
    kernel=KernelSpec(kernel, launch, PUSH, SPEC, work_item),
    check=check,
    cases=rule(
        EXAMPLE,
        dict(x=(64, 2048)),
        EXAMPLE.refused(ShapeError, "fill words", x=(6, 14)),
        EXAMPLE.refused(ParameterError, "zp", zp=128),
        EXAMPLE.refused(LayoutError, "x has a layout", x="C"),
        spread=480,
        make=golden,
    ),
)

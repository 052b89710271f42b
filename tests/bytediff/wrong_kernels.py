"""Kernels with one bug each, written plainly and apart from refsim.bytediff: what the hypotheses must recognize."""

from __future__ import annotations

from typing import Any

import numpy as np

from refsim.ops.base.binding import BoundCase
from refsim.ops.base.case import Case

F = np.float32

CONV = Case(
    "q8ta_conv2d_general",
    dict(
        in_scale=0.5, in_zp=11, out_scale=1.0, out_zp=-9, kernel_size=(3, 2), stride=(2, 1), padding=(1, 2),
        dilation=(1, 2), activation="relu",
    ),
    {"x": ((2, 6, 9, 7), "4W4C")},
    "4C1W",
    seed=5,
    features={"out_channels": 7, "bias": True},
    poison=True,
)  # fmt: skip


def requant(t: Any, inv: Any, zp: int, *, rounding: Any = np.rint, clamp_first: bool = False) -> int:
    """Quantize a binary32 number."""
    r = float(rounding(F(t * inv)))
    if clamp_first:
        return int((min(max(r, -128), 127) + zp + 128) % 256 - 128)
    return int(min(max(r, -128 - zp), 127 - zp)) + zp


def conv(
    bound: BoundCase,
    *,
    border: int | None = None,
    fold: int = 1,
    pairs: dict[str, tuple[int, int]] | None = None,
    exchange: bool = False,
    unsigned_x: bool = False,
    unsigned_w: bool = False,
    channels: int | None = None,
    bias_at: int = 0,
    sums: Any = None,
    relu: str = "real",
    fused: bool = False,
    flip: bool = False,
    **rounding: Any,
) -> np.ndarray:
    """q8ta_conv2d_general as four nested loops, with a bug if any argument is given: int8 NCHW."""
    p, x, consts = bound.call.params, bound.inputs["x"].unpack(), bound.call.consts
    window = {name: getattr(p, name) for name in ("kernel_size", "stride", "padding", "dilation")}
    window |= pairs or {}
    if exchange:
        window = {name: pair[::-1] for name, pair in window.items()}
    (kh, kw), (sh, sw), (ph, pw), (dh, dw) = window.values()
    n, ic, height, width = x.shape
    _, oc, oh, ow = bound.call.out.shape
    weight = np.asarray(consts["weight"])[:, : p.taps * ic].reshape(oc, kh, kw, ic)
    weight = weight[:, ::-1, ::-1] if flip else weight
    image = x.view(np.uint8) if unsigned_x else x
    taps = weight.astype(np.int8).view(np.uint8) if unsigned_w else weight
    used = ic if channels is None else channels
    wsum = np.asarray(consts["weight_sums"]) if sums is None else sums
    out = np.zeros((n, oc, oh, ow), np.int64)
    inv = F(1) / F(p.out_scale)
    for b, h, w in np.ndindex(n, oh, ow):
        acc = np.zeros(oc, np.int64)
        for i, j in np.ndindex(kh, kw):
            y, c = h * sh - ph + i * dh, w * sw - pw + j * dw
            inside = 0 <= y < height and 0 <= c < width
            pixel = image[b, :, y, c] if inside else np.full(ic, p.in_zp if border is None else border)
            acc += taps[:, i, j, :used].astype(np.int64) @ pixel[:used].astype(np.int64)
        for o in range(oc):
            t = F(acc[o]) - F(F(fold * int(wsum[o])) * F(p.in_zp))
            scale = F(consts["weight_scales"][o]) * F(p.in_scale)
            addend = consts["bias"][(o + bias_at) % oc]
            t = F(np.float64(t) * np.float64(scale) + np.float64(addend)) if fused else F(t * scale) + addend
            t = max(t, F(0)) if relu == "real" else t
            q = requant(t, inv, p.out_zp, **rounding)
            out[b, o, h, w] = max(q, 0) if relu == "quantized" else q
    return out.astype(np.int8)

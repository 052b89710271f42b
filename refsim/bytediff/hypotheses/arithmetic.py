"""Causes in the steps from a sum to a byte: their order, their precision, and how four bytes become a word."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.hypotheses.numerics import out_zero_point
from refsim.bytediff.rerun import affine, has_weights, integer_sums
from refsim.core.qmath import f32, requant, wrap32
from refsim.ops.base.epilogue import PER_CHANNEL
from refsim.ops.base.traits import Epilogue

F = np.float32
_MOST = float(1 << 30)  # beyond any byte, within int64


class _Steps:
    """An epilogue in single steps, each of which may be taken in another way."""

    def __init__(self, ev: Evidence) -> None:
        call = ev.call
        spread = (-1, 1, 1) if call.op.channel_dim == -3 else (-1,)
        sums, scales, bias = (call.consts[name] for name in PER_CHANNEL)
        assert sums is not None and scales is not None
        self.ev, self.params, self.flags = ev, call.params, call.target.profile.flags
        self.acc, self.sums, self.scales = integer_sums(ev), sums.reshape(spread), scales.reshape(spread)
        self.bias = F(0) if bias is None else bias.reshape(spread)
        self.integer = ev.writing.epilogue is Epilogue.INTEGER_ZP or not ev.desc.is_int8

    def difference(self, integer: bool) -> np.ndarray:
        """The sum less the folded zero point, subtracted in int32 or in binary32."""
        zp = np.int64(self.params.in_zp)
        if integer:
            return np.asarray(f32(wrap32(self.acc - zp * self.sums)))
        return np.asarray(f32(self.acc) - f32(self.sums) * F(zp))

    def real(self) -> np.ndarray:
        return np.asarray(self.difference(self.integer) * (self.scales * F(self.params.in_scale)) + self.bias)

    def cells(self, real: np.ndarray, inv: np.ndarray | np.float32 | None = None) -> np.ndarray:
        """The buffer of what the sums stand for."""
        if not self.ev.desc.is_int8:
            return self.ev.with_values(real)
        real = np.maximum(real, F(0)) if self.relu else real
        inv = F(1) / F(self.params.out_scale) if inv is None else inv
        return self.ev.with_values(requant(real.astype(F), inv, self.params.out_zp, self.flags))

    @property
    def relu(self) -> bool:
        return getattr(self.params, "activation", "none") == "relu"


@hypothesis("order of the epilogue", needs_call=True)
def order(ev: Evidence) -> Iterator[Prediction]:
    """Scales, bias and zero point in another order, division for a reciprocal, or the other kind of epilogue."""
    if not has_weights(ev):
        return
    s = _Steps(ev)
    p, difference = s.params, s.difference(s.integer)
    with np.errstate(all="ignore"):
        kind = "binary32" if s.integer else "int32"
        other = s.difference(not s.integer) * (s.scales * F(p.in_scale)) + s.bias
        yield Prediction(f"the zero point is subtracted in {kind}", s.cells(other))
        one = difference * s.scales * F(p.in_scale) + s.bias
        yield Prediction("the sum times the weight scale, then times the input scale", s.cells(one))
        yield Prediction(
            "the sum times the input scale, then times the weight scale",
            s.cells(difference * F(p.in_scale) * s.scales + s.bias),
        )
        yield Prediction(
            "the bias before the scales", s.cells((difference + s.bias) * (s.scales * F(p.in_scale)))
        )
        if not ev.desc.is_int8:
            return
        inv, real = F(1) / F(p.out_scale), s.real()
        yield Prediction("divided by the output's scale", s.cells(real / F(p.out_scale), F(1)))
        whole = s.scales * F(p.in_scale) * inv
        yield Prediction("all scales as one factor", s.cells(difference * whole + s.bias * inv, F(1)))
        quotient = np.maximum(real, F(0)) * inv if s.relu else real * inv
        added = np.clip(np.rint(quotient + F(p.out_zp)), -128, 127)
        yield Prediction("the zero point added before rounding", ev.with_values(np.nan_to_num(added)))
        before = (np.maximum(difference * (s.scales * F(p.in_scale)), F(0)) + s.bias) if s.relu else None
        if before is not None:
            made = requant(before.astype(F), inv, p.out_zp, s.flags)
            yield Prediction("relu before the bias", ev.with_values(made))


@hypothesis("another precision", needs_call=True)
def half(ev: Evidence) -> Iterator[Prediction]:
    """An intermediate value of binary16, or of binary64."""
    with np.errstate(all="ignore"):
        if has_weights(ev):
            s = _Steps(ev)
            scale = s.scales * F(s.params.in_scale)
            yield Prediction("the scaled sum is of binary16", s.cells(s.real().astype(np.float16).astype(F)))
            narrow = scale.astype(np.float16).astype(F)
            yield Prediction(
                "the product of the scales is of binary16",
                s.cells(s.difference(s.integer) * narrow + s.bias),
            )
            wide = s.acc - np.int64(s.params.in_zp) * s.sums
            exact = wide * (s.scales.astype(np.float64) * float(s.params.in_scale)) + s.bias
            yield Prediction("computed in binary64", s.cells(exact.astype(F)))
            if ev.desc.is_int8:
                real = np.maximum(s.real(), F(0)) if s.relu else s.real()
                inv = np.float64(F(1) / F(s.params.out_scale))
                yield Prediction(
                    "multiplied by the inverse scale in binary64", _wide(ev, real, inv, s.params.out_zp)
                )
            return
        found = affine(ev)
        if found is None or len(found.terms) != len(ev.arrays):
            return
        y = np.zeros(ev.call.out.shape, F)
        for term, q in zip(found.terms, ev.arrays.values(), strict=True):
            if q.shape != y.shape:
                return
            y += F(term.factor) * (f32(q.astype(np.int32) - term.zp) * F(term.scale))
        y = np.maximum(y, F(0)) if found.relu else y
        flags = ev.call.target.profile.flags
        made = requant(y.astype(np.float16).astype(F), found.inv, found.zp, flags)
        yield Prediction("the sum is of binary16", ev.with_values(made))
        wide = _wide(ev, y, np.float64(found.inv), found.zp)
        yield Prediction("multiplied by the inverse scale in binary64", wide)
        divided = requant(y / (F(1) / found.inv), F(1), found.zp, flags)
        yield Prediction("divided by the output's scale", ev.with_values(divided))


def _wide(ev: Evidence, real: np.ndarray, inv: np.float64, zp: int) -> np.ndarray:
    whole = np.rint(np.nan_to_num(real.astype(np.float64)) * inv)
    return ev.with_values(np.clip(whole, -128 - zp, 127 - zp) + zp)


@hypothesis("no clamp", needs_call=True)
def unclamped(ev: Evidence) -> Iterator[Prediction]:
    """Values out of range wrap, because nothing clamps them before they become bytes."""
    zp = out_zero_point(ev)
    if zp is None or not has_weights(ev):
        return
    s = _Steps(ev)
    with np.errstate(all="ignore"):
        real = np.maximum(s.real(), F(0)) if s.relu else s.real()
        quotient = real * (F(1) / F(s.params.out_scale))
        whole = np.nan_to_num(np.clip(np.rint(quotient), -_MOST, _MOST)).astype(np.int64) + zp
    yield Prediction("the low eight bits are kept", ev.with_values((whole + 128) % 256 - 128))
    yield Prediction("clamped below only", ev.with_values((np.maximum(whole, -128) + 128) % 256 - 128))
    yield Prediction("clamped above only", ev.with_values((np.minimum(whole, 127) + 128) % 256 - 128))


@hypothesis("sign smeared over a word")
def smeared(ev: Evidence) -> Iterator[Prediction]:
    """A negative lane is not masked before it is put into its word: its sign fills the lanes above."""
    if not ev.desc.is_int8:
        return
    words = ev.want.reshape(-1, 4).astype(np.int64)
    shifts = 8 * np.arange(4)
    for what, joined in (
        ("ored", np.bitwise_or.reduce(words << shifts, axis=1)),
        ("added", (words << shifts).sum(axis=1)),
        ("exclusively ored", np.bitwise_xor.reduce(words << shifts, axis=1)),
    ):
        made = joined.astype(np.uint32).view(np.uint8).reshape(-1, 4).view(np.int8).reshape(-1)
        yield Prediction(f"lanes with their signs are {what} into a word", made)

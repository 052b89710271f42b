"""Causes in rounding and clamping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import affine, chained, profiled, rerun, wrong
from refsim.core.buffer import PackedBuffer
from refsim.core.qmath import CLAMP_FIRST, TIE_UP, TRUNCATE, Profile, f32, requant
from refsim.ops.base.epilogue import ACTIVATIONS
from refsim.ops.base.traits import Affine, Family


def _canonical(ev: Evidence) -> Profile:
    return ev.call.target.profile


@hypothesis("tie rule", needs_call=True)
def tie_rule(ev: Evidence) -> Iterator[Prediction]:
    """Halves rounded away from zero, or up, instead of to even."""
    away = profiled(ev, replace(_canonical(ev), tie="away"))
    if away is not None:
        yield Prediction("halves rounded away from zero", away)
    up = wrong(ev, TIE_UP)
    if up is not None:
        yield Prediction("halves rounded up: floor(y + 0.5)", up)


@hypothesis("truncation", needs_call=True)
def truncation(ev: Evidence) -> Iterator[Prediction]:
    """Fractions cut off instead of rounded."""
    cells = wrong(ev, TRUNCATE)
    if cells is not None:
        yield Prediction("fractions cut off", cells)


@hypothesis("fused multiply-add", needs_call=True)
def fused(ev: Evidence) -> Iterator[Prediction]:
    """One rounding where two were meant: fma(), or a*b+c contracted by the compiler."""
    cells = profiled(ev, replace(_canonical(ev), contract=not _canonical(ev).contract))
    if cells is not None:
        yield Prediction("a*b+c rounded once", cells)


@hypothesis("conversion out of range", needs_call=True)
def conversion(ev: Evidence) -> Iterator[Prediction]:
    """NaN, infinities and huge values converted to int before the clamp."""
    for convert, what in (("int_min", "become -2**31"), ("saturate", "saturate, NaN is 0")):
        cells = profiled(ev, replace(_canonical(ev), convert=convert))
        if cells is not None:
            yield Prediction(f"values out of range {what} when they are converted", cells)
    yield from _beyond(ev)


def _beyond(ev: Evidence) -> Iterator[Prediction]:
    """Values that no int32 holds become another byte each: those too large, those too small, and NaN."""
    if ev.call.op.family is not Family.QUANTIZE or "x" not in ev.arrays:
        return
    with np.errstate(all="ignore"):
        y = np.rint(ev.arrays["x"] / np.float32(ev.call.params.scale)).reshape(ev.places.shape)
    fresh, told = ev.want.copy(), []
    for what, which in (("too large", y >= 2.0**31), ("too small", y < -(2.0**31)), ("NaN", y != y)):
        held = np.unique(ev.got[ev.places[which]])
        if len(held) == 1 and ev.differing[ev.places[which]].any():
            fresh[ev.places[which]] = held[0]
            told.append(f"{what} becomes {held[0]}")
    if told:
        yield Prediction(f"what is out of range: {', '.join(told)}", fresh, fitted=True)


@hypothesis("clamp order", needs_call=True)
def clamp_order(ev: Evidence) -> Iterator[Prediction]:
    """Clamped before the zero point was added; the sum then wraps, or is clamped again."""
    cells = wrong(ev, CLAMP_FIRST)
    if cells is None:
        return
    yield Prediction("clamped to [-128, 127] before the zero point, the sum wraps", cells)
    zp = out_zero_point(ev)
    if zp is not None:
        before = (cells.astype(np.int64) - zp + 128) % 256 - 128
        again = np.where(ev.kinds == 0, np.clip(before + zp, -128, 127), cells).astype(cells.dtype)
        yield Prediction("clamped to [-128, 127] before the zero point and after it", again)


def out_zero_point(ev: Evidence) -> int | None:
    """Zero point of the output, whatever the operator calls it."""
    params = ev.call.params
    for name in ("out_zp", "zp"):
        if hasattr(params, name) and ev.desc.is_int8:
            return int(getattr(params, name))
    return None


@hypothesis("clamp bounds", needs_call=True)
def clamp_bounds(ev: Evidence) -> Iterator[Prediction]:
    """Another range than [-128, 127], such as a symmetric one or a half: of the output, or of a quantized input."""
    if ev.desc.is_int8:
        for what, low, high in _ranges(int(getattr(ev.call.params, "out_zp", 0))):
            made = np.clip(ev.logical.astype(np.int64), low, high)
            yield Prediction(f"clamped to {what}", ev.with_values(made))
    if ev.call.op.expand is None or ev.call.op.picks:
        return
    for what, low, high in _ranges(int(getattr(ev.call.params, "in_zp", 0))):
        cells = chained(ev, lambda _, buffer, low=low, high=high: _clipped(buffer, low, high))  # type: ignore[misc]
        if cells is not None:
            yield Prediction(f"the quantized input clamped to {what}", cells)


#: Ranges of bytes that stand for the whole one by mistake.
_RANGES = (
    (-127, 127), (0, 127), (-128, 126), (-128, 0), (-128, -1), (-128, 63), (-64, 127), (1, 127), (-128, 1), (-1, 127),
)  # fmt: skip


def _ranges(zp: int) -> Iterator[tuple[str, int, int]]:
    """(how it reads, lowest and highest byte), no range twice."""
    told = {(low, high): f"[{low}, {high}]" for low, high in _RANGES}
    for times in (-2, -1, 1, 2):
        for low, high in (
            (-128 + times * zp, 127),
            (-128, 127 + times * zp),
            (-128 + times * zp, 127 + times * zp),
        ):
            bounds = max(low, -128), min(high, 127)
            if bounds[0] <= 127 and bounds[1] >= -128 and bounds != (-128, 127):
                told.setdefault(bounds, f"[{bounds[0]}, {bounds[1]}], moved by the zero point {zp}")
    for (low, high), what in told.items():
        yield what, low, high


def _clipped(buffer: PackedBuffer, low: int, high: int) -> PackedBuffer:
    if not buffer.desc.is_int8:
        return buffer
    values = np.clip(buffer.unpack().astype(np.int64), low, high).astype(np.int8)
    return PackedBuffer.pack(values, buffer.desc.layout)


@hypothesis("relu bound", needs_call=True)
def relu_bound(ev: Evidence) -> Iterator[Prediction]:
    """The bound of relu taken as 0 in the quantized domain, instead of the zero point."""
    without = without_relu(ev)
    if without is None:
        return
    if (itself := relu_itself(ev)) is not None:
        clipped = summed(ev, itself, {name: np.maximum(x, 0) for name, x in ev.arrays.items()})
        yield Prediction("max(q, 0) of the input instead of max(q, its zero point)", clipped)
    yield Prediction("max(q, 0) instead of max(q, zero point)", _at_least(ev, without, 0))
    zp = getattr(ev.call.params, "in_zp", None)
    if zp is not None:
        yield Prediction("max(q, the input's zero point)", _at_least(ev, without, int(zp)))


def _at_least(ev: Evidence, cells: np.ndarray, bound: int) -> np.ndarray:
    return ev.with_values(np.maximum(cells[ev.places], bound))


def without_relu(ev: Evidence) -> np.ndarray | None:
    """Cells with the activation left out; None if the call has none."""
    params = ev.call.params
    if getattr(params, "activation", None) == "relu":
        return rerun(ev, params={"activation": "none"})
    itself = relu_itself(ev)
    return None if itself is None else summed(ev, itself, ev.arrays)


def relu_itself(ev: Evidence) -> Affine | None:
    """The arithmetic of an elementwise operator that always ends in a relu; None for any other operator."""
    found = affine(ev) if ev.call.op.family is Family.ELEMENTWISE else None
    return found if found is not None and found.relu else None


def summed(ev: Evidence, affine: Affine, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Cells of the terms added up and requantized, without the relu."""
    y = np.zeros(ev.call.out.shape, np.float32)
    for term, q in zip(affine.terms, arrays.values(), strict=True):
        y += np.float32(term.factor) * (f32(q.astype(np.int32) - term.zp) * np.float32(term.scale))
    return ev.with_values(requant(y, affine.inv, affine.zp, _canonical(ev).flags))


@hypothesis("relu dropped or added", needs_call=True)
def relu_dropped(ev: Evidence) -> Iterator[Prediction]:
    """The activation left out, or applied where there is none."""
    params = ev.call.params
    without = without_relu(ev)
    if without is not None:
        yield Prediction("relu left out", without)
    if getattr(params, "activation", None) in ACTIVATIONS:
        flipped = rerun(ev, params={"activation": "none" if params.activation == "relu" else "relu"})
        if flipped is not None and params.activation == "none":
            yield Prediction("relu applied", flipped)

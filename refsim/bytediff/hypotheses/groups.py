"""Causes in rows that are quantized for 4-bit weights in groups, and in the scales and zero points of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import rerun
from refsim.core.qmath import flush
from refsim.ops.base import group_linear, group_weights, int4, row_range
from refsim.ops.base.traits import Family


def _grouped(ev: Evidence) -> bool:
    return ev.bound is not None and ev.call.op.family is Family.GROUP_LINEAR


def _many_rows(ev: Evidence) -> bool:
    return _grouped(ev) and ev.call.out.shape[-2] > 1


def _const(ev: Evidence, name: str) -> np.ndarray:
    value = ev.call.consts[name]
    assert value is not None
    return value


def _again(ev: Evidence, detail: str, **consts: np.ndarray | None) -> Iterator[Prediction]:
    cells = rerun(ev, consts=consts)
    if cells is not None:
        yield Prediction(detail, cells)


def _fed(ev: Evidence, detail: str, **inputs: np.ndarray) -> Iterator[Prediction]:
    cells = rerun(ev, inputs=inputs)
    if cells is not None:
        yield Prediction(detail, cells)


def with_sums(ev: Evidence, found: np.ndarray) -> np.ndarray:
    """Cells if the sums of the quantized activations were ``found`` [.., groups] instead of what they are.

    The nibbles go into the product as they are stored, 8 too large; these sums take that away again.
    """
    call = ev.call
    own = group_linear.group_sums(group_weights.quantized(call, ev.arrays), call.params.group)
    more = np.moveaxis(int4.ZERO * (own - found), -1, 0)[..., None]
    made = group_weights.of_many(
        call, ev.arrays, group_weights.weights_of(call), group_weights.own_sums(call), more
    )
    return ev.with_values(made)


@hypothesis("sums of groups doubled", needs_call=True)
def sums_doubled(ev: Evidence) -> Iterator[Prediction]:
    """Sums of a group's activations that double at each further block of a worker: a known defect of ET-VK."""
    if not _many_rows(ev):
        return
    q, group = group_weights.quantized(ev.call, ev.arrays), ev.call.params.group
    for workers in (
        group_linear.workers_of(group),
        *(w for w in (16, 32) if w != group_linear.workers_of(group)),
    ):
        if group // 4 > workers:
            cells = with_sums(ev, group_linear.doubled_sums(q, group, workers))
            yield Prediction(f"{workers} workers have {group // 4} blocks to add up", cells)
    yield Prediction("sums of the activations left out", with_sums(ev, 0 * group_linear.group_sums(q, group)))


@hypothesis("weight sums of other outputs", needs_call=True)
def sums_of_others(ev: Evidence) -> Iterator[Prediction]:
    """Weight sums stored in rows of one length and read in rows of another: a known defect of ET-VK."""
    if not _many_rows(ev):
        return
    sums, out = _const(ev, "weight_sums"), ev.call.out.shape[-1]
    for stored, read in ((8, 4), (4, 8)):
        length = -(-out // stored) * stored
        kept = np.zeros((len(sums), length), np.int32)
        kept[:, :out] = sums[:, :out]
        step = -(-out // read) * read
        flat = np.append(kept.reshape(-1), np.zeros(len(sums) * step, np.int32))
        wrong = np.stack([flat[g * step : g * step + out] for g in range(len(sums))])
        if not np.array_equal(wrong, sums[:, :out]):
            yield from _again(ev, f"stored in rows of {stored}, read in rows of {read}", weight_sums=wrong)
    if len(sums) > 1:
        yield from _again(ev, "of group 0 for every group", weight_sums=np.repeat(sums[:1], len(sums), 0))


@hypothesis("zero point of rows", needs_call=True)
def zero_point_of_rows(ev: Evidence) -> Iterator[Prediction]:
    """The zero point of a row times the weight sums: left out, twice, added; or the zero point of another row."""
    if not _many_rows(ev):
        return
    sums, zp = _const(ev, "weight_sums"), ev.arrays["zp"]
    yield from _again(ev, "times the weight sums is not subtracted", weight_sums=0 * sums)
    yield from _again(ev, "times the weight sums is subtracted twice", weight_sums=2 * sums)
    yield from _again(ev, "times the weight sums is added", weight_sums=-sums)
    for detail, other in _of_other_rows(zp):
        yield from _fed(ev, detail, zp=other)


@hypothesis("scale of rows", needs_call=True)
def scale_of_rows(ev: Evidence) -> Iterator[Prediction]:
    """The scale of another row, or scale and zero point of another row."""
    if not _many_rows(ev):
        return
    scales, zps = (_of_other_rows(ev.arrays[name]) for name in ("scale", "zp"))
    for (detail, scale), (_, zp) in zip(scales, zps, strict=True):
        yield from _fed(ev, detail, scale=scale)
        yield from _fed(ev, f"{detail}, and its zero point", scale=scale, zp=zp)


def _of_other_rows(values: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    yield "of the first row for every row", np.broadcast_to(values[..., :1], values.shape)
    yield "of the row before", np.roll(values, 1, -1)
    yield "of the row behind", np.roll(values, -1, -1)
    yield "of the first of each four rows", np.repeat(values[..., ::4], 4, -1)[..., : values.shape[-1]]


@hypothesis("quantized rows", needs_call=True)
def quantized(ev: Evidence) -> Iterator[Prediction]:
    """A single row that is quantized, or several that are not."""
    if not _grouped(ev):
        return
    call, arrays, weights = ev.call, ev.arrays, group_weights.weights_of(ev.call)
    if _many_rows(ev):
        made = group_weights.of_one(call, arrays, weights, group_linear.LANES)
        yield Prediction("the activation is not quantized", ev.with_values(made))
    else:
        made = group_weights.of_many(call, arrays, weights, group_weights.own_sums(call))
        yield Prediction("the activation is quantized", ev.with_values(made))


@hypothesis("range of rows", needs_call=True)
def range_of_rows(ev: Evidence) -> Iterator[Prediction]:
    """Scale and zero point of a row by another rule: without 0 in the range, torchao's, of all rows, of a part."""
    if ev.bound is None or ev.call.op.family is not Family.ROW_RANGE:
        return
    p, bits = ev.call.params, ev.call.target.profile.flags
    x = flush(ev.arrays["x"], bits)
    lo, hi = (f.reduce(x, axis=-1, initial=np.float32(0)) for f in (np.fmin, np.fmax))
    with np.errstate(all="ignore"):
        least, most = (f.reduce(x, axis=-1) for f in (np.fmin, np.fmax))
        both = np.maximum(-lo, hi)
        variants: Mapping[str, tuple[Any, Any]] = {
            "without 0 in the range": (least, most),
            "symmetric about 0": (-both, both),
            "of all rows together": (
                np.broadcast_to(lo.min(), lo.shape),
                np.broadcast_to(hi.max(), hi.shape),
            ),
            "of the row before": (np.roll(lo, 1, -1), np.roll(hi, 1, -1)),
            "the least value alone": (lo, 0 * hi),
            "the greatest value alone": (0 * lo, hi),
        }
        for detail, (low, high) in variants.items():
            yield _range(ev, detail, *row_range.scaled(low, high, p.qmin, p.qmax))
        width = hi - lo
        yield _range(ev, "without a least scale", width / np.float32(p.qmax - p.qmin), lo, hi)
        if ev.desc.is_int8:  # torchao: always from the least value
            scale = np.maximum(width / np.float32(p.qmax - p.qmin), np.finfo(np.float32).eps)
            z = np.clip(p.qmin - np.rint(lo / scale), p.qmin, p.qmax)
            yield Prediction("torchao's rule", ev.with_values(np.nan_to_num(z)))
    whole = x.shape[-1] // 4 * 4
    if 0 < whole < x.shape[-1]:
        short = np.where(np.arange(x.shape[-1]) < whole, x, np.float32(0))
        yield from _fed(ev, "without the last values, which fill no word of four", x=short)


def _range(ev: Evidence, detail: str, scale: np.ndarray, lo: np.ndarray, hi: np.ndarray) -> Prediction:
    p = ev.call.params
    made = scale
    if ev.desc.is_int8:
        made = row_range.zero_point(scale, lo, hi, p.qmin, p.qmax, ev.call.target.profile.flags)
    return Prediction(detail, ev.with_values(made))

"""Causes that are one off: a constant a little wrong, an input read at a neighbour, an image one row too small."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import each_input, has_weights, is_convolution, rerun
from refsim.core.buffer import PackedBuffer

_CHANGES = (("doubled", 2.0), ("halved", 0.5), ("negated", -1.0))


@hypothesis("zero point one off", needs_call=True)
def zero_points(ev: Evidence) -> Iterator[Prediction]:
    """A zero point one too large or too small, negated, or weight sums one off."""
    for name, value in vars(ev.call.params).items():
        if name != "zp" and not name.endswith("_zp"):
            continue
        for what, other in (("one too large", value + 1), ("one too small", value - 1), ("negated", -value)):
            cells = rerun(ev, params={name: other}) if -128 <= other <= 127 and other != value else None
            if cells is not None:
                yield Prediction(f"{name} {what}", cells)
    if has_weights(ev):
        sums = ev.call.consts["weight_sums"]
        assert sums is not None
        for what, other in (("one too large", sums + 1), ("one too small", sums - 1)):
            cells = rerun(ev, consts={"weight_sums": other})
            if cells is not None:
                yield Prediction(f"weight sums {what}", cells)


@hypothesis("scale changed", needs_call=True)
def scales(ev: Evidence) -> Iterator[Prediction]:
    """A scale doubled, halved, negated, left out, or applied twice."""
    for name, value in vars(ev.call.params).items():
        if name != "scale" and not name.endswith("_scale") and name != "alpha":
            continue
        changes = [(what, factor * value) for what, factor in _CHANGES if factor > 0 or name == "alpha"]
        for what, other in (*changes, ("taken as 1", 1.0), ("applied twice", value * value)):
            cells = rerun(ev, params={name: type(value)(other)})
            if cells is not None:
                yield Prediction(f"{name} {what}", cells)
    if has_weights(ev):
        stored = ev.call.consts["weight_scales"]
        assert stored is not None
        for what, factor in _CHANGES:
            yield from _scaled(ev, "weight_scales", stored, what, factor)
        cells = rerun(ev, consts={"weight_scales": np.ones_like(stored)})
        if cells is not None:
            yield Prediction("weight_scales taken as 1", cells)


@hypothesis("bias changed", needs_call=True)
def biases(ev: Evidence) -> Iterator[Prediction]:
    """A bias doubled, halved or subtracted."""
    bias = ev.call.consts.get("bias") if has_weights(ev) else None
    if bias is not None:
        for what, factor in _CHANGES:
            yield from _scaled(ev, "bias", bias, what, factor)


def _scaled(ev: Evidence, name: str, value: np.ndarray, what: str, factor: float) -> Iterator[Prediction]:
    with np.errstate(all="ignore"):
        cells = rerun(ev, consts={name: value * np.float32(factor)})
    if cells is not None:
        yield Prediction(f"{name} {what}", cells)


@hypothesis("input read at a neighbour", needs_call=True)
def neighbours(ev: Evidence) -> Iterator[Prediction]:
    """An input read one column, row, channel, word or image too far, or too little far."""
    for name, x, buffer in each_input(ev):
        for axis, dim in zip(range(-1, -5, -1), ("w", "h", "c", "n"), strict=False):
            if x.ndim < -axis or x.shape[axis] == 1:
                continue
            for by in (1, -1, *((4, -4) if dim in "wc" and x.shape[axis] > 4 else ())):
                cells = rerun(ev, inputs={name: np.roll(x, -by, axis)})
                if cells is not None:
                    yield Prediction(f"{name} read at {dim} {by:+d}", cells)
        words = buffer.data.reshape(-1, 4)
        for by in (1, -1) if len(words) > 1 else ():
            other = PackedBuffer(buffer.desc)
            other.data[:] = np.roll(words, -by, 0).reshape(-1)
            cells = rerun(ev, inputs={name: other.unpack()})
            if cells is not None:
                yield Prediction(f"{name} read {by:+d} word away", cells)


def _ended(ev: Evidence) -> Iterator[Prediction]:
    """An image that is taken to end where another tensor or another dim does."""
    x, (out_h, out_w) = ev.arrays["x"], ev.call.out.shape[-2:]
    height, width = x.shape[-2:]
    ends = {
        (out_h, out_w): "as the output does",
        (out_h, width): "its rows as the output's",
        (height, out_w): "its columns as the output's",
    }
    ends |= {
        (width, height): "H and W exchanged",
        (width, width): "W for both",
        (height, height): "H for both",
    }
    for (rows, columns), what in ends.items():
        if rows >= height and columns >= width:
            continue
        fresh = x.copy()
        fresh[..., rows:, :] = ev.call.params.in_zp
        fresh[..., columns:] = ev.call.params.in_zp
        cells = rerun(ev, inputs={"x": fresh})
        if cells is not None:
            said = f"x taken to end at row {min(rows, height)} and column {min(columns, width)}"
            yield Prediction(f"{said}: {what}", cells)


@hypothesis("edge of the input", needs_call=True)
def edges(ev: Evidence) -> Iterator[Prediction]:
    """The first or last row, column, channel or image of an input taken as outside of it; or the edge repeated."""
    if not is_convolution(ev) and not has_weights(ev):
        return
    for name, x, _ in each_input(ev):
        zp = int(getattr(ev.call.params, "in_zp", 0))
        for axis, dim in zip(range(-1, -5, -1), ("column", "row", "channel", "image"), strict=False):
            if x.ndim < -axis or x.shape[axis] == 1:
                continue
            for which, at in (("first", slice(0, 1)), ("last", slice(-1, None))):
                for fill in dict.fromkeys((zp, 0)):
                    fresh = x.copy()
                    np.moveaxis(fresh, axis, 0)[at] = fill
                    cells = rerun(ev, inputs={name: fresh})
                    if cells is not None:
                        outside = "the zero point" if fill == zp else "0"
                        yield Prediction(f"the {which} {dim} of {name} read as {outside}", cells)
    if is_convolution(ev):
        yield from _ended(ev)

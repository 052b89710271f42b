"""Causes in scales and zero points: which one, how often, and of which tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.hypotheses.numerics import out_zero_point
from refsim.bytediff.rerun import (
    each_input,
    finished,
    has_weights,
    has_window,
    is_convolution,
    logical_weight,
    rerun,
)
from refsim.ops.base import conv


def _tensors(params: Any) -> dict[str, tuple[str, str]]:
    """Tensor -> names of its scale and zero point among the parameters."""
    names = {name[: -len("_zp")] for name in vars(params) if name.endswith("_zp")}
    return {
        name: (f"{name}_scale", f"{name}_zp") for name in sorted(names) if hasattr(params, f"{name}_scale")
    }


def _zero_points(ev: Evidence) -> list[str]:
    return [name for name in vars(ev.call.params) if name.endswith("_zp") or name == "zp"]


@hypothesis("zero point not folded", needs_call=True)
def zero_point_missing(ev: Evidence) -> Iterator[Prediction]:
    """A zero point left out: the input's not subtracted, or the output's not added."""
    yield from _sums_times(ev, 0, "weight sums taken as 0: the input's zero point is not subtracted")
    yield from _zero_points_times(ev, 0, "taken as 0")


@hypothesis("zero point folded twice", needs_call=True)
def zero_point_twice(ev: Evidence) -> Iterator[Prediction]:
    """A zero point applied two times."""
    yield from _sums_times(ev, 2, "weight sums doubled: the input's zero point is subtracted twice")
    if not has_weights(ev):
        for name, x, buffer in each_input(ev):
            zp = _zero_point_of(ev, name)
            if zp is not None:
                cells = rerun(ev, inputs={name: x.astype(np.int32).reshape(buffer.desc.shape) - zp})
                if cells is not None:
                    yield Prediction(f"the zero point of {name} is subtracted twice", cells)
    yield from _out_zero_point_twice(ev)
    yield from _sums_times(ev, -1, "the input's zero point is added instead of subtracted")


def _zero_point_of(ev: Evidence, name: str) -> int | None:
    params = ev.call.params
    for candidate in (f"{name}_zp", "in_zp", "zp"):
        if hasattr(params, candidate):
            return int(getattr(params, candidate))
    return None


def _out_zero_point_twice(ev: Evidence) -> Iterator[Prediction]:
    zp = out_zero_point(ev)
    if zp is not None:
        twice = ev.logical.astype(np.int64) + zp
        yield Prediction("the output's zero point is added twice, the sum wraps", ev.with_values(twice))
        clipped = np.clip(twice, -128, 127)
        yield Prediction(
            "the output's zero point is added twice, the sum is clamped", ev.with_values(clipped)
        )


def _sums_times(ev: Evidence, factor: int, detail: str) -> Iterator[Prediction]:
    if has_weights(ev):
        sums = ev.call.consts["weight_sums"]
        assert sums is not None
        cells = rerun(ev, consts={"weight_sums": sums * np.int32(factor)})
        if cells is not None:
            yield Prediction(detail, cells)


def _zero_points_times(ev: Evidence, factor: int, detail: str) -> Iterator[Prediction]:
    for name in _zero_points(ev):
        value = getattr(ev.call.params, name) * factor
        cells = rerun(ev, params={name: value}) if -128 <= value <= 127 else None
        if cells is not None:
            yield Prediction(f"{name} {detail}", cells)


@hypothesis("border padded with 0", needs_call=True)
def border_zero(ev: Evidence) -> Iterator[Prediction]:
    """Taps outside the image read 0, or contribute nothing, instead of the zero point."""
    if is_convolution(ev):
        for value, what in ((0, "read 0"), *_other_borders(ev)):
            cells = with_border(ev, value)
            if cells is not None:
                yield Prediction(f"taps outside the image {what} instead of the zero point", cells)
    elif has_window(ev):
        cells = rerun(ev, params={"in_zp": 0})
        if cells is not None:
            yield Prediction("windows outside the image hold 0 instead of the zero point", cells)


def _other_borders(ev: Evidence) -> list[tuple[int, str]]:
    params = ev.call.params
    return [(params.out_zp, "read the output's zero point"), (-params.in_zp, "read minus the zero point")]


def with_border(ev: Evidence, value: int) -> np.ndarray | None:
    """Cells of a convolution whose taps outside the image read ``value``; its weight sums are right."""
    call = ev.call
    p, image = call.params, conv.nchw4(ev.arrays["x"])
    size = (call.out.shape[-2], call.out.shape[-1])
    weight = logical_weight(ev)
    acc = conv.accumulate(p, image, weight, size)
    # what the taps outside contribute: the sum over an image of zeros, with 1 outside
    outside = conv.accumulate(replace(p, in_zp=1), np.zeros_like(image), weight, size)
    return finished(ev, acc + (value - p.in_zp) * outside)


@hypothesis("another tensor's quantization", needs_call=True)
def other_quantization(ev: Evidence) -> Iterator[Prediction]:
    """A tensor's scale and zero point, or one of the two, taken from another tensor of the call or the call before."""
    params = ev.call.params
    tensors = _tensors(params)
    for to, source in permutations(tensors, 2):
        pairs = list(zip(tensors[to], tensors[source], strict=True))
        for chosen in (pairs, pairs[:1], pairs[1:]):
            cells = rerun(ev, params={a: getattr(params, b) for a, b in chosen})
            if cells is not None:
                names = " and ".join(a for a, _ in chosen)
                yield Prediction(f"{names} taken from {source}", cells)
    for to, source in permutations([name[: -len("_zp")] for name in _zero_points(ev)], 2):
        if to not in tensors or source not in tensors:  # the scale of one has another name
            cells = rerun(ev, params={f"{to}_zp": getattr(params, f"{source}_zp")})
            if cells is not None:
                yield Prediction(f"{to}_zp taken from {source}", cells)
    yield from _of_the_producer(ev, tensors)
    for to, source in permutations(tensors, 2):
        if to < source:
            changes = dict(
                zip(
                    tensors[to] + tensors[source], _values(params, tensors[source] + tensors[to]), strict=True
                )
            )
            cells = rerun(ev, params=changes)
            if cells is not None:
                yield Prediction(f"the quantizations of {to} and {source} exchanged", cells)
    for name in _scales(params):
        value = 1.0 / getattr(params, name)
        cells = rerun(ev, params={name: value}) if 2.0**-60 <= value <= 2.0**60 else None
        if cells is not None:
            yield Prediction(f"{name} taken as its inverse", cells)


def _of_the_producer(ev: Evidence, tensors: dict[str, tuple[str, str]]) -> Iterator[Prediction]:
    """Scales and zero points of the call before, which in a chain wrote the input."""
    if ev.previous is None:
        return
    before = ev.previous.call.params
    for to in tensors:
        for source, names in _tensors(before).items():
            cells = rerun(ev, params=dict(zip(tensors[to], _values(before, names), strict=True)))
            if cells is not None:
                yield Prediction(f"{' and '.join(tensors[to])} taken from {source} of the call before", cells)


def _values(params: Any, names: tuple[str, ...]) -> list[Any]:
    return [getattr(params, name) for name in names]


def _scales(params: Any) -> list[str]:
    # not "upscale", which counts pixels
    return [name for name in vars(params) if name == "scale" or name.endswith("_scale")]


@hypothesis("alpha ignored", needs_call=True)
def alpha_ignored(ev: Evidence) -> Iterator[Prediction]:
    """The factor of the second operand left out, or applied to the first."""
    if hasattr(ev.call.params, "alpha"):
        cells = rerun(ev, params={"alpha": 1.0})
        if cells is not None:
            yield Prediction("alpha taken as 1", cells)
        swapped = _alpha_on_first(ev)
        if swapped is not None:
            yield Prediction("alpha multiplies the first operand", swapped)


def _alpha_on_first(ev: Evidence) -> np.ndarray | None:
    p = ev.call.params
    params = {f"{a}_{what}": getattr(p, f"{b}_{what}") for a, b in ("ab", "ba") for what in ("scale", "zp")}
    return rerun(ev, params=params, inputs={"a": ev.arrays["b"], "b": ev.arrays["a"]})


@hypothesis("operands exchanged", needs_call=True)
def operands_exchanged(ev: Evidence) -> Iterator[Prediction]:
    """The two inputs exchanged, or one read in place of both."""
    names = [name for name, _, _ in each_input(ev)]
    if len(names) != 2:
        return
    a, b = names
    for new_a, new_b, what in (
        (b, a, f"{a} and {b} exchanged"),
        (a, a, f"{a} read twice"),
        (b, b, f"{b} read twice"),
    ):
        cells = rerun(ev, inputs={a: ev.arrays[new_a], b: ev.arrays[new_b]})
        if cells is not None:
            yield Prediction(what, cells)

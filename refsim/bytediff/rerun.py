"""Run a call again with something changed: what would the buffer hold if the kernel had been wrong in this way?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refsim.bytediff.evidence import Evidence, once
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import RefsimError
from refsim.core.qmath import Profile
from refsim.ops.base import conv, epilogue, float_linear
from refsim.ops.base.epilogue import PER_CHANNEL
from refsim.ops.base.traits import WINDOWED, Affine, Family


@dataclass(frozen=True)
class Wrong(Profile):
    """A profile with extra flag bits for what no correct device does (`qmath.TRUNCATE` and the flags beside it)."""

    extra: int = 0

    @property
    def flags(self) -> int:
        return super().flags | self.extra


def rerun(
    ev: Evidence,
    *,
    params: Mapping[str, Any] | None = None,
    consts: Mapping[str, np.ndarray | None] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    profile: Profile | None = None,
) -> np.ndarray | None:
    """Cells of the buffer if parts of the call are replaced; None if the operator refuses such a call."""
    call = ev.call
    target = call.target if profile is None else replace(call.target, profile=profile)
    if consts and not (params or inputs or profile) and has_weights(ev) and set(consts) <= set(PER_CHANNEL):
        with np.errstate(all="ignore"):
            return finished(ev, integer_sums(ev), consts)  # the sums stay the same
    try:
        changed = replace(call.params, **params) if params else call.params
        values = call.op.define(
            changed, target, **{**ev.arrays, **(inputs or {})}, **{**call.consts, **(consts or {})}
        )
    except (RefsimError, ValueError, IndexError):
        return None
    return ev.with_values(values) if values.shape == call.out.shape else None


def has_weights(ev: Evidence) -> bool:
    """Whether the call has integer sums with weights, and an epilogue after them; its inputs are int8."""
    return ev.bound is not None and ev.writing.epilogue is not None and not ev.call.op.takes_floats


def has_window(ev: Evidence) -> bool:
    """Whether the call moves a window over an image, with weights or without."""
    return ev.bound is not None and ev.call.op.family in WINDOWED


def is_convolution(ev: Evidence) -> bool:
    """Whether the call is a convolution with weights."""
    return has_weights(ev) and has_window(ev)


def is_depthwise(ev: Evidence) -> bool:
    """Whether the call is a convolution whose weight words hold four channels, each with a kernel of its own."""
    return ev.bound is not None and ev.call.op.family is Family.DEPTHWISE


def affine(ev: Evidence) -> Affine | None:
    """The arithmetic of an operator from int8 to int8; None for another one, or where bytes move unchanged."""
    return None if ev.call.op.affine is None else ev.call.op.affine(ev.call.params)


def convolve(
    ev: Evidence,
    *,
    params: Any = None,
    x: np.ndarray | None = None,
    weight: np.ndarray | None = None,
    finish: Mapping[str, Any] | None = None,
) -> np.ndarray | None:
    """Cells of a convolution with another window, image or logical weight.

    The output keeps the size that the call has, whatever the window would give. ``finish`` replaces constants of the
    epilogue.
    """
    call = ev.call
    p = params if params is not None else call.params
    image = conv.nchw4(ev.arrays["x"] if x is None else x)
    try:
        taps = logical_weight(ev, p) if weight is None else weight
        acc = conv.accumulate(p, image, taps, (call.out.shape[-2], call.out.shape[-1]))
    except (RefsimError, ValueError, IndexError):
        return None
    return finished(ev, acc, finish)


@once
def integer_sums(ev: Evidence) -> np.ndarray:
    """The sums of a call with weights, int64: (N, OC, OH, OW) of a convolution, else (..., outputs)."""
    call = ev.call
    if is_convolution(ev):
        size = (call.out.shape[-2], call.out.shape[-1])
        return conv.accumulate(call.params, conv.nchw4(ev.arrays["x"]), logical_weight(ev), size)
    weight = call.consts["weight"]
    assert weight is not None
    sums: np.ndarray = ev.arrays["x"].astype(np.int64) @ weight.T.astype(np.int64)
    return sums


#: What is added to each input where products are of unsigned bytes; its share is taken out of the sums again.
UNSIGNED = 128


def products(ev: Evidence, weight: np.ndarray, x: np.ndarray | None = None) -> np.ndarray:
    """Integer sums with other weights: (OC, KH, KW, IC) of a convolution, else (OC, ..) of a row of products.

    ``x``: what they are multiplied by instead of the call's own x.
    """
    if is_convolution(ev):
        if x is None:
            return window_sums(ev, weight)
        size = (ev.call.out.shape[-2], ev.call.out.shape[-1])
        return conv.accumulate(ev.call.params, conv.nchw4(x), weight, size)
    rows = weight.reshape(len(weight), -1).astype(np.int64)
    sums: np.ndarray = (ev.arrays["x"] if x is None else x).astype(np.int64) @ rows.T
    return sums


def window_sums(ev: Evidence, weight: np.ndarray, channels: np.ndarray | None = None) -> np.ndarray:
    """What `conv.accumulate` gives with other weights: the windows of the input are gathered once for all of them.

    ``weight`` are those of some ``channels`` alone, if these are given.
    """
    p, out = ev.call.params, ev.call.out
    if out.numel // out.shape[-3] * int(np.prod(weight.shape[1:])) * _groups(ev) > MOST_WINDOWS:
        x = conv.nchw4(ev.arrays["x"])
        chosen = x[:, channels] if channels is not None and is_depthwise(ev) else x
        return conv.accumulate(p, chosen, weight, (out.shape[-2], out.shape[-1]))
    windows = _windows(ev)
    if channels is not None and is_depthwise(ev):
        windows = windows[:, channels]
    n, groups, depth, _ = windows.shape
    rows = weight.reshape(groups, -1, depth).astype(np.float64)
    most = float(np.abs(rows).max(initial=0)) * _MOST_INPUT * depth
    kind = np.float32 if most < 1 << 24 else np.float64  # each is exact as far as its sums go
    sums = (rows.astype(kind) @ windows.astype(kind)).astype(np.int64)
    sums += p.in_zp * rows.sum(-1).astype(np.int64)[..., None]
    return sums.reshape(n, -1, out.shape[-2], out.shape[-1])


#: An int8 input less its zero point is at most so large. More numbers of windows are not kept.
_MOST_INPUT, MOST_WINDOWS = 255, 1 << 24


def _groups(ev: Evidence) -> int:
    groups: int = ev.call.descs["x"].shape[-3] // logical_weight(ev).shape[-1]
    return groups


@once
def _windows(ev: Evidence) -> np.ndarray:
    """Inputs less their zero point that each output reads, float32: (N, groups, KH * KW * IC, outputs)."""
    p, x = ev.call.params, conv.nchw4(ev.arrays["x"])
    groups = _groups(ev)
    images = np.pad(x.astype(np.float32) - np.float32(p.in_zp), ((0, 0), (0, 0), (0, 1), (0, 1)))
    images[..., -1, :] = images[..., -1] = 0  # where a tap has no source
    (kh, kw), (height, width) = p.kernel_size, ev.call.out.shape[-2:]
    rows = np.stack([p.source(0, height, i, x.shape[2]) for i in range(kh)])
    columns = np.stack([p.source(1, width, j, x.shape[3]) for j in range(kw)])
    found = images[:, :, rows[:, None, :, None], columns[None, :, None, :]]  # N, C, KH, KW, rows, columns
    grouped = np.moveaxis(found.reshape(len(x), groups, -1, *found.shape[2:]), 2, 4)
    return np.ascontiguousarray(grouped).reshape(len(x), groups, -1, height * width)


def unsigned(ev: Evidence, weight: np.ndarray) -> np.ndarray:
    """What sums with other weights have too much if bytes were made unsigned for them: it fits them by broadcast.

    By each channel's own weights so much was taken out as by the right weights was put in.
    """
    own = ev.call.consts["weight_sums"]
    assert own is not None
    more = UNSIGNED * (weight.reshape(len(weight), -1).sum(1, dtype=np.int64) - own)
    return more.reshape((-1, 1, 1) if ev.call.op.channel_dim == -3 else (-1,))


def weighed(ev: Evidence, weight: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """(what to add to a text, cells) with other weights: by signed products, and by unsigned bytes if that differs."""
    sums, more = products(ev, weight), unsigned(ev, weight)
    yield "", finished(ev, sums)
    if more.any():
        yield AS_UNSIGNED, finished(ev, sums + more)


AS_UNSIGNED = " of unsigned bytes"


def finished(ev: Evidence, acc: np.ndarray, consts: Mapping[str, Any] | None = None) -> np.ndarray:
    """Cells of a buffer whose integer sums are ``acc``; the epilogue is the call's own."""
    return ev.with_values(quantized(ev, acc, consts))


def quantized(ev: Evidence, acc: np.ndarray, consts: Mapping[str, Any] | None = None) -> np.ndarray:
    """Values of integer sums, by the call's own epilogue: int8, or floats where it ends before it quantizes."""
    assert ev.launch is not None
    call = ev.call
    ends = ev.writing.epilogue
    assert ends is not None
    spread = (-1, 1, 1) if call.op.channel_dim == -3 else (-1,)
    merged = {**call.consts, **(consts or {})}
    if not call.out.is_int8:
        return float_linear.finished(call.params, call.target, acc, merged)
    return epilogue.requantized(ends, call.params, call.target, acc, merged, spread)


def logical_weight(ev: Evidence, params: Any = None) -> np.ndarray:
    """Weights as (OC, KH, KW, IC per group)."""
    call = ev.call
    p = params if params is not None else call.params
    weight = call.consts["weight"]
    assert weight is not None
    if is_depthwise(ev):  # (KH, KW, OC)
        return np.moveaxis(weight.reshape(*p.kernel_size, -1), -1, 0)[..., None]
    return conv.logical_weight(p, weight, call.descs["x"].shape[-3] // p.groups)


def replaced(params: Any, **changes: Any) -> Any:
    """The parameters with changes; None if they are not legal."""
    try:
        return replace(params, **changes)
    except RefsimError:
        return None


def chained(ev: Evidence, change: Callable[[int, PackedBuffer], PackedBuffer]) -> np.ndarray | None:
    """Cells of a composite operator if ``change(part number, buffer)`` replaces each of its intermediate buffers."""
    call = ev.call
    if call.op.expand is None:
        return None
    parts = call.op.expand(call)
    if len(parts) == 1 and parts[0].call.op.expand is not None:
        parts = parts[0].call.op.expand(parts[0].call)
    buffers = dict(ev.inputs)
    for number, part in enumerate(parts):
        values = part.call.define({name: buffers[at].unpack() for name, at in part.inputs.items()})
        if part.output == "out":  # the scratch may be wider than the output
            return ev.with_values(values[..., : call.out.shape[-1]])
        buffers[part.output] = change(number, PackedBuffer.pack(values, part.call.out.layout))
    return None


def profiled(ev: Evidence, profile: Profile) -> np.ndarray | None:
    """Cells under a numerics profile."""
    return rerun(ev, profile=profile)


def wrong(ev: Evidence, extra: int) -> np.ndarray | None:
    """Cells under the call's own profile with defect bits added."""
    profile = ev.call.target.profile
    return rerun(
        ev,
        profile=Wrong(
            profile.name, profile.contract, profile.tie, profile.flush_denormals, profile.convert, extra
        ),
    )


def each_input(ev: Evidence) -> Iterator[tuple[str, np.ndarray, PackedBuffer]]:
    """(name, logical array, buffer) of the int8 inputs."""
    for name, buffer in ev.inputs.items():
        if buffer.desc.is_int8:
            yield name, ev.arrays[name], buffer

"""Causes in the constants of a call: weights, their sums and scales, the bias; and bytes read without their sign."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import (
    convolve,
    each_input,
    has_weights,
    is_convolution,
    is_depthwise,
    logical_weight,
    replaced,
    rerun,
    weighed,
)
from refsim.core.buffer import GUARD
from refsim.ops.base.epilogue import PER_CHANNEL


@hypothesis("unsigned lanes", needs_call=True)
def unsigned_lanes(ev: Evidence) -> Iterator[Prediction]:
    """int8 read as uint8: negative values of an operand come out 256 too large."""
    for name, x, _ in each_input(ev):
        cells = rerun(ev, inputs={name: x.astype(np.int32) & 255})
        if cells is not None:
            yield Prediction(f"{name} read as uint8", cells)
    names = [name for name, _, _ in each_input(ev)]
    if len(names) > 1:
        cells = rerun(ev, inputs={name: ev.arrays[name].astype(np.int32) & 255 for name in names})
        if cells is not None:
            yield Prediction(f"{' and '.join(names)} read as uint8", cells)
    if has_weights(ev):
        weight = ev.call.consts["weight"]
        assert weight is not None
        cells = rerun(ev, consts={"weight": weight.astype(np.int32) & 255})
        if cells is not None:
            yield Prediction("weights read as uint8", cells)
        yield from _raised(ev, weight)
        yield from _flipped(ev)


def _flipped(ev: Evidence) -> Iterator[Prediction]:
    """Bytes that are made unsigned, or back, once too often or not at all: their sign bit is the other one."""
    for name, x, _ in each_input(ev):
        other = x ^ np.int8(-128)
        cells = rerun(ev, inputs={name: other})
        if cells is not None:
            yield Prediction(f"{name} read with its sign bit flipped", cells)
        zp = getattr(ev.call.params, "in_zp", 0)
        params = (
            replaced(ev.call.params, in_zp=zp + 128 if zp < 0 else zp - 128) if is_convolution(ev) else None
        )
        cells = None if params is None else convolve(ev, params=params, x=other)
        if cells is not None:
            yield Prediction(f"{name} and its border read with the sign bit flipped", cells)


def _raised(ev: Evidence, weight: np.ndarray) -> Iterator[Prediction]:
    """Sums of bytes that were made unsigned by adding 128, which was not taken out of the sum again."""
    for name, x, _ in each_input(ev):
        cells = rerun(ev, inputs={name: x.astype(np.int32) + 128})
        if cells is not None:
            yield Prediction(f"the 128 that makes {name} unsigned is not taken out of the sum", cells)
    cells = rerun(ev, consts={"weight": weight.astype(np.int32) + 128})
    if cells is not None:
        yield Prediction("the 128 that makes weights unsigned is not taken out of the sum", cells)


@hypothesis("weight sums over the wrong dimension", needs_call=True)
def sums_wrong(ev: Evidence) -> Iterator[Prediction]:
    """Weight sums that are not those of the output channels' own weights."""
    if not has_weights(ev):
        return
    right = ev.call.consts["weight_sums"]
    stored = ev.call.consts["weight"]
    assert right is not None and stored is not None
    for axis in range(stored.ndim):
        others = tuple(a for a in range(stored.ndim) if a != axis)
        wrong = np.resize(stored.sum(others, dtype=np.int32), right.shape)
        yield from _with(ev, "weight_sums", wrong, f"summed over all dims of the weights but {axis}")
        kept = np.resize(stored.sum(axis, dtype=np.int32).reshape(-1), right.shape)
        yield from _with(ev, "weight_sums", kept, f"summed over dim {axis} of the weights alone")
    yield from _with(
        ev, "weight_sums", np.full_like(right, stored.sum(dtype=np.int32)), "summed over everything"
    )


@hypothesis("channel constants misplaced", needs_call=True)
def constants_misplaced(ev: Evidence) -> Iterator[Prediction]:
    """Weight sums, scales or bias of another channel, left out, or missing beyond the last whole word."""
    if not has_weights(ev):
        return
    for name in PER_CHANNEL:
        value = ev.call.consts[name]
        if value is None:
            continue
        for by in (1, -1, 4, -4):
            yield from _with(ev, name, np.roll(value, by), f"of the channel {by:+d} away")
        yield from _with(ev, name, np.full_like(value, value[0]), "of channel 0 for all")
        yield from _with(ev, name, np.repeat(value[::4], 4)[: len(value)], "of each word's first channel")
        yield from _with(ev, name, np.resize(value[:4], len(value)), "of the first word for all")
        if name != "weight_sums":
            yield from _with(ev, name, np.zeros_like(value), "left out")
        whole = np.where(np.arange(len(value)) < len(value) // 4 * 4, value, 0).astype(value.dtype)
        yield from _with(ev, name, whole, "missing beyond the last whole word of channels")

    yield from _bound_elsewhere(ev)
    # the first channel of a word computed with another factor than 4
    names = [name for name in PER_CHANNEL if ev.call.consts[name] is not None]
    for factor in (0, 1, 2, 3, 5, 8):
        changed: dict[str, np.ndarray | None] = {}
        for name in names:
            value = ev.call.consts[name]
            assert value is not None
            channel = np.arange(len(value))
            at = factor * (channel // 4) + channel % 4
            changed[name] = np.where(at < len(value), value[np.minimum(at, len(value) - 1)], 0).astype(
                value.dtype
            )
        for chosen in (names, *([name] for name in names)):
            cells = rerun(ev, consts={name: changed[name] for name in chosen})
            if cells is not None:
                what = f"of the channel {factor} * word + lane"
                yield Prediction(f"{', '.join(chosen)} {what}", cells)


def _bound_elsewhere(ev: Evidence) -> Iterator[Prediction]:
    """The words of one constant read as those of another: buffers bound, or named, in each other's place."""
    held = {name: value for name in PER_CHANNEL if (value := ev.call.consts[name]) is not None}
    for name, other in permutations(held, 2):
        read = np.ascontiguousarray(held[other]).view(held[name].dtype)
        yield from _with(ev, name, read, f"read from the words of {other}")
    for a, b in ((a, b) for a, b in permutations(held, 2) if a < b):
        changed = {x: np.ascontiguousarray(held[y]).view(held[x].dtype) for x, y in ((a, b), (b, a))}
        cells = rerun(ev, consts=changed)
        if cells is not None:
            yield Prediction(f"{a} and {b} read from the words of each other", cells)


def _with(ev: Evidence, name: str, value: np.ndarray, what: str) -> Iterator[Prediction]:
    cells = rerun(ev, consts={name: value})
    if cells is not None:
        yield Prediction(f"{name} {what}", cells)


@hypothesis("weights in another order", needs_call=True)
def weights_order(ev: Evidence) -> Iterator[Prediction]:
    """Weights read with taps, channels or output channels in another order, or flipped."""
    if not has_weights(ev):
        return
    yield from _words_in_order(ev)
    yield from _texels(ev)
    if not is_convolution(ev):
        weight = ev.call.consts["weight"]
        assert weight is not None
        yield from _with(ev, "weight", np.ascontiguousarray(weight.T).reshape(weight.shape), "transposed")
        return
    weight = logical_weight(ev)
    out, kh, kw, channels = weight.shape
    variants = {
        "with rows and columns of taps exchanged": weight.swapaxes(1, 2).reshape(weight.shape),
        "with taps counted down the columns": weight.reshape(out, kw, kh, channels).swapaxes(1, 2),
        "with channels slowest instead of fastest": weight.reshape(out, channels, kh, kw).transpose(
            0, 2, 3, 1
        ),
        "with taps flipped": weight[:, ::-1, ::-1, :],
        "with output and input channels exchanged": weight.transpose(3, 1, 2, 0).reshape(weight.shape),
        "with columns of taps flipped": weight[:, :, ::-1, :],
        "with rows of taps flipped": weight[:, ::-1, :, :],
    }
    for what, changed in variants.items():
        for how, cells in weighed(ev, changed):
            yield Prediction(f"weights read {what}{how}", cells)


_AXES = ("output channel", "tap", "input word")


def _words_in_order(ev: Evidence) -> Iterator[Prediction]:
    """Weight words stored in another order than [tap][input word][output channel], the one that kernels read."""
    convolution = is_convolution(ev)
    weight = logical_weight(ev) if convolution else ev.call.consts["weight"]
    assert weight is not None
    if is_depthwise(ev):
        return  # one word serves four output channels there
    out, channels = weight.shape[0], weight.shape[-1]
    taps = weight.reshape(out, -1, channels)
    padded = np.zeros((-(-out // 4) * 4, taps.shape[1], -(-channels // 4) * 4), np.int8)
    padded[:out, :, :channels] = taps
    words = padded.reshape(*padded.shape[:2], -1, 4)
    for order in permutations(range(3)):
        if order == (1, 2, 0):
            continue
        stored = np.ascontiguousarray(words.transpose(*order, 3)).reshape(-1, 4)
        read = stored.reshape(words.shape[1], words.shape[2], words.shape[0], 4).transpose(2, 0, 1, 3)
        changed = read.reshape(padded.shape)[:out, :, :channels].reshape(weight.shape)
        for how, cells in weighed(ev, changed):
            yield Prediction(f"weight words stored {' by '.join(_AXES[axis] for axis in order)}{how}", cells)


def _texels(ev: Evidence) -> Iterator[Prediction]:
    """Weights as ET-VK's kernels fetch them, from a texture, with wrong coordinates.

    A texel has four words of as many output channels. x: four output channels, kernel column. y: kernel row, input
    word.
    """
    if is_depthwise(ev):
        return
    weight = logical_weight(ev) if is_convolution(ev) else ev.call.consts["weight"]
    assert weight is not None
    flat = ev.writing.one_tap or not is_convolution(ev)  # a row of products has no window
    taps = weight.reshape(len(weight), 1, 1, -1) if flat else weight
    out, kh, kw, channels = taps.shape
    padded = np.zeros((-(-out // 4) * 4, kh, kw, -(-channels // 4) * 4), np.int8)
    padded[:out, ..., :channels] = taps
    split = padded.reshape(-1, 4, kh, kw, padded.shape[-1] // 4, 4)  # OC / 4, 4, KH, KW, IC / 4, 4
    height, width = kh * split.shape[4], len(split) * kw
    texels = split.transpose(2, 4, 0, 3, 1, 5).reshape(height * width, 4, 4)
    y, x = np.indices((height, width))
    rules = {
        "fetched with x and y exchanged": x * width + y,
        "fetched in rows as long as the texture is high": y * height + x,
    }
    for (what, at), (beyond, behind) in product(rules.items(), _BEYOND.items()):
        inside = at < len(texels)
        fetched = np.where(inside[..., None, None], texels[np.where(inside, at, 0)], behind)
        blocks = fetched.reshape(kh, split.shape[4], len(split), kw, 4, 4).transpose(2, 4, 0, 3, 1, 5)
        changed = blocks.reshape(padded.shape)[:out, ..., :channels].reshape(weight.shape)
        cells = convolve(ev, weight=changed) if is_convolution(ev) else rerun(ev, consts={"weight": changed})
        if cells is not None:
            yield Prediction(f"weight texels {what}{beyond}", cells)


#: What lies behind the texels of weights -> four bytes of each word: zeros, or an executor's guard.
_BEYOND = {"": np.zeros(4, np.int8), ", guard words behind": np.array([GUARD]).view(np.int8)}

"""Causes in an integer sum: too few bits, not begun at 0, or over the channels of another group."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.rerun import convolve, finished, has_weights, integer_sums, is_convolution
from refsim.ops.base import conv

_LOW, _HIGH = -(1 << 15), (1 << 15) - 1
#: So many of the lowest bits may be lost.
LOWEST_BITS = 3
_INFINITE = 1 << 30  # what is infinite in binary16 saturates any output


@hypothesis("sums of 16 bits", needs_call=True)
def sixteen_bits(ev: Evidence) -> Iterator[Prediction]:
    """A sum that saturates or wraps at 16 bits, or that binary16 rounds."""
    if not has_weights(ev):
        return
    sums = integer_sums(ev)
    yield Prediction("sums saturate at 16 bits", finished(ev, np.clip(sums, _LOW, _HIGH)))
    yield Prediction("sums wrap at 16 bits", finished(ev, (sums - _LOW) % (1 << 16) + _LOW))
    with np.errstate(over="ignore"):
        half = sums.astype(np.float16).astype(np.float64)
    held = np.clip(half, -_INFINITE, _INFINITE).astype(np.int64)
    yield Prediction("sums rounded to half precision", finished(ev, held))
    for bits in range(1, LOWEST_BITS + 1):
        yield from _lowest(ev, sums, bits)


def _lowest(ev: Evidence, sums: np.ndarray, bits: int) -> Iterator[Prediction]:
    """The lowest bits of sums lost, before the zero point is subtracted or after it."""
    spread = (-1, 1, 1) if ev.call.op.channel_dim == -3 else (-1,)
    weight_sums = ev.call.consts["weight_sums"]
    assert weight_sums is not None
    folded = np.int64(ev.call.params.in_zp) * weight_sums.astype(np.int64).reshape(spread)
    for what, less in (("sums", np.int64(0)), ("sums less the zero point", folded)):
        held = ((sums - less) >> bits << bits) + less
        yield Prediction(f"the lowest {bits} bits of {what} are 0", finished(ev, held))


@hypothesis("sums not reset", needs_call=True)
def not_reset(ev: Evidence) -> Iterator[Prediction]:
    """An accumulator that keeps the sum of what the same invocation computed before."""
    if not has_weights(ev):
        return
    sums = integer_sums(ev)
    along = (("columns", -1), ("rows", -2)) if is_convolution(ev) else (("outputs", -1), ("rows", -2))
    for name, axis in along:
        if sums.ndim < -axis or sums.shape[axis] == 1:
            continue
        for tile in (2, 4, 8):
            tiled = _tiles(np.moveaxis(sums, axis, -1), tile)
            kept = np.cumsum(tiled, -1)
            yield Prediction(f"sums carried on through {tile} {name}", finished(ev, _whole(kept, sums, axis)))
            if len(sums) > 1 and sums.ndim > 2:
                kept = kept + np.cumsum(tiled.sum(-1, keepdims=True), 0) - tiled.sum(-1, keepdims=True)
                what = f"sums carried on through {tile} {name} and all batches"
                yield Prediction(what, finished(ev, _whole(kept, sums, axis)))


def _tiles(sums: np.ndarray, tile: int) -> np.ndarray:
    """The last axis cut into tiles, padded with zeros."""
    count = -(-sums.shape[-1] // tile)
    padded = np.zeros((*sums.shape[:-1], count * tile), np.int64)
    padded[..., : sums.shape[-1]] = sums
    return padded.reshape(*sums.shape[:-1], count, tile)


def _whole(tiles: np.ndarray, sums: np.ndarray, axis: int) -> np.ndarray:
    """The inverse of `_tiles`, with the axis where it was."""
    joined = tiles.reshape(*tiles.shape[:-2], -1)[..., : sums.shape[axis]]
    return np.moveaxis(joined, -1, axis)


@hypothesis("group ignored", needs_call=True)
def group_ignored(ev: Evidence) -> Iterator[Prediction]:
    """Every group of output channels reads the input channels of the first."""
    if not is_convolution(ev) or ev.call.params.groups == 1:
        return
    image = conv.nchw4(ev.arrays["x"])
    groups = ev.call.params.groups
    first = np.tile(image[:, : image.shape[1] // groups], (1, groups, 1, 1))
    cells = convolve(ev, x=first)
    if cells is not None:
        yield Prediction("every group reads the channels of the first", cells)

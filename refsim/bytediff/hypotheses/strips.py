"""Constants of outputs that a kernel reads a vector at a time, at a wrong address: part of `channels`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence
from refsim.bytediff.rerun import has_weights, rerun
from refsim.core.buffer import GUARD
from refsim.ops.base.traits import Family

#: Lanes of a vector, as processors have them, and one output at a time.
LANES = (16, 8, 4, 1)
#: What an address is multiplied by instead of 1: as bytes for words, words for bytes, or taken away.
FACTORS = (-1.0, 0.0, 0.25, 0.5, 2.0, 4.0)
MOST_ELEMENTS = 1 << 13


def constants(ev: Evidence) -> Iterator[tuple[str, np.ndarray]]:
    """(which constants were read where, the cells): [groups, outputs] or [outputs], guard words around them."""
    grouped = ev.call.op.int4 is not None and ev.call.op.family is not Family.LOOKUP
    if not (grouped or has_weights(ev)) or ev.call.out.numel > MOST_ELEMENTS:
        return
    outputs = ev.call.out.shape[-1 if grouped else ev.call.op.channel_dim]
    for name, value in ev.call.consts.items():
        if value is None or value.ndim > 2 or value.shape[-1] < outputs or value.itemsize != 4:
            continue
        seen = {value[..., :outputs].tobytes()}
        for what, at, padded in _places(value.size // value.shape[-1], outputs):
            read = value.copy()
            read[..., :outputs] = _read(value[..., :outputs], at, padded).reshape(*value.shape[:-1], outputs)
            if read[..., :outputs].tobytes() in seen:
                continue
            seen.add(read[..., :outputs].tobytes())
            with np.errstate(all="ignore"):
                cells = rerun(ev, consts={name: read})
            if cells is not None:
                yield f"{name}: {what}", cells


def _places(groups: int, outputs: int) -> Iterator[tuple[str, np.ndarray, int]]:
    """(rule, the byte at which each output of each group is read, outputs in a row of memory)."""
    group, output = np.arange(groups)[:, None], np.arange(outputs)[None, :]
    for lanes in LANES:
        padded = -(-outputs // lanes) * lanes
        lane, first = output % lanes, output - output % lanes
        for factor in FACTORS:
            times = f"times {factor:g}, {lanes} outputs at a time"
            yield f"the whole address {times}", _bytes(factor * (group * padded + first)) + 4 * lane, padded
            if outputs > lanes:
                yield f"the first output {times}", _bytes(group * padded + factor * first) + 4 * lane, padded
            if groups > 1:
                yield f"the group {times}", _bytes(factor * group * padded + first) + 4 * lane, padded


def _bytes(words: np.ndarray) -> np.ndarray:
    return np.rint(4 * words).astype(np.int64)


def _read(value: np.ndarray, at: np.ndarray, padded: int) -> np.ndarray:
    """The words at these bytes of a constant whose rows are filled up with zeros, among guard words."""
    rows = value.reshape(-1, value.shape[-1])
    held = np.zeros((len(rows), padded), value.dtype)
    held[:, : value.shape[-1]] = rows
    around = np.full(max(0, -int(at.min()), int(at.max()) + 4 - held.nbytes) // 4 + 1, GUARD, np.int32)
    memory = np.concatenate([around.view(np.uint8), held.reshape(-1).view(np.uint8), around.view(np.uint8)])
    each = memory[(around.nbytes + at)[..., None] + np.arange(4)]
    return np.ascontiguousarray(each).view(value.dtype)

"""Lanes of words in any other order: of the output, of an input, or of the weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.hypotheses.addressing import gathered, weights_rearranged
from refsim.bytediff.rerun import has_weights, rerun
from refsim.core.buffer import ByteKind, PackedBuffer, offsets

_PAIRS = tuple((a, b) for a in range(4) for b in range(a + 1, 4))
#: Computing again is not tried for more elements of an input than these.
MOST_ELEMENTS = 1 << 14
#: Nor are weights put in another order for more weights times outputs than these.
MOST_PRODUCTS = 1 << 22


def _orders() -> Iterator[tuple[list[int], str]]:
    for a, b in _PAIRS:
        order = [0, 1, 2, 3]
        order[a], order[b] = b, a
        yield order, f"lanes {a} and {b} exchanged"
    for lane in range(4):
        yield [lane] * 4, f"lane {lane} in place of all"


@hypothesis("lanes exchanged")
def exchanged(ev: Evidence) -> Iterator[Prediction]:
    """Two lanes of each word exchanged, or one lane in place of all."""
    yield from _of_the_output(ev)
    if ev.bound is None:
        return
    for name, buffer in ev.inputs.items():
        if buffer.desc.numel > MOST_ELEMENTS:
            continue
        for order, what in _orders():
            cells = rerun(ev, inputs={name: _read(buffer, order)})
            if cells is not None:
                yield Prediction(f"{name} read with {what}", cells)
    weight = ev.call.consts["weight"] if has_weights(ev) else None
    if weight is not None and weight.size * ev.call.out.numel <= MOST_PRODUCTS:
        for order, what in _orders():
            cells = weights_rearranged(ev, lambda blocks, order=order: blocks[..., order])  # type: ignore[misc]
            if cells is not None:
                yield Prediction(f"weights read with {what}", cells)


def _of_the_output(ev: Evidence) -> Iterator[Prediction]:
    """For each lane of the words the lane whose right values stand there most often."""
    if len(ev.want) % 4:
        return
    want, got, wrong = (
        a.reshape(-1, 4) for a in (ev.want, ev.got, ev.differing & (ev.kinds == ByteKind.VALUE))
    )
    order = list(range(4))
    for lane in range(4):
        rows = wrong[:, lane]
        if rows.any():
            order[lane] = int((want[rows] == got[rows, lane][:, None]).sum(axis=0).argmax())
    if order != [0, 1, 2, 3]:
        fresh = np.where((ev.kinds == ByteKind.VALUE).reshape(-1, 4), want[:, order], want).reshape(-1)
        yield Prediction(
            f"the lanes of the output are those of {', '.join(map(str, order))}", fresh, inferred=True
        )


def _read(buffer: PackedBuffer, order: list[int]) -> np.ndarray:
    at = offsets(buffer.desc)
    if buffer.desc.is_int8:
        return gathered(buffer, at // 4 * 4 + np.array(order)[at % 4])
    moved = at // 4 * 4 + np.array(order)[at % 4]
    return gathered(buffer, np.where(moved < buffer.desc.numel, moved, at))

"""Four bytes and their word: put together in another way than they are taken apart."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis
from refsim.bytediff.hypotheses import grouped_rows, quantizing
from refsim.bytediff.hypotheses.numerics import out_zero_point
from refsim.bytediff.rerun import each_input, rerun
from refsim.core.buffer import offsets

#: Inputs of more elements are not read again, nor are outputs of more computed again.
MOST_ELEMENTS = 1 << 14


@hypothesis("words put together wrongly")
def joined(ev: Evidence) -> Iterator[Prediction]:
    """Lanes at other bits of their word, another mask, or digits that are added up at other places."""
    if ev.desc.is_int8 and len(ev.want) % 4 == 0:
        yield from _of_the_output(ev)
    if ev.bound is None:
        return
    yield from grouped_rows.words(ev)
    if ev.call.out.numel > MOST_ELEMENTS:
        return
    for name, _, buffer in each_input(ev):
        if buffer.desc.numel > MOST_ELEMENTS or len(buffer.data) % 4:
            continue
        at = offsets(buffer.desc)
        for how, lanes in quantizing.lanes_read(buffer.words):
            read = lanes.reshape(-1)[at].astype(np.int32).reshape(buffer.desc.shape)
            cells = rerun(ev, inputs={name: read})
            if cells is not None:
                yield Prediction(f"lanes of {name} read {how}", cells)


def _of_the_output(ev: Evidence) -> Iterator[Prediction]:
    words = ev.want.reshape(-1, 4)
    zp = out_zero_point(ev) if ev.bound is not None else 0
    for what, made in quantizing.joined(words, np.full(words.shape, zp or 0, np.int64)):
        yield Prediction(what, made.astype(np.int8).reshape(-1))

"""The wrong byte as a function of the right one: then everything before the last step is right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, distinct, hypothesis
from refsim.core import choices
from refsim.core.buffer import ByteKind

#: So many distinct right values, and so many elements for each of them, or a function says nothing.
LEAST_VALUES, LEAST_EACH = 6, 3


@hypothesis("wrong after the value was right")
def mapped(ev: Evidence) -> Iterator[Prediction]:
    """Equal right bytes became equal wrong ones: the last step is wrong, and neither an address nor a sum."""
    if not ev.desc.is_int8:
        return
    at = np.flatnonzero((ev.kinds == ByteKind.VALUE) & ev.compared)
    want, got = ev.want[at].astype(np.int64) + 128, ev.got[at].astype(np.int64) + 128
    wrong = want != got
    values = distinct(want[wrong])
    if len(values) < LEAST_VALUES or np.count_nonzero(wrong) < LEAST_EACH * len(values):
        return
    pairs = distinct(want * 256 + got)
    first = {int(pair) // 256: int(pair) % 256 for pair in pairs}
    if len(first) < len(pairs):
        return  # one right value became several
    table = np.arange(256)
    for value, other in first.items():
        table[value] = other
    fresh = ev.want.copy()
    fresh[at] = (table[want] - 128).astype(np.int8)
    yield Prediction(_said(values - 128, table[values] - 128), fresh, inferred=True)


def _said(values: np.ndarray, became: np.ndarray) -> str:
    distance = distinct(became - values)
    if len(distance) == 1:
        return f"{len(values)} values came out {distance[0]:+d}"
    if len(distinct(became)) == 1:
        return f"values from {values[0]} to {values[-1]} came out as {became[0]}"
    listed = choices.first([f"{a} as {b}" for a, b in zip(values, became, strict=True)])
    return f"{len(values)} values came out as others: {listed}"

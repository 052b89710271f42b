"""Causes that are known: what upstream's own kernel of the operator does wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction, hypothesis

NAME = "known defect of upstream"
#: The share of elements that are wrong where nothing was written: what stands there may be right by chance.
MOSTLY = 0.9


@hypothesis(NAME, needs_call=True)
def known(ev: Evidence) -> Iterator[Prediction]:
    """A defect that the operator lists. What upstream never writes may hold anything."""
    for defect in ev.call.defects:
        if defect.values is None:
            continue
        values = defect.values(ev.call, ev.arrays)
        cells = ev.with_values(np.ma.getdata(values))
        unwritten = ev.places[np.ma.getmaskarray(values).reshape(ev.places.shape)]
        if len(unwritten) and ev.differing[unwritten].mean() < MOSTLY:
            continue  # something wrote there
        # what it does write must be as it writes it, or the bytes that may be anything would explain all by themselves
        written = ev.differing.copy()
        written[unwritten] = False
        if len(unwritten) and (cells != ev.got)[written].sum() > np.count_nonzero(written) / 2:
            continue
        cells[unwritten] = ev.got[unwritten]
        yield Prediction(defect.note, cells)

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
        stray = ev.places[defect.unknown(ev.call, values).reshape(ev.places.shape)]
        if len(unwritten) and ev.differing[unwritten].mean() < MOSTLY:
            continue  # something wrote there
        # what is known must be as it is known, or the bytes that may be anything would explain all by themselves
        anything = np.concatenate((unwritten, stray))
        certain = ev.differing | (cells != ev.want)
        certain[anything] = False
        if len(anything) and (cells != ev.got)[certain].sum() > np.count_nonzero(certain) / 2:
            continue
        cells[anything] = ev.got[anything]
        yield Prediction(defect.note, cells)

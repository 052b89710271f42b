"""Known defects of a runtime: as a cause, and taken off where they hide the bug beside them.

A batch that nobody wrote is wrong everywhere. So the defect is taken off first, and all causes explain what remains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction
from refsim.core.errors import RefsimError
from refsim.ops.base.defect import Defect

NAME = "known defect of upstream"
#: What nobody wrote holds one value, such as what the buffer was filled with, in this share of it at least; that may be
#: right by chance.
MOSTLY = 0.9


@dataclass(frozen=True)
class Start:
    """What is to be explained, and the defect that was taken off; None if there is none."""

    evidence: Evidence
    defect: Defect | None = None

    @property
    def computes_otherwise(self) -> bool:
        """Whether the defect changes values, of which a part may be right by chance."""
        return self.defect is not None and self.defect.instead is not None

    @property
    def told(self) -> tuple[str, ...]:
        """Which defect was taken off, as a sentence."""
        return () if self.defect is None else (f"beside a known defect ({self.defect.note}):",)


def _left_by(ev: Evidence) -> Iterator[tuple[Defect, np.ndarray, np.ndarray, np.ndarray]]:
    """Each defect of the operator with the cells it leaves, those it does not write, and those of unknown value."""
    for defect in ev.call.defects if ev.bound is not None else ():
        if defect.values is None:
            continue
        try:
            values = defect.values(ev.call, ev.arrays)
        except RefsimError:
            continue
        held = np.ma.getdata(values).astype(ev.expected.data.dtype).view(ev.want.dtype)
        masks = np.ma.getmaskarray(values), defect.unknown(ev.call, values)
        unwritten, unknown = (ev.places[mask.reshape(ev.places.shape)] for mask in masks)
        yield defect, ev.with_cells(held), unwritten, unknown


def known(ev: Evidence) -> Iterator[Prediction]:
    """A defect that the operator lists. What upstream never writes may hold anything."""
    for defect, found, unwritten, unknown in _left_by(ev):
        if len(unwritten) and ev.differing[unwritten].mean() < MOSTLY:
            continue  # something wrote there
        # what is known must be as it is known, or the bytes that may be anything would explain all by themselves
        anything = np.concatenate((unwritten, unknown))
        certain = ev.differing | (found != ev.want)
        certain[anything] = False
        if len(anything) and (found != ev.got)[certain].sum() > np.count_nonzero(certain) / 2:
            continue
        found[anything] = ev.got[anything]
        yield Prediction(NAME, defect.note, found)


def start(ev: Evidence) -> Start:
    """The evidence, without the known defect of the runtime that it shows; as it is if it shows none.

    One that explains all that differs is a cause like any other, and is not taken off.
    """
    most = _left(Start(ev))
    found = [row for row in without(ev) if 0 < _left(row) < most / (2 if row.computes_otherwise else 1)]
    return min(found, key=_left, default=Start(ev))


def _left(row: Start) -> int:
    """How many elements differ."""
    return int(np.count_nonzero(row.evidence.wrong))


def without(ev: Evidence) -> Iterator[Start]:
    """The evidence without each defect that it shows; none where nothing is to be explained."""
    if not ev.differing.any() or ev.reversed:
        return
    for defect, found, unwritten, unknown in _left_by(ev):
        assert ev.bound is not None
        call = defect.instead(ev.call) if defect.instead is not None else ev.call
        try:
            right = call.expected(ev.inputs)
        except RefsimError:
            continue
        if not _untouched(ev, unwritten):
            continue
        # where a kernel stops, it writes no padding either
        compared = ev.compared & ev.values if len(unwritten) else ev.compared.copy()
        compared[np.concatenate((unwritten, unknown))] = False
        begun = replace(ev, expected=right, compared=compared, bound=replace(ev.bound, call=call))
        if begun.expected_right and np.array_equal(begun.want[compared], found[compared]):
            yield Start(begun, defect)


def _untouched(ev: Evidence, cells: np.ndarray) -> bool:
    """Whether these cells hold what nobody wrote: mostly one value, and the right one only by chance."""
    if not len(cells):
        return True
    _, counts = np.unique(ev.got[cells], return_counts=True)
    return bool(counts.max() >= MOSTLY * len(cells) and ev.differing[cells].mean() >= MOSTLY)

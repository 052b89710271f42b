"""Where a diff starts: at the right bytes, or at those of a kernel that has a defect which the runtime is known for.

A defect hides the bug beside it: a batch that nobody wrote is wrong everywhere. So it is taken off first, and all
causes explain what remains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from refsim.bytediff.evidence import Evidence
from refsim.bytediff.rank import Cause, causes
from refsim.core.buffer import ByteKind
from refsim.core.errors import RefsimError
from refsim.ops.base.defect import Defect

#: What nobody wrote holds one value, such as what the buffer was filled with, in this share of it at least.
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


def explained(ev: Evidence, seconds: float) -> tuple[Start, list[Cause]]:
    """Where to start, and the causes of what remains. See `causes` for ``seconds``.

    A defect that changes values may leave nothing right to know it by. It is taken off where no cause fits exactly with
    it, and one does without.
    """
    first = start(ev)
    found = causes(first.evidence, seconds)
    if first.defect is None and ev.bound is not None and not ev.reversed and not (found and found[0].exact):
        for other in _without(ev):
            rest = causes(other.evidence, seconds) if other.computes_otherwise else []
            if rest and rest[0].exact:
                return other, rest
    return first, found


def start(ev: Evidence) -> Start:
    """The evidence, without the known defect of the runtime that it shows; as it is if it shows none.

    One that explains all that differs is a cause like any other, and is not taken off.
    """
    if ev.bound is None or not ev.differing.any() or ev.reversed:
        return Start(ev)
    most = _left(Start(ev))
    found = [row for row in _without(ev) if 0 < _left(row) < most / (2 if row.computes_otherwise else 1)]
    return min(found, key=_left, default=Start(ev))


def _left(row: Start) -> int:
    """How many elements differ."""
    ev = row.evidence
    return int(np.count_nonzero(ev.differing & (ev.kinds == ByteKind.VALUE)))


def _without(ev: Evidence) -> Iterator[Start]:
    """The evidence without each defect that it shows."""
    assert ev.bound is not None
    for defect in ev.call.defects:
        if defect.values is None:
            continue
        call = defect.instead(ev.call) if defect.instead is not None else ev.call
        try:
            values = defect.values(ev.call, ev.arrays)
            right = call.expected(ev.inputs)
        except RefsimError:
            continue
        unwritten = ev.places[np.ma.getmaskarray(values).reshape(ev.places.shape)]
        unknown = ev.places[defect.unknown(ev.call, values).reshape(ev.places.shape)]
        if not _untouched(ev, unwritten):
            continue
        compared = ev.compared.copy()
        compared[np.concatenate((unwritten, unknown))] = False
        if len(unwritten):
            compared &= ev.kinds == ByteKind.VALUE  # where a kernel stops, it writes no padding either
        begun = replace(ev, expected=right, compared=compared, bound=replace(ev.bound, call=call), kept={})
        if begun.expected_right and np.array_equal(
            begun.want[compared], ev.with_values(np.ma.getdata(values))[compared]
        ):
            yield Start(begun, defect)


def _untouched(ev: Evidence, cells: np.ndarray) -> bool:
    """Whether these cells hold what nobody wrote: mostly one value, and the right one only by chance."""
    if not len(cells):
        return True
    _, counts = np.unique(ev.got[cells], return_counts=True)
    return bool(counts.max() >= MOSTLY * len(cells) and ev.differing[cells].mean() >= MOSTLY)

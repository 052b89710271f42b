"""The cause is an edit: search the right kernel for the smallest change that gives exactly the wrong bytes.

The kernel and all that it calls are copied so that one number selects an edit (`schema`, `sites`). Each edit is
tried on a few work items (`witnesses`, `run`). What survives predicts the whole buffer (`whole`) and is ranked like any
cause.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction
from refsim.bytediff.search.run import EditSearch
from refsim.bytediff.search.witnesses import compared
from refsim.bytediff.search.words import Place, class_of, place_of
from refsim.core.errors import ParameterError

#: How long a search may take on a usual machine, and what says otherwise for this process and those that it starts.
SECONDS, VARIABLE = 10.0, "REFSIM_SEARCH"


def allowed() -> float:
    """How long a search may take; ParameterError if the environment says what is no time."""
    text = os.environ.get(VARIABLE) or str(SECONDS)
    try:
        found = float(text)
    except ValueError:
        found = -1.0
    if not found >= 0:
        raise ParameterError(VARIABLE, "is no time", got=repr(text), need="seconds, from 0")
    return found


@dataclass(frozen=True)
class Found:
    """An edit that gives the buffer or a part of it: its class, its prediction and its place.

    ``others`` are the classes and places of edits that give the same bytes.
    """

    name: str
    prediction: Prediction
    place: Place
    others: tuple[tuple[str, Place], ...] = ()

    def told(self, name: str = "") -> tuple[str, Place]:
        """(class, place) of the edit of that class, if there is one, else of the first; the place names the others."""
        rows = ((self.name, self.place), *self.others)
        chosen = next((row for row in rows if row[0] == name), rows[0])
        others = tuple(f"{place.edit} ({place})" for _, place in rows if place is not chosen[1])
        return chosen[0], replace(chosen[1], others=others)


def edits(ev: Evidence, seconds: float) -> Iterator[Found]:
    """The edits that a search found; of those that give the same bytes the most likely one, which names the others."""
    if ev.bound is None or seconds <= 0 or not ev.expected_right:
        return
    with np.errstate(all="ignore"):
        survivors = list(EditSearch(ev, seconds).survivors())
    counted = compared(ev)
    groups: dict[bytes, list[Found]] = {}
    for survivor in survivors:
        cells = survivor.words.view(np.int8) if ev.desc.is_int8 else survivor.words
        alike = (survivor.found, *survivor.alike)
        rows = [(class_of(row.edit), place_of(row.edit, row.entry)) for row in alike]
        found = Found(rows[0][0], Prediction(rows[0][1].edit, cells), rows[0][1], tuple(rows[1:]))
        groups.setdefault(cells[counted].tobytes(), []).append(found)
    for first, *others in groups.values():
        yield replace(first, others=(*first.others, *((each.name, each.place) for each in others)))

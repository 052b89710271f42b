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
from refsim.bytediff.search import launched, loaded
from refsim.bytediff.search.bench import Bench
from refsim.bytediff.search.candidate import Candidate
from refsim.bytediff.search.run import PLAIN_STEPS, EditSearch
from refsim.bytediff.search.whole import predicted
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


#: Of classes with the same bytes these are told first, and these last: the one is likely, the other says least.
LIKELY = ("no clamp", "relu bound", "edge of the input", "tie rule", "reduction too short")
VAGUE = ("another operation", "address", "wrong count", "window of another size")


@dataclass(frozen=True)
class Found:
    """An edit that gives the buffer or a part of it: its class, its prediction, and its place if a kernel has it.

    ``others`` are the classes and places of edits that give the same bytes.
    """

    name: str
    prediction: Prediction
    place: Place | None
    others: tuple[tuple[str, Place | None], ...] = ()

    def told(self, name: str = "") -> tuple[str, Place | None]:
        """(class, place) of the edit of that class, if there is one, else of the first; the place names the others."""
        rows = [row for row in ((self.name, self.place), *self.others) if row[1] is not None]
        chosen = next((row for row in rows if row[0] == name), rows[0] if rows else None)
        if chosen is None or chosen[1] is None:
            return self.name, None
        others = tuple(
            f"{place.edit} ({place})" for _, place in rows if place is not None and place is not chosen[1]
        )
        return chosen[0], replace(chosen[1], others=others)


def edits(ev: Evidence, seconds: float, known: bool = False) -> Iterator[Found]:
    """The edits that a search found; of those that give the same bytes the most likely one, which names the others.

    Where a cause is ``known`` that gives the same bytes, the line of a kernel is worth less time.
    """
    if ev.bound is None or seconds <= 0 or not ev.expected_right:
        return
    with np.errstate(all="ignore"):
        survivors = list(EditSearch(ev, seconds, known).survivors())
    counted = compared(ev)
    groups: dict[bytes, list[Found]] = {}
    for survivor in survivors:
        cells = survivor.words.view(np.int8) if ev.desc.is_int8 else survivor.words
        rows = sorted(map(_told, (survivor.found, *survivor.alike)), key=lambda row: _order(row[0]))
        name, detail, place = rows[0]
        others = tuple((name, place) for name, _, place in rows[1:])
        found = Found(name, Prediction(detail, cells), place, others)
        groups.setdefault(cells[counted].tobytes(), []).append(found)
    for first, *rest in groups.values():
        yield replace(first, others=(*first.others, *((each.name, each.place) for each in rest)))


def again(ev: Evidence, name: str, detail: str) -> np.ndarray | None:
    """The cells of another call by an edit of what is launched or read, told by its class and its words."""
    bench = Bench(ev.call, {argument: buffer.words for argument, buffer in ev.inputs.items()})
    for edit in (*launched.edits(bench.steps, None), *loaded.edits(bench.steps, {}, None)):
        if (edit.name, edit.detail) == (name, detail):
            with np.errstate(all="ignore"):
                words = predicted(bench, Candidate(0, device=edit), (0,), ev.expected.words, PLAIN_STEPS)
            return words if words is None or not ev.desc.is_int8 else words.view(np.int8)
    return None


def _order(name: str) -> int:
    return LIKELY.index(name) if name in LIKELY else len(LIKELY) + (name in VAGUE)


def _told(row: Candidate) -> tuple[str, str, Place | None]:
    """The class of an edit, what it says, and its place."""
    if row.edit is None:
        assert row.device is not None
        return row.device.name, row.device.detail, None
    place = place_of(row.edit, row.entry)
    return class_of(row.edit), place.edit, place

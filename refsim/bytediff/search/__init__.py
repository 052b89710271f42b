"""The cause is an edit: search the right kernel for the smallest change that gives exactly the wrong bytes.

The kernel and all that it calls are copied so that one number selects an edit (`schema`, `sites`). Each edit is
tried on a few work items (`witnesses`, `run`). What survives predicts the whole buffer (`whole`) and is ranked like any
cause. If the kernel gives the wrong bytes as it is, it is the wrong one itself: then an edit is sought that makes it
right.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from threading import RLock

import numpy as np

from refsim.bytediff.evidence import Evidence, Prediction
from refsim.bytediff.search import host, launched, loaded, stored
from refsim.bytediff.search.bench import Bench
from refsim.bytediff.search.candidate import Candidate
from refsim.bytediff.search.run import PLAIN_STEPS, EditSearch
from refsim.bytediff.search.schema import NOTHING
from refsim.bytediff.search.whole import predicted
from refsim.bytediff.search.witnesses import compared
from refsim.bytediff.search.words import Place, class_of, place_of, text_of
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


#: The copies of a kernel hold the edit that is tried: one search runs at a time, whatever threads ask for.
_ALONE = RLock()
#: Numbers in the words of an edit.
NUMBERS = re.compile(r"0x[0-9A-F]+|\d+(?:\.\d+)?")
#: What stands in front of an edit that makes a wrong kernel of refsim's own right.
RIGHT = "right with "
#: What stands between the words of two edits at once.
AND = ", and "
#: Of classes with the same bytes these are told first, and these last: the one is likely, the other says least.
LIKELY = (
    "sums of 16 bits", "no clamp", "relu bound", "edge of the input", "tie rule", "H and W exchanged",
    "stale or foreign buffer", "reduction too short",
)  # fmt: skip
VAGUE = ("another operation", "address", "wrong count", "window of another size")


@dataclass(frozen=True)
class Found:
    """An edit that gives the buffer or a part of it: its class, its prediction, and its place if a kernel has it.

    ``others`` are the places of edits that give the same bytes, those of this class first: so many are ``alike``.
    """

    name: str
    prediction: Prediction
    own: Place | None
    others: tuple[Place, ...] = ()
    alike: int = 0

    @property
    def place(self) -> Place | None:
        """The first place that gives the bytes, which names the others; None if no line of a kernel does."""
        places = [place for place in (self.own, *self.others) if place is not None]
        others = tuple(f"{place.edit} ({place})" for place in places[1:])
        if not places:
            return None
        return replace(places[0], others=others, alike=self.others[: self.alike])


def edits(
    ev: Evidence, seconds: float, known: bool = False, like: Mapping[str, str] = NOTHING
) -> Iterator[Found]:
    """The edits that a search found; of those of one class that give the same bytes the first, which names all others.

    Where a cause is ``known`` that gives the same bytes, the line of a kernel is worth less time. ``like`` are edits
    in words, with the lines of those that have one, which give other wrong buffers of the kernel: they are tried first.
    """
    if ev.bound is None or seconds <= 0 or not ev.expected_right:
        return
    with _ALONE, np.errstate(all="ignore"):
        likely = {words.removeprefix(RIGHT): where for words, where in like.items()}
        search = EditSearch(ev, seconds, known, lambda bench: _likely(bench, likely))
        if itself := search.itself:
            search = EditSearch(ev.turned, seconds, like=search.like, lacking=True)
        survivors = list(search.survivors())
    counted = compared(ev)
    groups: dict[tuple[bytes, str], list[Found]] = {}
    for survivor in survivors:
        cells = survivor.words.view(np.int8) if ev.desc.is_int8 else survivor.words
        if itself:  # what it makes right was wrong for want of it
            cells = np.where(ev.got == ev.want, cells, np.where(cells == ev.want, ev.got, ev.want))
        told = cells[counted].tobytes()
        for name, detail, place in map(_told, (survivor.found, *survivor.alike)):
            if itself:
                detail, place = RIGHT + detail, place and replace(place, edit=RIGHT + place.edit)
            prediction = Prediction(name, detail, cells, fitted=survivor.found.pair)
            groups.setdefault((told, name), []).append(Found(name, prediction, place))
    lines: dict[bytes, list[Place]] = {}
    for (told, _), rows in groups.items():
        lines.setdefault(told, []).extend(row.own for row in rows if row.own is not None)
    for (told, _), (first, *rest) in sorted(groups.items(), key=lambda group: _order(group[0][1])):
        alike = [each.own for each in rest if each.own is not None]
        others = [*alike, *(place for place in lines[told] if place not in (first.own, *alike))]
        yield replace(first, others=tuple(others), alike=len(alike))


def again(ev: Evidence, name: str, detail: str) -> np.ndarray | None:
    """The cells of another call by the same cause, told by its class and its words."""
    for prediction in stored.predictions(ev):
        if (prediction.name, prediction.detail) == (name, detail):
            return None if prediction.fitted or prediction.inferred else prediction.cells
    with _ALONE, np.errstate(all="ignore"):
        bench = Bench(ev.call, {argument: buffer.words for argument, buffer in ev.inputs.items()}, ev.guards)
        rows = chain(_of_devices(bench), _of_kernels(bench))
        row = next((row for row in rows if _says(row, name, detail)), None)
        words = None if row is None else predicted(bench, row, (0,), ev.expected.words, PLAIN_STEPS)
    return words if words is None or not ev.desc.is_int8 else words.view(np.int8)


def _likely(bench: Bench, like: Mapping[str, str]) -> Iterator[Candidate]:
    """The edits of these words, in their order. Words of a launch tell sizes, which differ from call to call."""
    order = {words: at for at, words in enumerate(like)}
    alike = {NUMBERS.sub("#", words): at for words, at in reversed(order.items())}
    left = set(like.values()) - {""}
    found = list[tuple[int, Candidate]]()
    for row in _of_kernels(bench) if left else ():
        if row.edit is not None and (where := f"{row.edit.copy.path}:{row.edit.line}") in like.values():
            left.discard(where)
            found += [(order[words], row) for words in [text_of(row.edit)] if words in order]
    for row in _of_devices(bench, bool(left)) if left or "" in like.values() else ():
        assert row.device is not None
        words, of_host = row.device.detail, row.of_host
        if (at := order.get(words) if of_host else alike.get(NUMBERS.sub("#", words))) is not None:
            found.append((at, row))
    yield from (row for _, row in sorted(found, key=lambda each: each[0]))


def _of_kernels(bench: Bench) -> Iterator[Candidate]:
    return (Candidate(at, edit) for at, step in enumerate(bench.steps) for edit in step.schema.edits)


def _of_devices(bench: Bench, hosts: bool = True) -> Iterator[Candidate]:
    """The edits that no kernel has, but those that other calls and buffers take part in."""
    found = launched.edits(bench.steps, None), loaded.edits(bench.steps, bench.inputs, {}, None)
    rows = chain(*found, host.edits(bench.steps) if hosts else ())
    return (Candidate(0, device=device) for device in rows)


def _order(name: str) -> int:
    return LIKELY.index(name) if name in LIKELY else len(LIKELY) + (name in VAGUE)


def _says(row: Candidate, name: str, detail: str) -> bool:
    """Whether an edit is told by this class and these words."""
    if row.edit is None:
        return row.device is not None and (row.device.name, row.device.detail) == (name, detail)
    return text_of(row.edit) == detail and class_of(row.edit) == name


def _told(row: Candidate) -> tuple[str, str, Place | None]:
    """The class of an edit, what it says, and its place; of two edits those of the first, with the words of both."""
    if row.pair:
        first, last = replace(row, edit=row.also, also=None), replace(row, device=None, also=None)
        (name, one, place), (_, other, second) = map(_told, (first, last))
        detail = f"{one}{AND}{other} ({second})"
        held = place or second
        return name, detail, held and replace(held, edit=detail)
    if row.edit is None:
        assert row.device is not None
        return row.device.name, row.device.detail, row.device.place
    place = place_of(row.edit, row.entry)
    return class_of(row.edit), place.edit, place

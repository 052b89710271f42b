"""Rank the causes: each predicts the whole buffer, and the cells that it gets right are counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Protocol

import numpy as np

from refsim.bytediff import defects, search, within
from refsim.bytediff.defects import Start
from refsim.bytediff.evidence import Evidence, Prediction, once
from refsim.bytediff.search import stored
from refsim.bytediff.search.stored import PADDING
from refsim.bytediff.search.words import Place
from refsim.bytediff.within import Within
from refsim.core.meanings import Detail, OwnName

#: A cause is reported if the cells that it explains, less those that it contradicts, are at least this share of all.
LEAST_SCORE = 0.25
#: One with many numbers that were read off the differences must explain nearly all of them.
LEAST_INFERRED = 0.8
#: A cause is weak if it contradicts more right cells than this share of what it explains,
MOST_CONTRADICTED = 0.1
#: or if it was made for fewer differing cells than these, or for one value alone: anything may fit so little.
LEAST_FITTED = 8
#: Every cause is weak where fewer cells differ: it could be many.
FEW = 4
#: So many edits are told, each of another class.
MOST_EDITS = 3
#: Regions are tried for a prediction that explains this share of the differing cells.
LEAST_IN_REGION = 0.6


@dataclass(frozen=True)
class Cause:
    """What may have gone wrong, and how well its prediction fits.

    ``explained`` of ``differing`` cells are predicted exactly; ``contradicted`` cells are right in the actual
    buffer and would be wrong by the prediction. Where any element differs, only elements are counted, not padding.
    ``whole`` says that the prediction equals the actual buffer in every byte, padding included. ``where`` is the region
    that the prediction holds in, "" for the whole buffer; outside of it the right bytes are predicted. ``constant``
    says that one value is predicted for all differing cells. ``place`` is where the kernel has an edit that gives the
    predicted bytes, if one was found. ``observed``: it was seen by running the call again; ``asked``: with other
    inputs, so that its kernel said what it reads.
    """

    name: OwnName
    detail: Detail
    explained: Annotated[int, "Differing elements that it predicts exactly."]
    differing: Annotated[int, "Differing elements that it is about."]
    contradicted: Annotated[int, "Elements that it would get wrong and that are right."]
    whole: Annotated[bool, "Whether the prediction is the whole buffer, padding included."] = False
    fitted: Annotated[bool, "Whether a part of it was read off the differences."] = False
    inferred: Annotated[bool, "Whether most of it was."] = False
    where: Annotated[str, "The region that it is about, if it is one."] = ""
    constant: Annotated[bool, "Whether it predicts one value for all that differs."] = False
    place: Annotated[Place | None, "Where a kernel with an edit gives these bytes; null without one."] = None
    observed: Annotated[bool, "Whether it was seen by running the call again, and predicts nothing."] = False
    asked: Annotated[bool, "Whether that run had other inputs, to see what the kernel reads."] = False

    @classmethod
    def seen(cls, name: str, detail: str, differing: int, asked: bool = False) -> Cause:
        """What running the call again showed: it predicts nothing, and is so all the same."""
        return cls(name, detail, differing, differing, 0, observed=True, asked=asked)

    @property
    def exact(
        self,
    ) -> Annotated[bool, "Whether it explains everything that differs, and is contradicted by nothing."]:
        return self.explained == self.differing and self.contradicted == 0

    @property
    def score(self) -> float:
        return (self.explained - self.contradicted) / self.differing

    @property
    def weak(self) -> Annotated[bool, "Whether little speaks for it."]:
        """Whether right bytes contradict it, or little evidence was needed to make it fit."""
        if self.observed:
            return False
        if self.differing < FEW or self.contradicted > MOST_CONTRADICTED * self.explained:
            return True
        made = self.fitted or bool(self.where)
        return made and (self.differing < LEAST_FITTED or (not self.exact and self.constant))

    @property
    def places(self) -> tuple[Place, ...]:
        """Its place and those of edits of its class that give the same bytes; none where no kernel has it."""
        return () if self.place is None else (self.place, *self.place.alike)

    @property
    def sure(self) -> bool:
        """Whether it explains everything, and no part of it was made to fit."""
        return self.exact and not (self.weak or self.fitted or self.inferred or self.where)

    @property
    def about(self) -> str:
        """What the name does not say: the variant, the edit and its place, the region."""
        told = self.detail
        if self.place is not None:
            own = "" if self.detail in (self.name, self.place.edit) else f"{self.detail}: "
            told = f"{own}{self.place.told}"
        return f"{told}, {self.where}" if self.where else told

    @property
    def what(self) -> str:
        """The cause without how well it fits."""
        return f"{self.name}: {self.about}"

    @property
    def brief(self) -> str:
        """The cause with no more of its place than file and line."""
        place = "" if self.place is None else f" ({self.place})"
        return f"{self.name}: {self.detail}{place}{f', {self.where}' if self.where else ''}"

    @property
    def how(self) -> str:
        """How well the prediction fits, in words, and whether that is weak evidence."""
        if self.observed:
            return f"seen by running it {'with other inputs' if self.asked else 'again'}"
        fit = f"explains {self.explained} of {self.differing}"
        if self.exact:
            fit = f"predicts every {'byte' if self.whole else 'element'}"
        elif self.contradicted:
            fit += f", contradicts {self.contradicted}"
        return f"{fit}, weak" if self.weak else fit

    def __str__(self) -> str:
        return f"{self.what} ({self.how})"


class Told(Protocol):
    """A wrong buffer with its causes."""

    @property
    def causes(self) -> Sequence[Cause]: ...


def exact_edits(found: Iterable[Told]) -> dict[str, str]:
    """The words of edits that predict one of these buffers exactly, each with its file and line, "" if it has none.

    Other buffers of the kernel may be due to them.
    """
    edits: dict[str, str] = {}
    for cause in chain.from_iterable(one.causes for one in found):
        if cause.exact and not (cause.fitted or cause.where or cause.observed):
            edits |= {place.edit: str(place) for place in cause.places if place.edit not in edits}
            edits.setdefault(cause.detail, "")
    return edits


def explained(ev: Evidence, seconds: float, like: Mapping[str, str]) -> tuple[Start, list[Cause]]:
    """Where to start, and the causes of what remains. See `causes` for ``seconds`` and ``like``.

    A defect that changes values may leave nothing right to know it by. It is taken off where no cause fits exactly with
    it, and one does without.
    """
    first = defects.start(ev)
    found = causes(first.evidence, seconds, like)
    if first.defect is None and not (found and found[0].exact):
        for other in defects.without(ev):
            rest = causes(other.evidence, seconds, like) if other.computes_otherwise else []
            if rest and rest[0].exact:
                return other, rest
    return first, found


def causes(ev: Evidence, seconds: float, like: Mapping[str, str]) -> list[Cause]:
    """The supported causes, best first; of equal ones the more specific first, and those that are weak last.

    None where the actual buffer is the right one. ``seconds`` bound the search for an edit of the kernel; 0 is none.
    ``like`` are edits that are tried first (`exact_edits`).
    """
    if not ev.differing.any() or ev.reversed:
        return []
    found = _best(judge(ev, one) for one in (*defects.known(ev), *stored.predictions(ev)))
    known = any(_worse(cause) <= _BEST_ELEMENTS for cause in found)
    edits = (
        replace(judge(ev, edit.prediction), place=edit.place)
        for edit in search.edits(ev, seconds, known, like)
    )
    found = _best((*found, *_best(sorted(edits, key=_worse))[:MOST_EDITS]))
    # The sort is stable: causes that fit equally well keep their order. A wrong address leaves padding at 0, so it
    # predicts any padding that is wrongly 0. Where every element is right, that is no evidence about addresses.
    elements = bool(ev.wrong.any())
    return sorted(found, key=lambda cause: (not elements and cause.name != PADDING, _worse(cause)))


def _best(found: Iterable[Cause]) -> list[Cause]:
    """The best cause of each name, of those that explain enough; of equal ones the first, with any place."""
    best: dict[str, Cause] = {}
    for cause in found:
        if cause.score < (LEAST_INFERRED if cause.inferred else LEAST_SCORE):
            continue
        held = best.setdefault(cause.name, cause)
        if _worse(cause) < _worse(held):
            best[cause.name] = cause
        elif _worse(cause) == _worse(held) and held.place is None:
            best[cause.name] = replace(held, place=cause.place)
    return list(best.values())


Rank = tuple[bool, float, bool, bool, bool, bool]
#: No prediction ranks better but for the padding: it is exact, and no part of it was chosen to fit.
_BEST_ELEMENTS: Rank = (False, -1.0, False, False, False, True)


def _worse(cause: Cause) -> Rank:
    return (
        cause.weak and not cause.exact, -cause.score, cause.inferred, bool(cause.where), cause.fitted, not cause.whole,
    )  # fmt: skip


@once
def _counted(ev: Evidence) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bool per cell: it differs, it needs a cause, it is right. Where any element differs, no padding is counted."""
    counted = ev.values & ev.compared if ev.wrong.any() else ev.compared
    return ev.differing & counted, ev.faulty & counted, ~ev.differing & counted


def judge(ev: Evidence, prediction: Prediction) -> Cause:
    """Count what one prediction explains and contradicts, in the whole buffer or in the region where it fits best.

    Right bytes need no cause: one that differs only since the expected one is wrong is explained by none.
    """
    differing, faulty, alike = _counted(ev)
    right = prediction.cells == ev.got
    against = ~right & alike
    explained, count = int(np.count_nonzero(right & faulty)), int(np.count_nonzero(differing))
    contradicted = int(np.count_nonzero(against))
    constant = not ((prediction.cells != prediction.cells[differing.argmax()]) & differing).any()
    region = None
    # one constant value in a region says no more than the pattern does
    if contradicted and explained >= LEAST_IN_REGION * count and not constant:
        region = _region(ev, against)
        if explained == count and (region is None or (against & region.mask).any()):
            region = within.slabs(ev, differing, against) or region
    if region is not None:
        right = np.where(region.mask, right, ev.want == ev.got)
        contradicted = int(np.count_nonzero(against & region.mask))
    return Cause(
        prediction.name,
        prediction.detail,
        explained=explained,
        differing=count,
        contradicted=contradicted,
        whole=bool((right | ~ev.compared).all()),
        fitted=prediction.fitted or prediction.inferred,
        inferred=prediction.inferred,
        where="" if region is None else region.name,
        constant=constant,
    )


def _region(ev: Evidence, against: np.ndarray) -> Within | None:
    """The region, or two regions at once, that holds every difference and the fewest of the cells ``against``.

    The widest of equal ones; None where no region holds fewer than half of these cells.
    """
    regions = within.regions(ev)
    left = [int(np.count_nonzero(against & region.mask)) for region in regions]
    least = min(left, default=0)
    if not regions or 2 * least >= np.count_nonzero(against):
        return None
    first = found = regions[left.index(least)]
    inside = against & first.mask
    for region in regions if least else ():
        count = int(np.count_nonzero(inside & region.mask))
        if 2 * count < least:
            least, found = count, first & region
    return found

"""Rank the causes: each hypothesis predicts the whole buffer, and the cells that it gets right are counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from refsim.bytediff import search, within
from refsim.bytediff.evidence import Evidence, Hypothesis, Prediction, once
from refsim.bytediff.hypotheses import ALL
from refsim.bytediff.search import Found
from refsim.bytediff.search.words import Place
from refsim.core.buffer import ByteKind
from refsim.core.plain import plain

#: A cause is reported if the cells that it explains, less those that it contradicts, are at least this share of all.
LEAST_SCORE = 0.25
#: One with many numbers that were read off the differences must explain nearly all of them.
LEAST_INFERRED = 0.8
PADDING = "padding leaked"  # the first suspect where every element is right
NOTHING = "nothing written"  # which edit of a kernel leaves all stores out is a guess
NO_CLAMP = "no clamp"  # simpler than another order of clamps that gives the same bytes
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
    """A hypothesis and how well its best prediction fits.

    ``explained`` of ``differing`` cells are predicted exactly; ``contradicted`` cells are right in the actual
    buffer and would be wrong by the prediction. Where any element differs, only elements are counted, not padding.
    ``whole`` says that the prediction equals the actual buffer in every byte, padding included. ``where`` is the region
    that the prediction holds in, "" for the whole buffer; outside of it the right bytes are predicted. ``constant``
    says that one value is predicted for all differing cells. ``place`` is where the kernel has an edit that gives the
    predicted bytes, if one was found. ``observed``: it was seen by running the call again.
    """

    name: Annotated[str, "Its name."]
    detail: Annotated[str, "More about it, in words."]
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

    @classmethod
    def seen(cls, name: str, detail: str, differing: int) -> Cause:
        """What running the call again showed: it predicts nothing, and is so all the same."""
        return cls(name, detail, differing, differing, 0, observed=True)

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
    def fit(self) -> str:
        """How well the prediction fits, in words."""
        if self.observed:
            return "seen by running it again"
        if self.exact:
            return "predicts every byte" if self.whole else "predicts every element"
        against = f", contradicts {self.contradicted}" if self.contradicted else ""
        return f"explains {self.explained} of {self.differing}{against}"

    @property
    def about(self) -> str:
        """What the name does not say: the variant, the edit and its place, the region."""
        told = self.detail
        if self.place is not None:
            own = "" if self.detail == self.place.edit else f"{self.detail}: "
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
        """How well it fits, and whether that is weak evidence."""
        return f"{self.fit}, weak" if self.weak else self.fit

    def __str__(self) -> str:
        return f"{self.what} ({self.how})"

    def as_json(self) -> dict[str, Any]:
        """The cause as plain data, of which `of` makes it again."""
        found: dict[str, Any] = plain(self)
        return found

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Cause:
        """The cause that `as_json` wrote."""
        held = {name: value for name, value in row.items() if name not in ("exact", "weak")}
        place = held["place"]
        held["place"] = None if place is None else Place(**{**place, "others": tuple(place["others"])})
        return cls(**held)


def causes(ev: Evidence, seconds: float) -> list[Cause]:
    """The supported causes, best first; of equal ones the more specific first, and those that are weak last.

    None where the actual buffer is the right one. ``seconds`` bound the search for an edit of the kernel; 0 is none.
    """
    if not ev.differing.any() or ev.reversed:
        return []
    elements = _scope(ev).elements
    found = [best for h in ALL if (best := best_of(ev, h)) is not None and best.score >= _least(best)]
    known = any(_worse(cause) <= _BEST_ELEMENTS for cause in found)
    found = _with_edits(found, _edits(ev, seconds, known))
    # The sort is stable: causes that fit equally well keep the order of ALL. A wrong address leaves padding at 0, so it
    # predicts any padding that is wrongly 0. Where every element is right, that is no evidence about addresses.
    return sorted(found, key=lambda cause: (not elements and cause.name != PADDING, _worse(cause)))


def _edits(ev: Evidence, seconds: float, known: bool) -> list[tuple[Cause, Found]]:
    """The best edits of the kernel, each of another class."""
    judged = [
        (replace(cause, place=edit.told()[1]), edit)
        for edit in search.edits(ev, seconds, known)
        if (cause := judge(ev, edit.name, edit.prediction)) is not None and cause.score >= LEAST_SCORE
    ]
    best: dict[str, tuple[Cause, Found]] = {}
    for cause, edit in sorted(judged, key=lambda row: _worse(row[0])):
        best.setdefault(cause.name, (cause, edit))
    return list(best.values())[:MOST_EDITS]


def _with_edits(found: list[Cause], edits: list[tuple[Cause, Found]]) -> list[Cause]:
    """Causes and edits. A cause with the same bytes as an edit gets its place; of one name the better stays."""
    named = {cause.name: cause for cause in found}
    plain = [cause for cause in found if cause.exact and not (cause.fitted or cause.inferred or cause.where)]
    same = [cause for cause in found if cause.exact and cause.name == NOTHING] or plain
    for cause, edit in edits:
        if cause.exact and not cause.where and same:
            first = min(same, key=_worse)
            placed = replace(first, place=edit.told(first.name)[1])
            if edit.name == NO_CLAMP:
                named = {NO_CLAMP if key == first.name else key: row for key, row in named.items()}
                placed = replace(placed, name=NO_CLAMP, detail=edit.prediction.detail)
            named[placed.name] = placed
        elif cause.name not in named or _worse(cause) < _worse(named[cause.name]):
            named[cause.name] = cause
    return list(named.values())


def _least(cause: Cause) -> float:
    return LEAST_INFERRED if cause.inferred else LEAST_SCORE


Rank = tuple[bool, float, bool, bool, bool, bool]
#: No prediction ranks better: it is exact, and no part of it was chosen to fit.
_BEST: Rank = (False, -1.0, False, False, False, False)
#: The same, but for the padding.
_BEST_ELEMENTS: Rank = (False, -1.0, False, False, False, True)


def _worse(cause: Cause) -> Rank:
    return (
        cause.weak and not cause.exact, -cause.score, cause.inferred, bool(cause.where), cause.fitted, not cause.whole,
    )  # fmt: skip


@dataclass(frozen=True)
class _Scope:
    """The cells that are counted, bool each: those that differ, those that need a cause, and those that are right.

    ``elements``: any element differs, so elements alone are counted. ``first`` is the first cell that differs.
    """

    elements: bool
    differing: np.ndarray
    faulty: np.ndarray
    alike: np.ndarray
    differ: int
    are_alike: int
    first: int


@once
def _scope(ev: Evidence) -> _Scope:
    values = ev.kinds == ByteKind.VALUE
    elements = bool((ev.differing & values).any())
    counted = values & ev.compared if elements else ev.compared
    differing, alike = ev.differing & counted, ~ev.differing & counted
    return _Scope(
        elements, differing, ev.faulty & counted, alike,
        int(np.count_nonzero(differing)), int(np.count_nonzero(alike)), int(differing.argmax()),
    )  # fmt: skip


def best_of(ev: Evidence, h: Hypothesis) -> Cause | None:
    """The best prediction of one hypothesis, if it makes any; of equal ones the first."""
    if h.needs_call and ev.bound is None:
        return None
    best: Cause | None = None
    least: Rank | None = None
    for view in ev.views:
        for prediction in h.find(view):
            cause = judge(view, h.name, prediction, least)
            if cause is None:
                continue
            rank = _worse(cause)
            if least is None or rank < least:
                best, least = cause, rank
                if rank == _BEST:
                    return best
    return best


def judge(ev: Evidence, name: str, prediction: Prediction, least: Rank | None = None) -> Cause | None:
    """Count what one prediction explains and contradicts, in the whole buffer or in the region where it fits best.

    Right bytes need no cause: one that differs only since the expected one is wrong is explained by none. None if the
    prediction cannot rank better than ``least``: most cannot, and that is known before much is counted.
    """
    scope = _scope(ev)
    right = prediction.cells == ev.got
    explained, count = int(np.count_nonzero(right & scope.faulty)), scope.differ
    fitted = prediction.fitted or prediction.inferred
    # at best, in a region or not, nothing is contradicted
    if least is not None and least <= (False, -explained / count, prediction.inferred, False, fitted, False):
        return None
    contradicted = scope.are_alike - int(np.count_nonzero(right & scope.alike))
    in_region = contradicted > 0 and explained >= LEAST_IN_REGION * count
    if least is not None and not in_region:
        weak = contradicted > MOST_CONTRADICTED * explained
        score = (explained - contradicted) / count
        if least <= (weak, -score, prediction.inferred, False, fitted, False):
            return None
    held = prediction.cells[scope.first]
    constant = not ((prediction.cells != held) & scope.differing).any()
    where, mask = "", None
    # one constant value in a region says no more than the pattern does
    if in_region and not constant:
        against = ~right & scope.alike
        where, mask = _region(ev, against, contradicted)
        if explained == count and (mask is None or (against & mask).any()):
            slabs = within.slabs(ev, scope.differing, against)
            where, mask = (where, mask) if slabs is None else (slabs.name, slabs.mask)
        if mask is not None:
            right = np.where(mask, right, ev.want == ev.got)
            contradicted = int(np.count_nonzero(against & mask))
    return Cause(
        name,
        prediction.detail,
        explained=explained,
        differing=count,
        contradicted=contradicted,
        whole=bool((right | ~ev.compared).all()),
        fitted=fitted,
        inferred=prediction.inferred,
        where=where,
        constant=constant,
    )


def _region(ev: Evidence, against: np.ndarray, contradicted: int) -> tuple[str, np.ndarray | None]:
    """The region, or two regions at once, that holds every difference and the fewest of the cells ``against``.

    The widest of equal ones; "" and None where no region holds fewer than half of these cells.
    """
    regions = within.regions(ev)
    best, name, mask = contradicted / 2, "", None
    left = [int(np.count_nonzero(against & region.mask)) for region in regions]
    for region, count in zip(regions, left, strict=True):
        if count < best:
            best, name, mask = count, region.name, region.mask
    if best and mask is not None:
        first, inside = (name, mask), against & mask
        for region in regions:
            count = int(np.count_nonzero(inside & region.mask))
            if count < best / 2:
                best, name, mask = count, f"{first[0]} and {region.name}", first[1] & region.mask
    return name, mask

"""One cause for several wrong buffers of one kernel: where one buffer fits several causes, the others decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from refsim.bytediff.rank import Cause, Told
from refsim.bytediff.report import Report
from refsim.bytediff.search import NUMBERS
from refsim.bytediff.search.words import Place, PlaceKey
from refsim.core.meanings import Detail, OwnName

#: A cause that predicts fewer differing cells than these may do so by chance.
LEAST_DIFFERING = 8


@dataclass(frozen=True)
class Form:
    """One way in which a cause reads, numbers aside, and how many buffers it predicts exactly in that way."""

    detail: Detail
    exact: Annotated[int, "Cases that it predicts exactly as it reads here."]


@dataclass(frozen=True)
class Agreed:
    """A cause by name. It predicts ``exact`` of the ``of`` buffers exactly, and explains a part of ``seen`` of them.

    ``cause`` is how it reads in the buffer where it says most. ``forms`` counts each of its readings with its own
    buffers, the most frequent first.
    """

    cause: Cause
    exact: Annotated[int, "Cases that it predicts exactly."]
    seen: Annotated[int, "Cases of which it explains a part."]
    of: Annotated[int, "Wrong cases in all."]
    score: float
    forms: Annotated[tuple[Form, ...], "How it reads, numbers aside, each with its own cases."] = ()

    @classmethod
    def from_causes(cls, causes: Sequence[Cause], of: int) -> Agreed:
        """What is known of one cause, which was named for these buffers among ``of``."""
        forms: dict[str, list[Cause]] = {}
        for cause in causes:
            forms.setdefault(NUMBERS.sub("#", cause.detail), []).append(cause)
        counted = sorted(forms.values(), key=lambda form: -sum(c.exact for c in form))
        told = min(counted[0], key=lambda c: (not c.exact, c.weak))
        return cls(
            told, sum(c.exact and not c.asked for c in causes), len(causes), of, sum(c.score for c in causes),
            tuple(Form(form[0].detail, sum(c.exact for c in form)) for form in counted),
        )  # fmt: skip

    @property
    def name(self) -> OwnName:
        return self.cause.name

    @property
    def detail(self) -> Detail:
        return self.cause.detail

    @property
    def place(
        self,
    ) -> Annotated[Place | None, "Where a kernel with an edit gives these bytes; null without one."]:
        return self.cause.place

    def __str__(self) -> str:
        if self.of == 1:
            return str(self.cause)
        fit = self.fit if self.cause.asked else f"{'predicts' if self.exact else 'explains'} {self.fit}"
        few = ", weak" if self.few else ""
        return f"{self.cause.what} ({fit} of {self.of} wrong cases{self.otherwise}{few})"

    @property
    def few(self) -> bool:
        """Whether it predicts some of the buffers, but not half of them: these may be others by chance."""
        return 0 < 2 * self.exact < self.of and not self.cause.asked

    @property
    def fit(self) -> str:
        """How many buffers it predicts as it reads here, where the text says of how many."""
        if self.cause.asked:
            return f"{self.seen} asked"
        return str(self.forms[0].exact) if self.exact else f"parts of {self.seen}"

    @property
    def otherwise(self) -> str:
        """How it reads in other buffers that it predicts; empty if it reads alike in all of them."""
        return "".join(f"; {form.exact} as {form.detail}" for form in self.forms[1:] if form.exact)

    @property
    def brief(self) -> str:
        """The cause in a table."""
        return self.cause.brief + self.otherwise


def decided(told: Told) -> bool:
    """Whether one buffer is enough: exactly one cause predicts it, and not with a part read off the differences."""
    exact = [cause for cause in told.causes if cause.exact]
    free = [cause for cause in exact if not (cause.fitted or cause.where)]
    return len(exact) == len(free) == 1 and free[0].differing >= LEAST_DIFFERING


def agreed(found: Sequence[Told]) -> list[Agreed]:
    """The causes of several wrong buffers of one kernel, the one that explains most of them first.

    A cause that predicts a buffer exactly counts more than any number of parts, unless so little differs there that
    anything may fit it. What a kernel said of itself counts as much as one that predicts all of them. One that reads
    alike in all of them counts more than one that is another edit in each, and one that was read off each buffer anew
    counts once. Causes that are weak wherever they are named come last. Where two explain as many buffers equally well,
    the order is that of the first buffer.
    """
    named: dict[str, list[Cause]] = {}
    for one in found:
        for cause in one.causes:
            named.setdefault(cause.name, []).append(cause)
    named = {name: _one_edit(causes) for name, causes in named.items()}

    def rank(row: Agreed) -> tuple[float, ...]:
        causes, once = named[row.name], row.cause.inferred
        exact = _exact(causes)
        counts = (max(exact.values(), default=0), sum(exact.values()), row.exact)
        most, *others = (min(count, 1) if once else count for count in counts)
        return (
            all(c.weak and not c.exact for c in causes),
            -len(found) if any(c.asked for c in causes) else -most,
            *(-count for count in others),
            once,
            -row.score,
            sum(c.fitted or bool(c.where) for c in causes),
        )

    return sorted((Agreed.from_causes(causes, len(found)) for causes in named.values()), key=rank)


def _one_edit(causes: list[Cause]) -> list[Cause]:
    """The causes of one name, by the edit that gives most of the buffers, where several give the same bytes."""
    counts = Counter(key for cause in causes for key in _edits(cause))
    best = max(counts, key=lambda key: counts[key], default=None)  # of equal ones the first
    return [_retold(cause, best) for cause in causes]


def _edits(cause: Cause) -> dict[PlaceKey, Place]:
    """The edits of a kernel that predict a buffer exactly, as one cause."""
    own = cause.place
    if own is None or not cause.exact or cause.where or own.edit != cause.detail:
        return {}
    return {place.key: place for place in cause.places}


def _retold(cause: Cause, key: PlaceKey | None) -> Cause:
    """A cause by one edit of those that give the same bytes; as it is where that is none of them."""
    own, place = cause.place, _edits(cause).get(key or ("", "", ""))
    if own is None or place is None or own.key == key:
        return cause
    return replace(cause, detail=place.edit, place=own.instead(place))


def _exact(causes: Sequence[Cause]) -> Counter[str]:
    """How many buffers each edit of a cause predicts exactly and whole, of those in which enough differs."""
    return Counter(
        "" if cause.place is None else NUMBERS.sub("#", cause.detail)
        for cause in causes
        if cause.exact and cause.differing >= LEAST_DIFFERING and not cause.where
    )


def reordered(report: Report, found: Sequence[Agreed]) -> Report:
    """The report with its causes in the order in which they explain all buffers, by the edits that explain most."""
    places = {row.name: place for place, row in enumerate(found)}
    edits = {row.name: row.place.key for row in found if row.place is not None}
    told = [_retold(cause, edits.get(cause.name)) for cause in report.causes]
    causes = sorted(told, key=lambda cause: places.get(cause.name, len(places)))
    return replace(report, causes=tuple(causes))

"""One cause for several wrong buffers of one kernel: where one buffer fits several causes, the others decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from refsim.bytediff.rank import Cause
from refsim.bytediff.report import Report


@dataclass(frozen=True)
class Agreed:
    """A cause by name. It predicts ``exact`` of the ``of`` buffers exactly, and explains a part of ``seen`` of them.

    ``cause`` is how it reads in the first of those buffers that it explains.
    """

    cause: Cause
    exact: int
    seen: int
    of: int
    score: float

    @property
    def name(self) -> str:
        return self.cause.name

    def __str__(self) -> str:
        if self.of == 1:
            return str(self.cause)
        return f"{self.cause.what} ({self._fit} of {self.of} wrong cases)"

    @property
    def counted(self) -> str:
        """The cause with how many buffers it predicts, where the text says of how many."""
        return f"{self.cause.what} ({self._fit})"

    @property
    def _fit(self) -> str:
        return f"predicts {self.exact}" if self.exact else f"explains parts of {self.seen}"

    def as_json(self) -> dict[str, Any]:
        """The cause as plain data."""
        return {
            "name": self.name, "detail": self.cause.detail, "exact": self.exact, "seen": self.seen, "of": self.of,
        }  # fmt: skip


def decided(report: Report) -> bool:
    """Whether one buffer is enough: exactly one cause predicts it, and not with a part read off the differences."""
    exact = [cause for cause in report.causes if cause.exact]
    if len(exact) != 1 or exact[0].fitted or exact[0].where:
        return False
    return exact[0].differing >= LEAST_DIFFERING


#: A cause that predicts fewer differing cells than these may do so by chance.
LEAST_DIFFERING = 8


def agreed(reports: Sequence[Report]) -> list[Agreed]:
    """The causes of several wrong buffers of one kernel, the one that explains most of them first.

    A cause that predicts a buffer exactly counts more than any number of parts, unless so little differs there that
    anything may fit it. Causes that are weak wherever they are named come last. Where two explain as many buffers
    equally well, the one that ranks higher in the first of them comes first.
    """
    rows: dict[str, list[Cause]] = {}
    for report in reports:
        for cause in report.causes:
            rows.setdefault(cause.name, []).append(cause)
    order = {name: place for place, name in enumerate(rows)}
    found = [
        Agreed(
            causes[0], sum(c.exact for c in causes), len(causes), len(reports), sum(c.score for c in causes)
        )
        for causes in rows.values()
    ]
    fitted = {name: sum(c.fitted or bool(c.where) for c in causes) for name, causes in rows.items()}
    weak = {name: all(c.weak and not c.exact for c in causes) for name, causes in rows.items()}
    telling = {
        name: sum(c.exact and c.differing >= LEAST_DIFFERING for c in causes) for name, causes in rows.items()
    }

    def order_of(row: Agreed) -> tuple[float, ...]:
        name = row.name
        return (
            weak[name],
            -telling[name],
            -row.exact,
            -row.score,
            row.cause.inferred,
            fitted[name],
            order[name],
        )

    return sorted(found, key=order_of)


def reordered(report: Report, found: Sequence[Agreed]) -> Report:
    """The report with its causes in the order in which they explain all buffers."""
    places = {row.name: place for place, row in enumerate(found)}
    causes = sorted(report.causes, key=lambda cause: places.get(cause.name, len(places)))
    return replace(report, causes=tuple(causes))

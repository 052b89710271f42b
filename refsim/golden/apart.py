"""Two causes that predict the same bytes of a case: which case of the corpus would tell them apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import eq
from typing import Any

import numpy as np

from refsim.bytediff.consensus import Agreed
from refsim.bytediff.evidence import Evidence, cells
from refsim.bytediff.hypotheses import ALL
from refsim.bytediff.report import Report
from refsim.golden.rules import RULES
from refsim.golden.telling import Candidate, ordered
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.spec import Call

#: How many cases are tried, how many elements their inputs have, and among how many they are chosen.
MOST_TRIED, MOST_ELEMENTS, MOST_ASKED = 16, 1 << 16, 96


@dataclass(frozen=True)
class Rivals:
    """Two causes of one operator, each as (name, detail), that predict the same bytes."""

    op: str
    one: tuple[str, str]
    other: tuple[str, str]

    def as_json(self) -> list[dict[str, str]]:
        """The two as plain data."""
        return [{"name": name, "detail": detail} for name, detail in (self.one, self.other)]


@dataclass(frozen=True)
class Apart:
    """Rivals, and a ``case`` that gives other bytes by the one than by the other; "" if none was found."""

    rivals: Rivals
    case: str

    def text(self, command: str) -> str:
        """One sentence, with the command that runs the case: ``{case}`` in it stands for the name."""
        one, other = self.rivals.one[0], self.rivals.other[0]
        if one == other:
            one, other = self.rivals.one[1], self.rivals.other[1]
        same = f'"{one}" and "{other}" predict the same bytes here'
        return f"{same}; to tell them apart: {command.format(case=self.case)}" if self.case else same

    def as_json(self) -> dict[str, Any]:
        """Both causes and the case (null if none was found) as plain data."""
        return {"causes": self.rivals.as_json(), "case": self.case or None}


def rivals(report: Report, found: Sequence[Agreed] = ()) -> Rivals | None:
    """The two first causes of a report, if both predict every byte of the whole buffer; None where one is enough.

    ``found`` is what other cases of the kernel say: a cause that predicts fewer of them than another is no rival.
    """
    exact = [cause for cause in report.causes if cause.exact and not cause.fitted and not cause.where]
    counts = {row.name: row.exact for row in found}
    exact = [cause for cause in exact if counts.get(cause.name, 0) == max(counts.values(), default=0)]
    if len(exact) < 2 or report.evidence.bound is None:
        return None
    one, other = exact[:2]
    return Rivals(report.evidence.call.op.name, (one.name, one.detail), (other.name, other.detail))


def untold(report: Report) -> str:
    """A sentence about two first causes that both predict every byte, if no case of the corpus can tell them apart.

    That is so where one has a number or a place that was taken from these very bytes.
    """
    exact = [cause for cause in report.causes if cause.exact and not cause.where][:2]
    if len(exact) < 2 or report.evidence.bound is None or rivals(report) is not None:
        return ""
    one, other = exact
    taken = next((cause for cause in exact if cause.fitted), None)
    if taken is None:
        return ""
    same = f'"{one.name}" and "{other.name}" predict the same bytes here'
    return f'{same}; no case of the corpus tells them apart, since "{taken.name}" is fitted to these bytes'


def apart(
    report: Report,
    candidates: Iterable[Candidate] | None = None,
    runs: Callable[[Call], bool] | None = None,
) -> Apart | None:
    """The rivals of a report, and a case that tells them apart; None where one cause is enough."""
    two = rivals(report)
    return None if two is None else told(two, candidates, runs=runs, like=report.evidence.bound)


def told(
    two: Rivals,
    candidates: Iterable[Candidate] | None = None,
    most: int = MOST_ELEMENTS,
    runs: Callable[[Call], bool] | None = None,
    like: BoundCase | None = None,
) -> Apart:
    """A case that tells rivals apart, among cases whose inputs have so many elements in all.

    ``candidates`` are cases of the same operator, by default those of the corpus that say most. ``runs`` says whether
    the kernel in question computes a call: a case that it does not take would tell nothing. Without it all are taken.
    Those come first whose sizes leave the remainders of ``like``: a kernel that is wrong there is likely wrong in them.
    """
    if candidates is None:
        candidates = ordered(two.op, MOST_ASKED) if two.op in RULES else ()
    taken: Iterable[Candidate] = (one for one in candidates if runs is None or runs(one.bound.call))
    if like is not None:
        sizes = _remainders(like)
        taken = sorted(taken, key=lambda one: -sum(map(eq, sizes, _remainders(one.bound))))
    elements = 0
    for number, candidate in enumerate(taken):
        elements += candidate.elements
        if number == MOST_TRIED or elements > most:
            break
        if _differ(candidate.bound, two):
            return Apart(two, candidate.name)
    return Apart(two, "")


def _remainders(bound: BoundCase) -> list[int]:
    """What the sizes of all tensors leave beyond whole words of four."""
    descs = (*bound.call.descs.values(), bound.call.out)
    return [size % 4 for desc in descs for size in desc.sizes_whcn]


def _differ(bound: BoundCase, two: Rivals) -> bool:
    first, second = (_predicted(bound, *cause) for cause in (two.one, two.other))
    return first is not None and second is not None and not np.array_equal(first, second)


def _predicted(bound: BoundCase, name: str, detail: str) -> np.ndarray | None:
    """The compared cells by a cause, if it predicts the case without its differences."""
    expected = bound.call.expected(bound.inputs)
    defined = bound.call.device_defined() if bound.call.out.is_int8 else np.ones(len(cells(expected)), bool)
    ev = Evidence(expected, expected, defined, bound)
    for hypothesis in ALL:
        if hypothesis.name == name:
            for view in ev.views:
                for prediction in hypothesis.find(view):
                    if prediction.detail == detail and not (prediction.fitted or prediction.inferred):
                        return np.where(defined, prediction.cells, 0)
    return None

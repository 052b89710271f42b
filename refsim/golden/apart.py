"""Two causes that predict the same bytes of a case: which case of the corpus would tell them apart."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from refsim.bytediff.evidence import Evidence, cells
from refsim.bytediff.hypotheses import ALL
from refsim.bytediff.rank import Cause
from refsim.bytediff.report import Report
from refsim.golden.rules import RULES
from refsim.golden.telling import Candidate, ordered
from refsim.ops.base.binding import BoundCase

#: How many cases are tried, and for how many seconds.
MOST_TRIED, SECONDS = 16, 1.0


@dataclass(frozen=True)
class Apart:
    """Two causes that predict the same bytes; ``case`` gives other bytes by the one than by the other, "" for none."""

    one: Cause
    other: Cause
    case: str

    def text(self, executor: str) -> str:
        """One sentence, with the command that runs the case on an executor."""
        same = f'"{self.one.name}" and "{self.other.name}" predict the same bytes here'
        return f"{same}; to tell them apart: refsim replay {self.case} -x {executor}" if self.case else same


def apart(report: Report, candidates: Iterable[Candidate] | None = None) -> Apart | None:
    """The two first causes, if both predict every byte of the whole buffer; None where one cause is enough.

    ``candidates`` are cases of the same operator, by default those of the corpus that say most.
    """
    exact = [cause for cause in report.causes if cause.exact and not cause.fitted and not cause.where]
    if len(exact) < 2 or report.evidence.bound is None:
        return None
    op = report.evidence.call.op.name
    one, other = exact[:2]
    if candidates is None:
        candidates = ordered(op, MOST_TRIED) if op in RULES else ()
    end = time.perf_counter() + SECONDS
    for number, candidate in enumerate(candidates):
        if number == MOST_TRIED or time.perf_counter() > end:
            break
        if _differ(candidate.bound, one, other):
            return Apart(one, other, candidate.name)
    return Apart(one, other, "")


def _differ(bound: BoundCase, one: Cause, other: Cause) -> bool:
    first, second = (_predicted(bound, cause) for cause in (one, other))
    return first is not None and second is not None and not np.array_equal(first, second)


def _predicted(bound: BoundCase, cause: Cause) -> np.ndarray | None:
    """The compared cells by a cause, if it predicts the case without its differences."""
    expected = bound.call.expected(bound.inputs)
    defined = bound.call.device_defined() if bound.call.out.is_int8 else np.ones(len(cells(expected)), bool)
    ev = Evidence(expected, expected, defined, bound)
    for hypothesis in ALL:
        if hypothesis.name == cause.name:
            for view in ev.views:
                for prediction in hypothesis.find(view):
                    if prediction.detail == cause.detail and not prediction.fitted:
                        return np.where(defined, prediction.cells, 0)
    return None

"""Rank the causes: each hypothesis predicts the whole buffer, and the cells that it gets right are counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.bytediff.evidence import Evidence, Hypothesis, Prediction
from refsim.bytediff.hypotheses import ALL
from refsim.core.buffer import ByteKind

#: A cause is reported if the cells that it explains, less those that it contradicts, are at least this share of all.
LEAST_SCORE = 0.25
PADDING = "padding leaked"  # the first suspect where every element is right


@dataclass(frozen=True)
class Cause:
    """A hypothesis and how well its best prediction fits.

    ``explained`` of ``differing`` cells are predicted exactly; ``contradicted`` cells are right in the actual
    buffer and would be wrong by the prediction. Where any element differs, only elements are counted, not padding.
    ``whole`` says that the prediction equals the actual buffer in every byte, padding included.
    """

    name: str
    detail: str
    explained: int
    differing: int
    contradicted: int
    whole: bool = False
    fitted: bool = False

    @property
    def exact(self) -> bool:
        return self.explained == self.differing and self.contradicted == 0

    @property
    def score(self) -> float:
        return (self.explained - self.contradicted) / self.differing

    @property
    def fit(self) -> str:
        """How well the prediction fits, in words."""
        if self.exact:
            return "predicts every byte" if self.whole else "predicts every element"
        against = f", contradicts {self.contradicted}" if self.contradicted else ""
        return f"explains {self.explained} of {self.differing}{against}"

    def __str__(self) -> str:
        return f"{self.name}: {self.detail} ({self.fit})"


def causes(ev: Evidence) -> list[Cause]:
    """The supported causes, best first; of equal ones the more specific first."""
    if not ev.differing.any():
        return []
    elements = _scope(ev)[1]
    found = [best for h in ALL if (best := best_of(ev, h)) is not None and best.score >= LEAST_SCORE]
    # The sort is stable: causes that fit equally well keep the order of ALL. A wrong address leaves padding at 0, so it
    # predicts any padding that is wrongly 0. Where every element is right, that is no evidence about addresses.
    return sorted(found, key=lambda cause: (not elements and cause.name != PADDING, _worse(cause)))


def _worse(cause: Cause) -> tuple[float, bool, bool]:
    return (-cause.score, cause.fitted, not cause.whole)


def _scope(ev: Evidence) -> tuple[np.ndarray, bool]:
    """(the cells that are counted, whether any element differs)."""
    values = ev.kinds == ByteKind.VALUE
    if (ev.differing & values).any():
        return values & ev.compared, True
    return ev.compared, False


def best_of(ev: Evidence, h: Hypothesis) -> Cause | None:
    """The best prediction of one hypothesis, if it makes any."""
    if h.needs_call and ev.bound is None:
        return None
    found = [judge(view, h.name, prediction) for view in ev.views for prediction in h.find(view)]
    return min(found, key=_worse, default=None)


def judge(ev: Evidence, name: str, prediction: Prediction) -> Cause:
    """Count what one prediction explains and contradicts."""
    scope, _ = _scope(ev)
    right, differing = prediction.cells == ev.got, ev.differing & scope
    return Cause(
        name,
        prediction.detail,
        explained=int(np.count_nonzero(right & differing)),
        differing=int(np.count_nonzero(differing)),
        contradicted=int(np.count_nonzero(~right & ~ev.differing & scope)),
        whole=bool((right | ~ev.compared).all()),
        fitted=prediction.fitted,
    )

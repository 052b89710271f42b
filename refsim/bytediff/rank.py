"""Which causes the data supports: every hypothesis predicts the buffer, and the predictions are counted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from refsim.bytediff.evidence import Evidence, Hypothesis, Prediction
from refsim.bytediff.hypotheses import ALL

#: A cause is reported if it explains at least this share of what differs, net of what it contradicts.
LEAST_SCORE = 0.25


@dataclass(frozen=True)
class Cause:
    """A hypothesis and how well its best prediction fits.

    ``explained`` of ``differing`` cells are predicted exactly; ``contradicted`` cells are right in the actual
    buffer and would be wrong by the prediction. ``exact`` means that the prediction is the actual buffer.
    """

    name: str
    detail: str
    explained: int
    differing: int
    contradicted: int

    @property
    def exact(self) -> bool:
        return self.explained == self.differing and self.contradicted == 0

    @property
    def score(self) -> float:
        return (self.explained - self.contradicted) / self.differing

    def __str__(self) -> str:
        fit = "predicts every byte" if self.exact else f"explains {self.explained} of {self.differing}"
        against = f", contradicts {self.contradicted}" if self.contradicted else ""
        return f"{self.name}: {self.detail} ({fit}{against})"


def causes(ev: Evidence) -> list[Cause]:
    """The supported causes, best first; of equal ones the more specific first."""
    if not ev.differing.any():
        return []
    found = [best for h in ALL if (best := best_of(ev, h)) is not None and best.score >= LEAST_SCORE]
    return sorted(found, key=lambda cause: -cause.score)  # stable: ties keep the order of ALL


def best_of(ev: Evidence, h: Hypothesis) -> Cause | None:
    """The best prediction of one hypothesis, if it makes any."""
    if h.needs_call and ev.bound is None:
        return None
    found = [judge(ev, h.name, prediction) for prediction in h.find(ev)]
    return max(found, key=lambda cause: cause.score, default=None)


def judge(ev: Evidence, name: str, prediction: Prediction) -> Cause:
    """Count what one prediction explains and contradicts."""
    right = prediction.cells == ev.got
    explained = int(np.count_nonzero(right & ev.differing))
    contradicted = int(np.count_nonzero(~right & ~ev.differing & ev.compared))
    return Cause(name, prediction.detail, explained, int(np.count_nonzero(ev.differing)), contradicted)

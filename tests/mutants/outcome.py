"""What became of a mutant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mutants.mutant import Mutant
from refsim.bytediff import Cause, Report
from refsim.cli._mutated import SeededOutcome

KILLED, CRASHED, REFUSED, STOPPED, SURVIVED = "killed", "crashed", "refused", "build", "survived"
#: How many causes count as named at once.
FIRST = 3


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant.

    ``how``: ``killed`` by different bytes, ``refused`` with a typed error, ``crashed``, stopped by the ``build``, or
    ``survived``. ``case`` is the first that did it, ``tried`` how many that took; ``rank`` is the place (from 1) of
    the true cause among those that the diff of that case names, or that the error's text names; None if it is in
    neither. ``pattern`` is what the differing elements have in common.
    """

    mutant: Mutant
    how: str
    case: str = ""
    tried: int = 0
    differing: int = 0
    causes: tuple[str, ...] = ()
    rank: int | None = None
    message: str = ""
    seconds: float = 0.0
    pattern: tuple[str, ...] = ()

    @property
    def killed(self) -> bool:
        return self.how != SURVIVED

    @property
    def named(self) -> bool:
        """Whether the true cause is among the first that were named."""
        return self.rank is not None and self.rank <= FIRST

    def row(self) -> SeededOutcome:
        mutant = self.mutant
        return SeededOutcome(
            id=mutant.id, bug=mutant.bug, place=mutant.place, executor=mutant.executor, subject=mutant.subject,
            files=list(dict.fromkeys(edit.file for edit in mutant.edits)),
            killed=self.killed, how=self.how, case=self.case, tried=self.tried, differing=self.differing,
            true_causes=mutant.causes, causes=self.causes, rank=self.rank, message=self.message,
            seconds=self.seconds,
        )  # fmt: skip


def differs(mutant: Mutant, case: str, tried: int, report: Report) -> Outcome:
    """Killed by a diff."""
    named = tuple(map(str, report.causes[:FIRST]))
    return Outcome(
        mutant, KILLED, case, tried, report.differing, named, _rank(mutant, report.causes),
        pattern=tuple(report.pattern),
    )  # fmt: skip


def refused(mutant: Mutant, case: str, tried: int, text: str, how: str = REFUSED) -> Outcome:
    """Killed by a typed error, or by what the comparison of two graphs says."""
    rank = next((1 for cause in mutant.causes if cause in text), None)
    return Outcome(mutant, how, case, tried, causes=(text,), rank=rank, message=text)


def _rank(mutant: Mutant, causes: Sequence[Cause]) -> int | None:
    names = [cause.name for cause in causes]
    return min((names.index(name) + 1 for name in mutant.causes if name in names), default=None)

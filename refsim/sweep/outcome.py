"""What came of a chunk on one variant: how many configurations ended how, and those that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from refsim.core.meanings import OperatorName
from refsim.core.qmath import Profile
from refsim.golden.check import CRASHED, DIFFERENT, ERROR, REFUSED
from refsim.golden.judge import KNOWN_DEFECT, LEGAL, SAME
from refsim.sweep.plan import SweepVariant

#: How a configuration can end. All but the last three are no failure; one that is refused was not compared.
STATUSES = (SAME, LEGAL, KNOWN_DEFECT, REFUSED, DIFFERENT, ERROR, CRASHED)
FAILED = (DIFFERENT, ERROR, CRASHED)
COMPARED = (SAME, LEGAL, KNOWN_DEFECT, DIFFERENT)
#: How many failures of a chunk are told one by one.
MOST_TOLD = 5


@dataclass(frozen=True)
class SweepFailure:
    """A configuration that failed."""

    operator: OperatorName
    seed: Annotated[int, "The seed."]
    profile: Annotated[str, "The profile."]
    variant: SweepVariant
    status: Annotated[str, "How it came out."]
    message: Annotated[str, "What happened, in words."]
    case: Annotated[str, "The case, as small as it still fails."] = ""
    #: The files of that case's folder.
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False, compare=False)
    folder: Annotated[str | None, "Where that case is; null if it was not written."] = None

    @property
    def executor(self) -> Annotated[str, "The executor, with its threads and its instruction set."]:
        return str(self.variant)

    @property
    def name(self) -> str:
        """A file name."""
        executor = "".join(letter if letter.isalnum() else "-" for letter in str(self.variant))
        subject = self.operator.rpartition("/")[2]
        return f"{subject}-{self.seed}-{self.profile}-{executor}"


@dataclass
class Outcome:
    """A chunk on one variant. ``nbytes`` are the output bytes that were compared; ``seconds`` are the executor's own.

    ``reasons`` count why it refused calls.
    """

    subject: str
    first: int
    count: int
    variant: SweepVariant
    statuses: Counter[str] = field(default_factory=Counter)
    nbytes: int = 0
    seconds: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[SweepFailure] = field(default_factory=list)

    @property
    def failed(self) -> int:
        return sum(self.statuses[status] for status in FAILED)

    def fail(
        self,
        at: tuple[int, Profile],
        status: str,
        message: str,
        case: str = "",
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        """Count a failure of a seed under a profile; the first few are kept."""
        self.statuses[status] += 1
        if len(self.failures) < MOST_TOLD:
            seed, profile = at
            failure = SweepFailure(
                self.subject, seed, profile.name, self.variant, status, message, case, files or {}
            )
            self.failures.append(failure)

    def refuse(self, why: str) -> None:
        """Count a configuration that the executor does not take."""
        self.statuses[REFUSED] += 1
        self.reasons[why] += 1

    def add(self, other: Outcome) -> None:
        """Take in what came of more configurations."""
        self.count += other.count
        self.statuses += other.statuses
        self.nbytes += other.nbytes
        self.seconds += other.seconds
        self.reasons += other.reasons
        self.failures += other.failures[: MOST_TOLD - len(self.failures)]


def summed(parts: Iterable[Outcome], subject: str = "") -> list[Outcome]:
    """One outcome for each subject and variant; for each variant, if a ``subject`` stands for all."""
    found: dict[tuple[str, SweepVariant], Outcome] = {}
    for part in parts:
        key = subject or part.subject, part.variant
        found.setdefault(key, Outcome(key[0], part.first, 0, part.variant)).add(part)
    return list(found.values())

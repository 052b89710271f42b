"""What a diff found, as data: counts, differences, pattern and causes. The renderers read it and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from refsim.bytediff.evidence import Evidence
from refsim.bytediff.invocations import Writer
from refsim.bytediff.rank import FEW, Cause
from refsim.core.locate import Location
from refsim.core.tensor import TensorDesc


@dataclass(frozen=True)
class Count:
    """Bytes of one kind: how many there are, and how many differ. Kinds that are not compared never fail."""

    kind: str
    bytes: int
    differing: int
    compared: bool


@dataclass(frozen=True)
class Difference:
    """One differing cell: its place, what was expected and found, who wrote it, and the profiles that allow it."""

    place: Location
    expected: int | float
    actual: int | float
    kind: str
    writer: Writer | None
    legal: tuple[str, ...]


@dataclass(frozen=True)
class Findings:
    """Everything that is known about one difference between two buffers.

    ``same`` is the verdict; it spares what the chosen profile allows, and padding that upstream leaves to chance.
    ``legal`` says of each profile how many differing cells it explains, and how many right cells it would make wrong.
    ``differing`` counts cells; ``differences`` lists the first of them. ``facts`` are what is certain where no
    cause fits well.
    """

    evidence: Evidence
    title: str
    counts: tuple[Count, ...]
    differences: tuple[Difference, ...]
    differing: int
    legal: Mapping[str, tuple[int, int]]
    profile: str | None
    pattern: tuple[str, ...]
    causes: tuple[Cause, ...]
    facts: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """Whether a cause fits well: the first one is exact, or not weak and explains most of what differs."""
        return bool(self.causes) and (
            self.causes[0].exact or (not self.causes[0].weak and self.causes[0].score > 0.5)
        )

    @property
    def few(self) -> bool:
        """Whether so little differs that many causes fit."""
        return 0 < self.differing < FEW

    @property
    def desc(self) -> TensorDesc:
        return self.evidence.desc

    @property
    def configuration(self) -> str:
        """Shapes, layouts and parameters of the call that wrote the buffer, in one line; empty if it is not known."""
        return "" if self.evidence.bound is None else self.evidence.bound.case.configuration

    @property
    def illegal(self) -> int:
        """Differing cells that the chosen profile does not explain."""
        return self.differing - (self.legal[self.profile][0] if self.profile else 0)

    @property
    def same(self) -> bool:
        return self.illegal == 0

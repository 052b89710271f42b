"""What a diff found, as data: counts, differences, pattern and causes. Text, pages and JSON say what stands here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from refsim.bytediff.evidence import Evidence
from refsim.bytediff.invocations import Writer
from refsim.bytediff.rank import FEW, Cause
from refsim.core.locate import Location
from refsim.core.meanings import CellKind, DifferentBytes, SizeInBytes
from refsim.core.plain import FLAT
from refsim.core.tensor import TensorDesc


@dataclass(frozen=True)
class Count:
    """Bytes of one kind: how many there are, and how many differ. Kinds that are not compared never fail."""

    kind: Annotated[str, "value, lane, word, unspecified or unknown padding, or allocation tail."]
    bytes: SizeInBytes
    different: DifferentBytes
    compared: Annotated[bool, "Whether they count."]


@dataclass(frozen=True)
class Difference:
    """One differing cell: its place, what was expected and found, who wrote it, and the profiles that allow it."""

    place: Annotated[Location, FLAT]
    expected: Annotated[int | float, "The right value."]
    actual: Annotated[int | float, "The value that was found."]
    kind: CellKind
    writer: Writer | None
    legal: Annotated[tuple[str, ...], "Profiles under which the actual value is right."]

    @property
    def workgroup(
        self,
    ) -> Annotated[tuple[int, ...] | None, "The workgroup that writes the word, if it is known."]:
        return None if self.writer is None else self.writer.workgroup

    @property
    def invocation(self) -> Annotated[tuple[int, ...] | None, "The invocation in it, if it is known."]:
        return None if self.writer is None else self.writer.invocation


@dataclass(frozen=True)
class Allowed:
    """What a numerics profile would give instead."""

    explains: Annotated[int, "Differing elements that it explains."]
    contradicts: Annotated[int, "Right elements that it would get wrong."]


@dataclass(frozen=True)
class Findings:
    """What is different between two buffers, and why.

    ``same`` is the verdict; it spares what the chosen profile allows, and padding that upstream leaves to chance.
    ``legal`` says of each profile how many differing cells it explains, and how many right cells it would make wrong.
    ``differing`` counts cells; ``differences`` lists the first of them. ``facts`` are what is certain where no
    cause fits well.
    """

    evidence: Evidence
    title: Annotated[str, "What was compared."]
    counts: Annotated[tuple[Count, ...], "Bytes by kind."]
    differences: Annotated[tuple[Difference, ...], "The first differences."]
    differing: Annotated[int, "Elements that differ."]
    legal: Annotated[Mapping[str, Allowed], "What each numerics profile explains."]
    profile: Annotated[str | None, "The numerics that the device was allowed."]
    pattern: Annotated[
        tuple[str, ...], "What the differing elements have in common, and which ways to compute it are right."
    ]
    causes: Annotated[tuple[Cause, ...], "The likely causes, best first."]
    facts: Annotated[tuple[str, ...], "What is certain where no cause fits well, in sentences."] = ()

    @property
    def known(self) -> bool:
        """Whether a cause fits well: the first one is exact, or not weak and explains most of what differs."""
        return bool(self.causes) and (
            self.causes[0].exact or (not self.causes[0].weak and self.causes[0].score > 0.5)
        )

    @property
    def few(self) -> bool:
        """Whether so little differs that many causes fit."""
        return 0 < self.differing < FEW and not any(cause.observed for cause in self.causes)

    @property
    def desc(self) -> TensorDesc:
        return self.evidence.desc

    @property
    def shape(self) -> Annotated[tuple[int, ...], "The sizes, outermost dim first."]:
        return self.desc.shape

    @property
    def layout(self) -> Annotated[str, "The layout."]:
        return self.desc.layout.name

    @property
    def configuration(self) -> Annotated[str, "Shapes, layouts and parameters of the call, or empty."]:
        return "" if self.evidence.bound is None else self.evidence.bound.case.configuration

    @property
    def illegal(self) -> int:
        """Differing cells that the chosen profile does not explain."""
        return self.differing - (self.legal[self.profile].explains if self.profile else 0)

    @property
    def same(self) -> Annotated[bool, "Whether no byte differs that counts."]:
        return self.illegal == 0

"""What a plan of the executor cpu says of itself: its steps, and the memory that it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.core.plain import Column


@dataclass(frozen=True)
class PlanMemory:
    """Bytes that a plan holds."""

    constants: Annotated[int, "Bytes of prepacked constants."]
    values: Annotated[int, "Bytes of the block of all values."]
    scratch: Annotated[int, "Bytes of scratch."]
    live: Annotated[int, "Bytes of the largest set of values that is needed at once."]
    weights: Annotated[int, "Bytes of the constants as the graph stores them."]

    @property
    def total(self) -> Annotated[int, "Constants, values and scratch."]:
        return self.constants + self.values + self.scratch

    @property
    def ratio(
        self,
    ) -> Annotated[float, "Of the weights and the largest live set, which no plan can do without."]:
        return round(self.total / max(1, self.weights + self.live), 3)

    def __str__(self) -> str:
        return (
            f"{self.total} bytes: constants {self.constants}, values {self.values}, scratch {self.scratch}; "
            f"{self.ratio:.2f} times the weights ({self.weights}) and the largest live set ({self.live})"
        )


def _span(nodes: Sequence[int]) -> str:
    return f"{nodes[0]}-{nodes[-1]}" if len(nodes) > 1 else str(nodes[0])


@dataclass(frozen=True)
class PlannedStep:
    """A step of a plan."""

    nodes: Annotated[Sequence[int], "Numbers of the nodes.", Column(show=_span)]
    operator: Annotated[str, "Names of the operators.", Column()]
    route: Annotated[str, "The route that it takes.", Column()]
    reads: Annotated[
        Sequence[str], "What it reads, and how that lies in memory.", Column(drop=2, show="; ".join)
    ]
    writes: Annotated[Sequence[str], "What it writes, and how that lies in memory.", Column(show="; ".join)]
    tasks: Annotated[int, "Into how many tasks it is divided.", Column(drop=3)]
    kernel: Annotated[str, "The compiled kernel.", Column(drop=1)]
    rejected: Annotated[Mapping[str, str], "Routes that it does not take, and why."]

"""The memory that a plan of the executor cpu holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated


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

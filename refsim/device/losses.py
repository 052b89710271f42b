"""Where accuracy goes in a run, as a value, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from refsim.core import choices
from refsim.core.html import rendered
from refsim.core.result import Table
from refsim.graph.describe import NodeOutput

COLUMNS = (
    "delegate", "node", "operator", "float node", "gain dB", "share", "dB", "own dB", "largest", "mean", "beyond",
)  # fmt: skip


@dataclass(frozen=True)
class OperatorLoss(NodeOutput):
    """What one operator loses. What is infinite is null: nothing is lost there."""

    place: Annotated[str, "The node of the float program."]
    gain: Annotated[
        float | None, "dB that the outputs gain if it stays in float; null for one without weights."
    ]
    share: Annotated[float, "Its part of what the outputs lose."]
    sqnr: Annotated[float | None, "Signal to noise of the value, in dB."]
    own: Annotated[float | None, "The same of what the operator adds."]
    largest: Annotated[float | None, "The largest error in steps of the value's scale; null for floats."]
    mean: Annotated[float | None, "The mean error in these."]
    saturated: Annotated[float | None, "The share of elements beyond what int8 holds; null for floats."]


@dataclass(frozen=True)
class RunAccuracy:
    """What a run loses. ``dB``: each number of dB as text, by what it is of."""

    exact: str
    outputs: Annotated[Sequence[float | None], "The outputs, in dB."]
    operators: Annotated[Sequence[OperatorLoss], "The operators, the most costly first."]
    missing: Annotated[Sequence[str], "Nodes that were not found in the float program."]
    cells: Sequence[Sequence[object]]
    told: Sequence[str]

    def text(self) -> Iterator[str | Table]:
        yield ""
        yield f"against {self.exact}: what each operator loses, what gains most in float first"
        yield Table(COLUMNS, self.cells, drop=("delegate", "mean", "own dB"))
        yield f"outputs: {', '.join(f'out{number} {text} dB' for number, text in enumerate(self.told))}"
        if self.missing:
            yield f"not found in {self.exact}: {choices.listed(self.missing)}"

    def page(self, file: str) -> str:
        """The table with a bar for each operator, as an HTML page. MissingDependencyError without jinja2."""
        return rendered("html page", "refsim.device", "losses.html", file=file, lost=self, columns=COLUMNS)

    @property
    def shares(self) -> list[tuple[str, str]]:
        """(value, its part of what the outputs lose), as node data for Model Explorer takes them."""
        return [(row.value, f"{100 * row.share:.1f}% of the loss") for row in self.operators]

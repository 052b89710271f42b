"""What verbs take of other people's tools (refsim.devtools): lines of code behind operators, Model Explorer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import click

from refsim.cli.kit.verb import tool
from refsim.cli.kit.written import Written
from refsim.core.counted import counted
from refsim.core.result import Table
from refsim.exec.model import Model
from refsim.graph.origin import Origin

COLUMN = "origin"
origin_option = click.option(
    "--origin",
    metavar="RECORD",
    help="The ETRecord of FILE, or the .pt2 that it was made from: show the line of code behind an operator.",
)

node_data_option = click.option(
    "--node-data",
    type=Written(),
    metavar="OUT",
    help="Write the verdict on each operator as node data for Model Explorer, beside inspect --model-explorer.",
)


@dataclass(frozen=True)
class Origins:
    """Origins by delegate and number of the node. Nothing is known, and nothing is shown, without a record."""

    found: Mapping[tuple[int, int], Origin] = field(default_factory=dict)
    #: names of the outputs of these nodes
    values: Mapping[tuple[int, int], str] = field(default_factory=dict)
    record: str | None = None
    operators: int = 0

    def __bool__(self) -> bool:
        return self.record is not None

    def cell(self, delegate: int, node: int) -> list[object]:
        """The last cell of a row; nothing without a record."""
        return [self.found.get((delegate, node), "-")] if self else []

    def made_by(self, delegate: int, node: int) -> Iterator[str]:
        """What made an operator."""
        origin = self.found.get((delegate, node))
        if origin is not None:
            first, *others = origin.lines() or [str(origin)]
            yield f"made by: {first}"
            yield from (f"  {line}" for line in others)

    def lines(self) -> dict[tuple[int, int], list[str]] | None:
        """Numbers of delegate and node -> the text of its cell, then its module and lines; None without a record."""
        return {place: [str(one), *one.lines()] for place, one in self.found.items()} if self else None

    def summary(self) -> Iterator[str]:
        if self:
            yield f"origin: {len(self.found)} of {counted(self.operators, 'operator')} found in {self.record}"

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[tuple[tuple[int, int], Sequence[object]]],
        drop: Sequence[str],
    ) -> Table:
        """A table with a column more if there is a record. ``rows``: (delegate, node), and the cells."""
        cells = [[*row, *self.cell(*place)] for place, row in rows]
        return Table((*columns, *([COLUMN] if self else [])), cells, drop)

    @property
    def origins(
        self,
    ) -> Annotated[dict[str, Origin] | None, "With --origin: by the operator's output; else null."]:
        return {self.values[place]: origin for place, origin in self.found.items()} if self else None


def read_origins(model: Model, record: str | None) -> Origins:
    """FormatError if the record is none, or of another program."""
    found: Origins = Origins() if record is None else tool("origins")(model, record)
    return found


def write_node_data(path: str | None, name: str, verdicts: Iterable[tuple[str, str]]) -> None:
    """Write (value name, verdict) pairs as node data; nothing without a path."""
    if path is not None:
        tool("node data")(path, name, verdicts)

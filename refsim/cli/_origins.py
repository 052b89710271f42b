"""The lines of a model's code behind its operators, as verbs show them: the option, the lookup, the sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import click

from refsim.cli.kit.text import Table
from refsim.core.counted import counted
from refsim.core.errors import FormatError
from refsim.exec.model import Model
from refsim.formats.dumps import value_name
from refsim.formats.exported.files import Exported, read_exported
from refsim.formats.pte.schema import DelegateCall
from refsim.graph.graph import Node, refs
from refsim.graph.origins import Origin, origins

COLUMN = "origin"
origin_option = click.option(
    "--origin",
    metavar="RECORD",
    help="The ETRecord of FILE, or the .pt2 that it was made from: show the line of code behind an operator.",
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
    if record is None:
        return Origins()
    method = "forward" if model.plan is None else model.plan.name
    given = read_exported(record, method)
    found = origins(model.graphs, given.program, _handles(model, given))
    places = {(number, node.number): node for number, node in model.nodes()}
    if places and not found:
        raise FormatError(
            record, "none of the operators are in this program", got=f"0 of {len(places)}",
            need=f"the record of {model.path}",
        )  # fmt: skip
    values = {place: value_name(place[0], places[place].outputs[0]) for place in found}
    computed = sum(1 for number, node in places.items() if _reads(model, number[0], node))
    return Origins(found, values, record, max(computed, len(found)))


def _reads(model: Model, number: int, node: Node) -> bool:
    """Whether a node reads more than constants."""
    return any(model.graphs[number].tensors[value].data is None for value in refs(node.args))


def _handles(model: Model, given: Exported) -> dict[int, frozenset[int]]:
    """The debug handles behind each delegate."""
    if model.plan is None or not given.handles:
        return {}
    steps = [step for chain in model.plan.chains for step in chain.instructions]
    return {
        step.delegate_index: given.handles[at]
        for at, step in enumerate(steps)
        if isinstance(step, DelegateCall) and at in given.handles
    }

"""What verbs take of other people's tools (refsim.devtools): lines of code behind operators, Model Explorer."""

from __future__ import annotations

from collections.abc import Iterable

import click

from refsim.cli.kit.verb import tool
from refsim.cli.kit.written import Written
from refsim.exec.model import Model
from refsim.graph.origin import Origins

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


def read_origins(model: Model, record: str | None) -> Origins:
    """FormatError if the record is none, or of another program."""
    found: Origins = Origins() if record is None else tool("origins")(model, record)
    return found


def write_node_data(path: str | None, name: str, verdicts: Iterable[tuple[str, str]]) -> None:
    """Write (value name, verdict) pairs as node data; nothing without a path."""
    if path is not None:
        tool("node data")(path, name, verdicts)

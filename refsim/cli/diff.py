"""Compare two raw buffers: which bytes differ, where they lie, who wrote them, and the likely cause."""

from __future__ import annotations

import os
from pathlib import Path

import click
import numpy as np

from refsim import dump
from refsim.bytediff import Report, diff
from refsim.bytediff.text import styled
from refsim.cli._main import DIFFERENT, SAME
from refsim.cli._options import json_option, layout_option, shape_option
from refsim.cli._output import print_json
from refsim.layout import Layout
from refsim.vkgraph.pte import read_file

STYLES = {
    "same": dict(fg="green"),
    "different": dict(fg="red", bold=True),
    "head": dict(bold=True),
    "cause": dict(fg="yellow"),
    "": {},
}


@click.command("diff")
@click.argument("expected")
@click.argument("actual")
@layout_option(required=False)
@shape_option(required=False)
@click.option(
    "--other",
    "others",
    multiple=True,
    metavar="FILE",
    help="Another raw buffer that may have been mixed up with this one.",
)
@click.option(
    "--limit", type=click.IntRange(0, 10_000), default=10, show_default=True, help="Differences to list."
)
@json_option
def command(
    expected: str,
    actual: str,
    layout: Layout | None,
    shape: tuple[int, ...] | None,
    others: tuple[str, ...],
    limit: int,
    as_json: bool,
) -> int:
    """Compare ACTUAL with EXPECTED, raw buffers of one tensor, byte by byte."""
    for name in (expected, actual):
        beside = Path(name).with_suffix(".json")
        if (layout is None or shape is None) and os.path.isfile(beside):
            entry = dump.read_sidecar(beside)
            layout, shape = layout or entry.layout, shape or entry.shape
    if layout is None or shape is None:
        raise click.UsageError("give --layout and --shape, or a .json beside one of the buffers")
    report = diff(
        bytes(read_file(expected)),
        bytes(read_file(actual)),
        layout,
        shape,
        others={name: np.frombuffer(bytes(read_file(name)), np.uint8) for name in others},
        limit=limit,
    )
    return show("diff", report, as_json, expected=expected, actual=actual)


def show(verb: str, report: Report, as_json: bool, **facts: object) -> int:
    """Print a report; the status."""
    if as_json:
        print_json(verb, {**facts, **report.as_json()})
    else:
        for line, style in styled(report):
            click.echo(click.style(line, **STYLES[style]) if style else line)  # type: ignore[arg-type]
    return SAME if report.same else DIFFERENT

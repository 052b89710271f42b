"""Find the first operator that goes wrong in a device's run, from buffers dumped there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from refsim.bytediff import Report, diff
from refsim.bytediff.hypotheses.defects import NAME as KNOWN_DEFECT
from refsim.bytediff.text import styled
from refsim.cli._buffers import (
    all_bytes_option,
    html_option,
    inputs_options,
    limit_option,
    model_inputs,
    print_lines,
    profile_option,
    write_html,
)
from refsim.cli._execute import operator_name
from refsim.cli._main import DIFFERENT, SAME
from refsim.cli._options import json_option
from refsim.cli._output import print_json, print_table
from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds
from refsim.core.errors import FormatError
from refsim.exec.factory import executor_named
from refsim.exec.model import load
from refsim.exec.trace import Traced, bound_of, trace
from refsim.formats.dumps import Recorded
from refsim.ops.base.binding import BoundCase

COLUMNS = ("delegate", "node", "operator", "output", "run", "alone")
SAME_TEXT, NOT_DUMPED, UNKNOWN = "same", "not dumped", "-"


@dataclass(frozen=True)
class Row:
    """One node. ``run`` compares its dump with a run from the start, ``alone`` with the node on its dumped inputs.

    ``wrong``: the operator itself is at fault; its output is wrong though its inputs are as dumped, or were right.
    ``cause``: what is known to be wrong with upstream's kernel here, for a node that no kernel computes or whose buffer
    has exactly the bytes of that defect.
    """

    delegate: int
    node: int
    operator: str
    output: str
    run: Report | None
    alone: Report | None
    wrong: bool
    cause: str = ""

    def cells(self) -> list[object]:
        run = NOT_DUMPED if self.run is None else _text(self.run)
        return [
            self.delegate,
            self.node,
            self.operator,
            self.output,
            run,
            UNKNOWN if self.alone is None else _text(self.alone),
        ]

    def as_json(self) -> dict[str, Any]:
        return dict(zip(COLUMNS, self.cells(), strict=True))


def _text(report: Report) -> str:
    return SAME_TEXT if report.same else f"different {report.illegal}"


@click.command("bisect")
@click.argument("file")
@click.option("--actual", required=True, metavar="DIR", help="Folder or zip file of dumped buffers.")
@inputs_options
@profile_option
@all_bytes_option
@limit_option
@html_option
@json_option
def command(
    file: str,
    actual: str,
    inputs: str | None,
    seed: int | None,
    profile: str | None,
    all_bytes: bool,
    limit: int,
    html: str | None,
    as_json: bool,
) -> int:
    """Compare the dumped buffers of a run of FILE with the right ones, in execution order.

    If the inputs of an operator were dumped too, it is also computed on those. That separates an operator that is
    wrong from one that got wrong inputs.
    """
    model = load(file)
    recorded = Recorded(actual)
    given = model_inputs(model, inputs, seed)
    rows: list[Row] = []
    options: dict[str, Any] = {"profile": profile, "device": not all_bytes, "limit": limit}
    before: dict[str, BoundCase] = {}

    def visit(traced: Traced) -> None:
        if traced.bound is not None:
            diverged = any(row.run is not None and not row.run.same for row in rows)
            rows.append(_row(traced, recorded, before.get(traced.bound.call.op.name), diverged, options))
            before[traced.bound.call.op.name] = traced.bound
        elif traced.node.meaning is not None:
            rows.append(_meant(traced, recorded, rows, options))

    trace(model, given, executor_named("cpu"), visit)
    compared = [row for row in rows if row.run is not None]
    if not compared:
        raise FormatError(
            actual, "holds none of the model's buffers", got=", ".join(sorted(recorded.entries)[:3]),
            need=", ".join(row.output for row in rows[:3]) + ", ...",
        )  # fmt: skip
    guilty = next((row for row in rows if row.wrong), None)
    first = next((row for row in compared if row.run is not None and not row.run.same), None)
    return _show(file, actual, rows, first, guilty, html, as_json)


def _row(
    traced: Traced, recorded: Recorded, before: BoundCase | None, diverged: bool, options: dict[str, Any]
) -> Row:
    assert traced.bound is not None
    name, bound, node = traced.output, traced.bound, traced.node
    run = alone = None
    if name in recorded:
        dumped = recorded.raw(name, bound.call.out)
        expected = bound.call.expected(bound.inputs)
        title = f"{name} {expected.desc}, node {node.number} {operator_name(node)}"
        run = diff(expected, dumped, call=bound, previous=before, title=title, **options)
        handed = _dumped_inputs(traced, recorded, diverged)
        if handed is not None:
            own = bound_of(bound.call, handed)
            again = own.call.expected(own.inputs)
            title += ", computed from its dumped inputs"
            alone = diff(again, dumped, call=own, previous=before, title=title, **options)
    wrong = run is not None and not run.same and (not diverged if alone is None else not alone.same)
    cause = _known_defect(alone or run) if wrong else ""
    return Row(traced.delegate, node.number, operator_name(node), name, run, alone, wrong, cause)


def _known_defect(report: Report | None) -> str:
    """The defect of upstream's kernel that predicts every element of the buffer, in words."""
    best = report.causes[0] if report is not None and report.causes else None
    return best.detail if best is not None and best.exact and best.name == KNOWN_DEFECT else ""


def _meant(
    traced: Traced, recorded: Recorded, rows: list[Row], options: dict[str, Any]
) -> Row:  # fmt: skip
    """A node that runs by its definition: its own elements are compared, and its note is the cause."""
    name, node = traced.output, traced.node
    buffer = traced.outputs[name]
    assert isinstance(buffer, PackedBuffer) and node.meaning is not None
    run = None
    if name in recorded:
        dumped = recorded.raw(name, buffer.desc).copy()
        spare = byte_kinds(buffer.desc) != ByteKind.VALUE  # padding, of which nobody reads anything
        dumped[spare] = buffer.raw[spare]
        title = f"{name} {buffer.desc}, node {node.number} {operator_name(node)}"
        run = diff(buffer, dumped, title=title, limit=options["limit"])
    diverged = any(row.run is not None and not row.run.same for row in rows)
    wrong = run is not None and not run.same and not diverged
    return Row(
        traced.delegate, node.number, operator_name(node), name, run, None, wrong, node.meaning.upstream
    )


def _dumped_inputs(traced: Traced, recorded: Recorded, diverged: bool) -> dict[str, PackedBuffer] | None:
    """The dumped inputs; None if one of them was not dumped.

    A float input that was not dumped is that of the right run, as long as nothing diverged before.
    """
    assert traced.bound is not None
    handed = {}
    for argument, value in traced.input_names().items():
        buffer = traced.bound.inputs[argument]
        if value in recorded:
            raw = recorded.raw(value, buffer.desc)
            desc = buffer.desc
            handed[argument] = PackedBuffer.from_raw(raw, desc.shape, desc.layout, desc.dtype)
        elif not buffer.desc.is_int8 and not diverged:
            handed[argument] = buffer
        else:
            return None
    return handed


def _show(
    file: str,
    actual: str,
    rows: list[Row],
    first: Row | None,
    guilty: Row | None,
    html: str | None,
    as_json: bool,
) -> int:
    chosen = guilty or first
    report = (
        None if chosen is None else chosen.alone if chosen.wrong and chosen.alone is not None else chosen.run
    )
    same = first is None and guilty is None
    write_html(html, report)
    if as_json:
        content = {
            "file": file, "actual": actual, "nodes": [row.as_json() for row in rows], "same": same,
            "first": None if first is None else first.output, "wrong": [row.output for row in rows if row.wrong],
            "causes": {row.output: row.cause for row in rows if row.wrong and row.cause},
            "report": None if report is None else report.as_json(),
        }  # fmt: skip
        print_json("bisect", content)
        return SAME if same else DIFFERENT
    print_table(COLUMNS, [row.cells() for row in rows])
    compared = sum(row.run is not None for row in rows)
    click.echo(f"{compared} of {len(rows)} int8 nodes dumped")
    if first is not None:
        click.echo(f"first that diverges: node {first.node} {first.operator}, {first.output}")
    for row in rows:
        if row.wrong:
            how = "on its own dumped inputs" if row.alone is not None else "its inputs were not all dumped"
            click.echo(f"wrong: node {row.node} {row.operator}, {row.output} ({how})")
            if row.cause:
                click.echo(f"cause: {row.cause}")
    if report is not None:
        print_lines(styled(report))
    return SAME if same else DIFFERENT

"""Run a file on two executors and compare every buffer byte by byte, in execution order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from refsim.bytediff import Report, diff
from refsim.bytediff.text import styled
from refsim.cli._buffers import (
    html_option,
    inputs_options,
    limit_option,
    model_inputs,
    print_lines,
    write_html,
)
from refsim.cli._complete import Completeness
from refsim.cli._execute import operator_name
from refsim.cli._options import json_option
from refsim.cli._output import print_json, print_table
from refsim.core.buffer import PackedBuffer
from refsim.exec.factory import executor_named
from refsim.exec.model import load
from refsim.exec.trace import Traced, trace
from refsim.ops.base.binding import BoundCase

COLUMNS = ("delegate", "node", "operator", "output", "bytes", "different")


@dataclass(frozen=True)
class Row:
    """One buffer of the run: how many of its bytes differ, and the call that wrote it on the first executor."""

    delegate: int
    node: int
    operator: str
    output: str
    bytes: int
    different: int
    first: PackedBuffer | np.ndarray
    second: PackedBuffer | np.ndarray
    bound: BoundCase | None

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COLUMNS}


@click.command("compare")
@click.argument("file")
@click.option(
    "-x",
    "--executor",
    "executors",
    multiple=True,
    help="Give it twice: cpu, cpu:emulated, gpu or gpu:N. Without it, cpu and gpu.",
)
@inputs_options
@limit_option
@html_option
@json_option
def command(
    file: str,
    executors: tuple[str, ...],
    inputs: str | None,
    seed: int | None,
    limit: int,
    html: str | None,
    as_json: bool,
) -> int:
    """Run FILE on two executors, compare all bytes of every buffer, and explain the first buffer that differs."""
    names = [name for given in executors or ("cpu,gpu",) for name in given.split(",")]
    if len(names) != 2:
        raise click.UsageError(f"two executors are compared, not {len(names)}: -x cpu -x gpu")
    model = load(file)
    given = model_inputs(model, inputs, seed)
    runs: list[dict[str, tuple[Traced, PackedBuffer | np.ndarray]]] = []
    for runner in [executor_named(name) for name in names]:
        kept: dict[str, tuple[Traced, PackedBuffer | np.ndarray]] = {}

        def visit(traced: Traced, kept: dict[str, Any] = kept) -> None:
            kept.update((name, (traced, held)) for name, held in traced.outputs.items())

        trace(model, given, runner, visit)
        runs.append(kept)
    rows = [_row(name, traced, held, runs[1][name][1]) for name, (traced, held) in runs[0].items()]
    wrong = next((row for row in rows if row.different), None)
    held = [row.output for row in rows if row.bytes]
    whole = Completeness(file, held, frozenset(held))
    report = None if wrong is None else explain(wrong, names, limit)
    write_html(html, report)
    if as_json:
        content = {
            "file": file, "executors": names, "buffers": [row.as_json() for row in rows],
            "same": wrong is None and whole.enough,
            "first": None if wrong is None else wrong.output, "report": None if report is None else report.as_json(),
        }  # fmt: skip
        print_json("compare", content)
        return whole.status(wrong is None)
    print_table(COLUMNS, [[getattr(row, name) for name in COLUMNS] for row in rows])
    differing = sum(row.different > 0 for row in rows)
    if rows:
        click.echo(f"{len(rows)} buffers on {names[0]} and {names[1]}: {differing} differ")
    if wrong is not None:
        click.echo(f"first: node {wrong.node} {wrong.operator}, {wrong.output}")
        if report is not None:
            print_lines(styled(report))
    return whole.status(wrong is None)


def _row(name: str, traced: Traced, a: PackedBuffer | np.ndarray, b: PackedBuffer | np.ndarray) -> Row:
    first, second = _bytes(a), _bytes(b)
    different = int((first != second).sum()) if len(first) == len(second) else max(len(first), len(second))
    node = traced.node
    return Row(
        traced.delegate, node.number, operator_name(node), name, len(first), different, a, b, traced.bound
    )


def _bytes(held: PackedBuffer | np.ndarray) -> np.ndarray:
    raw = held.raw if isinstance(held, PackedBuffer) else np.asarray(held, order="C")
    return np.frombuffer(raw.tobytes(), np.uint8)


def explain(row: Row, names: list[str], limit: int) -> Report | None:
    """The diff of the two buffers; None if they are not packed or float32 ones."""
    if not (isinstance(row.first, PackedBuffer) and isinstance(row.second, PackedBuffer)):
        return None
    title = f"{row.output} {row.first.desc}, {names[1]} against {names[0]}"
    return diff(row.first, row.second, call=row.bound, limit=limit, title=title)

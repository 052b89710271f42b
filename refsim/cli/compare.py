"""Run a file on two executors and compare every buffer byte by byte, in execution order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import click
import numpy as np

from refsim.bytediff import Report, diff
from refsim.bytediff.invocations import Geometry
from refsim.check.runtime import DEFAULT
from refsim.check.runtime import releases as known_releases
from refsim.cli._execute import unwatched_lines
from refsim.cli._origins import COLUMN, Origins, origin_option, read_origins
from refsim.cli.kit.apart import Telling
from refsim.cli.kit.buffers import GivenInputs, inputs_options, launched, print_report, write_html
from refsim.cli.kit.complete import Completeness
from refsim.cli.kit.options import (
    EXECUTORS,
    RUNTIMES,
    executor_profile_option,
    html_option,
    limit_option,
    search_option,
)
from refsim.cli.kit.progress import progress
from refsim.cli.kit.target import opened, target_option
from refsim.cli.kit.text import print_table, say, say_all
from refsim.cli.kit.verb import Lacking, Result, verb
from refsim.core.buffer import PackedBuffer
from refsim.core.counted import counted, form
from refsim.core.qmath import Profile
from refsim.exec.executor import YOURS, Executor, Source
from refsim.exec.factory import executor_named
from refsim.exec.share import as_json as as_json_of
from refsim.exec.share import shares
from refsim.exec.trace import Traced, trace, unwatched
from refsim.formats.targets import TargetRow
from refsim.golden.judge import KNOWN_DEFECT, LEGAL, WRONG, Judged, judged
from refsim.golden.judge import SAME as SAME_BYTES
from refsim.ops.base.binding import BoundCase

COLUMNS = ("delegate", "node", "operator", "output", "bytes", "different")


#: Beside these, if kernels of another build ran.
FOREIGN_COLUMNS = ("kernels", "verdict")


@dataclass
class ComparedRow:
    """One buffer of the run: how many of its bytes differ, and the call that wrote it on the first executor.

    ``source`` says where kernels of another build came from. ``judged`` is about the bytes that they wrote, computed
    from the inputs that they had; ``excused``: a known defect of upstream explains the difference.
    """

    delegate: int
    node: int
    operator: str
    output: str
    bytes: int
    different: int
    first: PackedBuffer | np.ndarray
    second: PackedBuffer | np.ndarray
    bound: BoundCase | None
    source: Source | None = None
    judged: Judged | None = None
    excused: bool = False

    @property
    def kernels(self) -> str:
        return "-" if self.source is None else str(self.source)

    @property
    def verdict(self) -> str:
        if self.judged is None:
            return "-"
        allows = self.judged.verdict == LEGAL
        return f"{self.judged}; --profile {self.judged.profiles[0]} allows it" if allows else str(self.judged)

    def as_json(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in ("delegate", "node", "operator", "bytes", "different")}
        found["value"] = self.output
        if self.source is not None:
            judged = None if self.judged is None else self.judged.as_json()
            found |= {"source": vars(self.source), "judged": judged, "excused": self.excused}
        return found


@verb("compare", "model.pte --random 0 -x cpu -x gpu")
@click.argument("file")
@click.option(
    "-x",
    "--executor",
    "executors",
    multiple=True,
    help=f"Give it twice: {EXECUTORS}. Without it, cpu and gpu.",
)
@inputs_options
@target_option()
@click.option(
    "--runtime",
    "releases",
    multiple=True,
    metavar="NAME",
    help=f"The runtime that is meant: {RUNTIMES}. Give it twice to compare what one file gives on two of them.",
)
@executor_profile_option
@limit_option
@search_option
@html_option
@origin_option
def command(
    file: str,
    executors: tuple[str, ...],
    inputs: str | None,
    seed: int | None,
    family: TargetRow | None,
    releases: tuple[str, ...],
    profile: Profile | None,
    limit: int,
    html: str | None,
    origin: str | None,
) -> Result:
    """Run FILE on two executors, compare all bytes of every buffer, and explain the first buffer that differs.

    With two runtimes: say which values are others on the second one, and why.

    One that prepares whole graphs runs FILE once more as users do, where nobody watches: its outputs must be the
    same.
    """
    if len(releases) > 1:
        return _on_runtimes(file, releases, executors, GivenInputs(inputs, seed), family, profile)
    names = [name for given in executors or ("cpu,gpu",) for name in given.split(",")]
    if len(names) != 2:
        raise Lacking(f"two executors are compared, not {len(names)}: -x cpu -x gpu")
    if names[0] == names[1]:
        raise click.UsageError(
            f"{names[0]} would be compared with itself; need another, such as -x cpu -x cpu:emulated; "
            f"refsim repeat FILE -x {names[0]} compares its own runs"
        )
    asked = GivenInputs(inputs, seed)
    found = opened(file, family, profile, shaped=asked.at, release=(*releases, DEFAULT)[0])
    model = found.model
    made = read_origins(model, origin)
    given = asked.of(model)
    runs: list[dict[str, tuple[Traced, PackedBuffer | np.ndarray]]] = []
    runners = [executor_named(name) for name in names]
    apart: dict[str, list[str]] = {}
    with progress("operators", 2 * sum(1 for _ in model.nodes())) as advance:
        for name, runner in zip(names, runners, strict=True):
            kept: dict[str, tuple[Traced, PackedBuffer | np.ndarray]] = {}

            def visit(traced: Traced, kept: dict[str, Any] = kept) -> None:
                kept.update((name, (traced, held)) for name, held in traced.outputs.items())
                advance()

            outputs = trace(model, given, runner, visit, past_guards=True)
            runs.append(kept)
            if (again := unwatched(model, given, runner, outputs)) is not None:
                apart[name] = again[1]
    rows = [_row(name, traced, held, runs[1][name][1]) for name, (traced, held) in runs[0].items()]
    foreign = any(runner.foreign for runner in runners)
    if foreign:
        _judge(rows, runs, runners)
    wrong = next((row for row in rows if row.different and not row.excused), None)
    held = [row.output for row in rows if row.bytes]
    whole = Completeness(
        file, held, frozenset(held), own=shares(model, dict(zip(names, runners, strict=True)))
    )
    guards = list(dict.fromkeys(t.outside for run in runs for t, _ in run.values() if t.outside))
    same = wrong is None and not guards and not any(apart.values())
    how = None if wrong is None or wrong.bound is None else launched(runners[1], wrong.bound.call)
    report = None if wrong is None else explain(wrong, names, limit, how)
    telling = Telling(names[1], runners[1])
    write_html(html, report, telling.texts(report))
    content = {
        "file": file, "executors": names, **found.as_json(), "buffers": [row.as_json() for row in rows],
        "same": same and whole.enough, "guards": guards, "unwatched": apart,
        "first": None if wrong is None else wrong.output, "report": None if report is None else report.as_json(),
        "apart": telling.as_json(report), **as_json_of(whole.own),
        **made.as_json(),
    }  # fmt: skip

    def show() -> None:
        _print(names, rows, foreign, made)
        say_all((*unwatched_lines(apart), *whole.lines(), *guards))
        if wrong is not None:
            say(f"first: node {wrong.node} {wrong.operator}, {wrong.output}")
            made.say(wrong.delegate, wrong.node)
            if report is not None:
                print_report(report, telling)

    return Result(content, show, partial(whole.status, same))


def _print(names: Sequence[str], rows: Sequence[ComparedRow], foreign: bool, made: Origins) -> None:
    """The table of buffers, and how many of them differ."""
    columns = (*COLUMNS, *FOREIGN_COLUMNS) if foreign else COLUMNS
    cells = [[*(getattr(row, n) for n in columns), *made.cell(row.delegate, row.node)] for row in rows]
    print_table((*columns, *([COLUMN] if made else [])), cells, drop=("delegate", "bytes", "kernels"))
    differing = sum(row.different > 0 for row in rows)
    if rows:
        excused = sum(row.excused for row in rows)
        known = f", {excused} of them by known defects of upstream" if excused else ""
        differ = f"{differing} {form(differing, 'differs', 'differ')}"
        say(f"{counted(len(rows), 'buffer')} on {names[0]} and {names[1]}: {differ}{known}")


def _on_runtimes(
    file: str, releases: tuple[str, ...], executors: tuple[str, ...], asked: GivenInputs,
    family: TargetRow | None, profile: Profile | None,
) -> Result:  # fmt: skip
    from refsim.cli._runtimes import compare_runtimes

    if len(releases) != 2 or releases[0] == releases[1]:
        first, second, *_ = known_releases()
        raise click.UsageError(f"two runtimes are compared: --runtime {first} --runtime {second}")
    if len(executors) > 1:
        raise click.UsageError("give two executors or two runtimes, not both")
    name = (*executors, "cpu")[0]
    return compare_runtimes(file, (releases[0], releases[1]), name, asked, family, profile)


def _row(
    name: str, traced: Traced, a: PackedBuffer | np.ndarray, b: PackedBuffer | np.ndarray
) -> ComparedRow:
    first, second = _bytes(a), _bytes(b)
    different = int((first != second).sum()) if len(first) == len(second) else max(len(first), len(second))
    node = traced.node
    return ComparedRow(
        traced.delegate, node.number, node.operator, name, len(first), different, a, b, traced.bound
    )


def _judge(
    rows: list[ComparedRow],
    runs: list[dict[str, tuple[Traced, PackedBuffer | np.ndarray]]],
    runners: Sequence[Executor],
) -> None:
    """Say where kernels came from, and whether what they wrote is right for the inputs that they had."""
    excused = False  # whether a known defect came before: it changes what others compute
    for row in rows:
        for run, runner in zip(runs, runners, strict=True):
            traced, held = run[row.output]
            if not runner.foreign or traced.bound is None or not isinstance(held, PackedBuffer):
                continue
            source = row.source = runner.source(traced.bound.call)
            if not row.different or source.whose != YOURS:
                continue
            found = judged(traced.bound, held, profiles=(), defects=source.forgiven)
            if found.verdict == WRONG:
                found = judged(traced.bound, held, defects=source.forgiven)
            row.judged = found
            row.excused = found.verdict == KNOWN_DEFECT or (excused and found.verdict == SAME_BYTES)
        if row.different and row.judged is None:
            row.excused = excused
        excused |= row.excused


def _bytes(held: PackedBuffer | np.ndarray) -> np.ndarray:
    raw = held.raw if isinstance(held, PackedBuffer) else np.asarray(held, order="C")
    return np.frombuffer(raw.tobytes(), np.uint8)


def explain(
    row: ComparedRow, names: list[str], limit: int, geometry: Geometry | None = None
) -> Report | None:
    """The diff of the two buffers; None if they are not packed or float32 ones. ``geometry``: the second's launch."""
    if not (isinstance(row.first, PackedBuffer) and isinstance(row.second, PackedBuffer)):
        return None
    title = f"{row.output} {row.first.desc}, {names[1]} against {names[0]}"
    return diff(row.first, row.second, call=row.bound, limit=limit, title=title, geometry=geometry)

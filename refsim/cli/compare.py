"""Run a file on two executors and compare every buffer byte by byte, in execution order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import click

from refsim.check.runtime import DEFAULT
from refsim.check.runtime import releases as known_releases
from refsim.cli.kit.devtools import origin_option, read_origins
from refsim.cli.kit.options import (
    EXECUTORS,
    RUNTIMES,
    executor_profile_option,
    inputs_options,
    report_options,
)
from refsim.cli.kit.report import write_html
from refsim.cli.kit.target import GivenInputs, target_option
from refsim.cli.kit.verb import Lacking, verb
from refsim.core.counted import counted, form
from refsim.core.doing import progress
from refsim.core.plain import FLAT
from refsim.core.qmath import Profile
from refsim.core.result import Text
from refsim.device.across import RuntimesCompared, compare_runtimes
from refsim.device.bisect import launched
from refsim.device.complete import CompleteComparison, Completeness, unwatched_lines
from refsim.device.opened import opened
from refsim.exec.factory import executor_named
from refsim.exec.share import shares
from refsim.formats.targets import TargetRow
from refsim.golden.told import ToldReport
from refsim.golden.two_runs import TwoRuns, two_runs
from refsim.graph.origin import Origins

COLUMNS = ("delegate", "node", "operator", "output", "bytes", "different")
#: Beside these, if kernels of another build ran.
FOREIGN_COLUMNS = ("kernels", "verdict")


@dataclass(frozen=True, kw_only=True)
class Compared(CompleteComparison):
    """Two executors, buffer by buffer."""

    executors: Annotated[Sequence[str], "The two executors."]
    runs: Annotated[TwoRuns, FLAT]
    told: Annotated[ToldReport, FLAT]
    made: Annotated[Origins, FLAT]
    foreign: bool

    def text(self) -> Text:
        rows = []
        for row in self.runs.buffers:
            cells = [row.delegate, row.node, row.operator, row.value, row.bytes, row.different]
            cells += [row.kernels, row.verdict] if self.foreign else []
            rows.append((row.at, cells))
        columns = (*COLUMNS, *FOREIGN_COLUMNS) if self.foreign else COLUMNS
        yield self.made.table(columns, rows, drop=("delegate", "bytes", "kernels"))
        if rows:
            differing = sum(row.different > 0 for row in self.runs.buffers)
            excused = sum(row.excused for row in self.runs.buffers)
            known = f", {excused} of them by known defects of upstream" if excused else ""
            differ = f"{differing} {form(differing, 'differs', 'differ')}{known}"
            yield f"{counted(len(rows), 'buffer')} on {' and '.join(self.executors)}: {differ}"
        yield from unwatched_lines(self.runs.unwatched)
        yield from self.whole.lines()
        yield from self.runs.guards
        if (wrong := self.runs.wrong) is not None:
            yield f"first: node {wrong.node} {wrong.operator}, {wrong.value}"
            yield from self.made.made_by(*wrong.at)
            yield from self.told.text()


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
@report_options
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
) -> Compared | RuntimesCompared:
    """Run FILE on two executors, compare all bytes of every buffer, and explain the first buffer that differs.

    With two runtimes: say which values are others on the second one, and why.

    One that prepares whole graphs runs FILE once more as users do, where nobody watches: its outputs must be the
    same.
    """
    if len(releases) > 1:
        if len(releases) != 2 or releases[0] == releases[1]:
            one, other, *_ = known_releases()
            raise click.UsageError(f"two runtimes are compared: --runtime {one} --runtime {other}")
        if len(executors) > 1:
            raise click.UsageError("give two executors or two runtimes, not both")
        asked = GivenInputs(inputs, seed)
        first, second = (opened(file, family, profile, shaped=asked.at, release=name) for name in releases)
        return compare_runtimes(file, first, second, asked.of(first.model), (*executors, "cpu")[0])
    names = _two(executors)
    asked = GivenInputs(inputs, seed)
    found = opened(file, family, profile, shaped=asked.at, release=(*releases, DEFAULT)[0])
    model, given = found.model, asked.of(found.model)
    made = read_origins(model, origin)
    runners = {name: executor_named(name) for name in names}
    last = runners[names[1]]
    with progress("operators", 2 * sum(1 for _ in model.nodes())) as advance:
        runs = two_runs(model, given, runners, advance)
    wrong = runs.wrong
    how = None if wrong is None or wrong.bound is None else launched(last, wrong.bound.call)
    report = None if wrong is None else wrong.report(f"{names[1]} against {names[0]}", limit, how)
    told = ToldReport.of(report, names[1], last)
    write_html(told, html)
    held = [row.value for row in runs.buffers if row.bytes]
    own = shares(model, runners)
    return Compared(
        file=file, aimed=found, whole=Completeness(file, held, frozenset(held), own=own), differs=not runs.same,
        executors=names, runs=runs, told=told, made=made,
        foreign=any(runner.foreign for runner in runners.values()),
    )  # fmt: skip


def _two(executors: Sequence[str]) -> list[str]:
    """The names of the two executors."""
    names = [name for given in executors or ("cpu,gpu",) for name in given.split(",")]
    if len(names) != 2:
        raise Lacking(f"two executors are compared, not {len(names)}: -x cpu -x gpu")
    if names[0] == names[1]:
        raise click.UsageError(
            f"{names[0]} would be compared with itself; need another, such as -x cpu -x cpu:emulated; "
            f"refsim repeat FILE -x {names[0]} compares its own runs"
        )
    return names

"""Run a case on an executor, or compare a buffer from a device with what the case expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import click
import numpy as np

from refsim.bytediff import Report, diff
from refsim.cli.kit.apart import Telling
from refsim.cli.kit.buffers import (
    all_bytes_option,
    compared,
    launched,
    print_report,
    raw_buffer,
    raw_files,
    write_html,
    written_by,
)
from refsim.cli.kit.options import (
    actual_layout_option,
    device_profile_option,
    executors_option,
    html_option,
    limit_option,
    search_option,
)
from refsim.cli.kit.text import say
from refsim.cli.kit.verb import Result, verb
from refsim.core import choices
from refsim.core.buffer import PackedBuffer
from refsim.core.layout import Layout
from refsim.core.qmath import Profile
from refsim.core.status import DIFFERENT, SAME
from refsim.core.tensor import TensorDesc
from refsim.device.single_output import FORMS
from refsim.exec.executor import YOURS, Executor, Source
from refsim.exec.factory import executor_named
from refsim.exec.share import Share
from refsim.formats.sidecars import unlike_case
from refsim.golden.check import asked_of, ran_again, within
from refsim.golden.judge import KNOWN_DEFECT, Judged, judged
from refsim.golden.named import open_case
from refsim.ops.base.binding import BoundCase, has_sums, ruled
from refsim.ops.base.requantization import RULES


@verb("replay", "case -x cpu")
@click.argument("case")
@click.option(
    "--actual",
    metavar="FILE",
    help=f"Instead of running the case, compare what a device made of it: {FORMS}.",
)
@actual_layout_option
@click.option(
    "--rule",
    metavar="RULE",
    help=f"With --actual: how sums become bytes in your library: {choices.listed(RULES)}, or an expression.",
)
@executors_option
@click.option(
    "--other",
    "others",
    multiple=True,
    metavar="FILE",
    help="Another raw buffer that may have been mixed up with the actual one.",
)
@device_profile_option
@all_bytes_option
@limit_option
@search_option
@html_option
def command(
    case: str,
    actual: str | None,
    actual_layout: Layout | None,
    rule: str | None,
    executors: str,
    others: tuple[str, ...],
    profile: Profile | None,
    all_bytes: bool,
    limit: int,
    html: str | None,
) -> Result:
    """Run one operator call: CASE is a case directory, ZIPFILE!NAME, or OPERATOR/NUMBER of the golden corpus.

    Without --actual the executors run the case, and every byte is compared. With --actual, padding that a device
    may fill with anything is not compared.
    """
    if rule is not None and actual is None:
        raise click.UsageError("--rule needs --actual: the executors follow ExecuTorch's rule")
    stored = open_case(case)
    if actual is not None:
        if actual_layout is None:
            unlike_case(
                actual, stored, case, same=True
            )  # before anything is read: whether it can be this tensor
        desc = stored.expected.desc
        bound = stored.bound if rule is None else ruled(stored.bound, rule)
        report = diff(
            stored.expected if rule is None else bound.call.expected(bound.inputs),
            raw_buffer(actual, desc.shape, actual_layout or desc.layout),
            call=bound,
            search=None if rule is None else 0,
            others=raw_files(others),
            profile=profile,
            device=not all_bytes,
            limit=limit,
            title=f"{stored.name} {TensorDesc(desc.shape, actual_layout or desc.layout)}",
            actual_layout=actual_layout,
        )
        texts = unlike_case(actual, stored, case, report.same) if actual_layout is None else []
        texts += [] if report.same else _by_rule(stored.bound, report.evidence.actual.unpack())
        notes = [(line, False) for line in texts]
        return compared({"case": case, "actual": actual, "of_run": texts}, report, html, notes)
    reports: dict[str, Report] = {}
    kernels: dict[str, Foreign] = {}
    runners: dict[str, Executor] = {}
    guards: dict[str, str] = {}
    for name in executors.split(","):
        runner = runners[name] = executor_named(name)
        bound = asked_of(runner, stored.bound)
        expected = stored.expected if bound is stored.bound else bound.call.expected(bound.inputs)
        result, outside = within(runner, bound)
        if outside:
            guards[name] = outside
        wrong = not np.array_equal(expected.raw, result.raw)
        seen = ran_again(runner, bound, result, fresh=False).told if wrong else None
        reports[name] = diff(
            expected, result, call=bound, others=raw_files(others), profile=profile, limit=limit,
            title=f"{stored.name} on {name}", geometry=launched(runner, bound.call), seen=seen,
        )  # fmt: skip
        if runner.foreign:
            kernels[name] = _foreign(runner, bound, result)
    telling = {name: Telling(name, runner) for name, runner in runners.items()}
    shown = next((name for name, r in reports.items() if not r.same), next(iter(reports)))
    write_html(html, reports[shown], telling[shown].texts(reports[shown]))
    return _result(case, reports, kernels, telling, guards)


def _by_rule(bound: BoundCase, actual: np.ndarray) -> list[str]:
    """Which known rule of requantization gives these values."""
    if not has_sums(bound.call):
        return []
    ways = {name: ruled(bound, name).call for name in RULES}
    names = [
        name for name, call in ways.items() if np.array_equal(call.expected(bound.inputs).unpack(), actual)
    ]
    return [f"these are the values of the rule {names[0]}: --rule {names[0]}"] if names else []


class Foreign(NamedTuple):
    """Where the kernels of an executor came from, and how what they wrote comes out.

    ``module`` is the SPIR-V module that wrote the output; empty for kernels that are none.
    """

    source: Source
    judged: Judged
    module: str
    stores: list[tuple[str, str]]

    @property
    def known(self) -> bool:
        """Whether a known defect of upstream explains every byte."""
        return self.source.whose == YOURS and self.judged.verdict == KNOWN_DEFECT


def _foreign(runner: Executor, bound: BoundCase, result: PackedBuffer) -> Foreign:
    source = runner.source(bound.call)
    spirv = source.whose == YOURS and runner.written(bound.call) is not None
    module = source.kernels[-1] if spirv else ""
    return Foreign(source, judged(bound, result, defects=source.forgiven), module, runner.stores(bound.call))


def _result(
    case: str,
    reports: dict[str, Report],
    kernels: dict[str, Foreign],
    telling: dict[str, Telling],
    guards: dict[str, str],
) -> Result:
    same = all(r.same or (name in kernels and kernels[name].known) for name, r in reports.items())
    same = same and not guards
    idle = [name for name, row in kernels.items() if row.source.whose != YOURS]
    content = {
        "case": case,
        "executors": {
            name: {**r.as_json(), "apart": telling[name].as_json(r)} for name, r in reports.items()
        },
        "same": same and not idle,
        "guards": guards,
    }
    if kernels:
        content["sources"] = {name: vars(row.source) for name, row in kernels.items()}
        content["judged"] = {name: row.judged.as_json() for name, row in kernels.items()}
    show = partial(_show, reports, kernels, telling, guards)
    return Result(content, show, partial(_status, same, idle, kernels))


def _show(
    reports: dict[str, Report],
    kernels: dict[str, Foreign],
    telling: dict[str, Telling],
    guards: dict[str, str],
) -> None:
    for name, report in reports.items():
        if name in guards:
            say(guards[name])
        print_report(report, telling[name])
        if name in kernels:
            row = kernels[name]
            say(f"{name}: {row.source}" + (f" ({row.source.why})" if row.source.why else ""))
            if not report.same:
                for line in written_by(row.module, row.stores):
                    say(f"{name}: {line}")
            if row.known:
                say(f"{name}: {row.judged}")


def _status(same: bool, idle: Sequence[str], kernels: Mapping[str, Foreign]) -> int:
    """The exit status. IncompleteError if nothing differs, but an executor's own kernels did not run the case."""
    for name in idle if same else ():
        Share.of(name, [kernels[name].source]).check()
    return SAME if same else DIFFERENT

"""Run a case on an executor, or compare a buffer from a device with what the case expects."""

from __future__ import annotations

import click

from refsim.bytediff import Report, diff
from refsim.bytediff.text import styled
from refsim.cli._buffers import (
    all_bytes_option,
    html_option,
    limit_option,
    print_lines,
    profile_option,
    raw_file,
    raw_files,
    show,
    write_html,
)
from refsim.cli._main import DIFFERENT, SAME
from refsim.cli._options import executors_option, json_option
from refsim.cli._output import print_json
from refsim.exec.factory import executor_named
from refsim.golden.named import open_case


@click.command("replay")
@click.argument("case")
@click.option(
    "--actual", metavar="FILE", help="Compare this raw buffer from a device instead of running the case."
)
@executors_option
@click.option(
    "--other",
    "others",
    multiple=True,
    metavar="FILE",
    help="Another raw buffer that may have been mixed up with the actual one.",
)
@profile_option
@all_bytes_option
@limit_option
@html_option
@json_option
def command(
    case: str,
    actual: str | None,
    executors: str,
    others: tuple[str, ...],
    profile: str | None,
    all_bytes: bool,
    limit: int,
    html: str | None,
    as_json: bool,
) -> int:
    """Replay CASE: a case directory, ZIPFILE!NAME, or OPERATOR/NUMBER of the golden corpus.

    Without --actual the executors run the case, and every byte is compared. With --actual, padding that a device
    may fill with anything is not compared.
    """
    stored = open_case(case)
    if actual is not None:
        report = diff(
            stored.expected,
            raw_file(actual),
            call=stored.bound,
            others=raw_files(others),
            profile=profile,
            device=not all_bytes,
            limit=limit,
            title=f"{stored.name} {stored.expected.desc}",
        )
        write_html(html, report)
        return show("replay", report, as_json, case=case, actual=actual)
    reports = {}
    for name in executors.split(","):
        result = executor_named(name).run_call(stored.bound.call, stored.bound.inputs)
        reports[name] = diff(
            stored.expected, result, call=stored.bound, others=raw_files(others), profile=profile, limit=limit,
            title=f"{stored.name} on {name}",
        )  # fmt: skip
    write_html(html, next((r for r in reports.values() if not r.same), next(iter(reports.values()))))
    return _show_all(case, reports, as_json)


def _show_all(case: str, reports: dict[str, Report], as_json: bool) -> int:
    same = all(report.same for report in reports.values())
    if as_json:
        content = {
            "case": case,
            "executors": {name: r.as_json() for name, r in reports.items()},
            "same": same,
        }
        print_json("replay", content)
    else:
        for report in reports.values():
            print_lines(styled(report))
    return SAME if same else DIFFERENT

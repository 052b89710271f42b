"""Say what a runtime will refuse in a file, or get wrong, without running it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from functools import partial

import click

from refsim.check.finding import Finding, Level
from refsim.check.run import check, counts, summary
from refsim.check.runtime import DEFAULT, runtime
from refsim.cli.kit.options import runtime_option
from refsim.cli.kit.text import print_table, say
from refsim.cli.kit.verb import Result, verb
from refsim.core.status import DIFFERENT, SAME

COLUMNS = ("level", "where", "operator", "rule", "what")


@verb("check", "model.pte")
@click.argument("file")
@runtime_option
def command(file: str, release: str) -> Result:
    """Check FILE, a .pte or a delegate blob, against a runtime of ExecuTorch. Nothing is run.

    The status is 1 if there is an error or a warning.
    """
    findings = check(file, release)
    found = [finding.as_json() for finding in findings]
    facts = {"file": file, "runtime": release, "measured": runtime(release).measured}
    status = DIFFERENT if any(finding.level is not Level.NOTE for finding in findings) else SAME
    content = facts | {"counts": counts(findings), "findings": found}
    return Result(content, partial(print_text, file, release, findings), status)


def print_text(file: str, release: str, findings: list[Finding]) -> None:
    described = runtime(release)
    say(f"{file}, against the runtime {described.name}: {described.title}")
    if not described.measured:
        say("nobody ran a file on this runtime: its sources were read, and all of this is probable")
    if findings:
        say()
        print_table(COLUMNS, [_cells(finding) for finding in findings], drop=("operator",))
        say()
        for line in dict.fromkeys(_advice(findings)):
            say(line)
    say(summary(findings))


def pointer(path: str, release: str = DEFAULT) -> str:
    """The line by which other verbs point to this one."""
    return f"check: {summary(check(path, release))} for the runtime {_text(release)}; see {_rerun(path, release)}"


def refusals(path: str, release: str = DEFAULT) -> list[str]:
    """The line of a verb that prepares a file for a device whose runtime will not load it; empty where it will."""
    errors = [finding for finding in check(path, release) if finding.level is Level.ERROR]
    if not errors:
        return []
    first = f"{errors[0].rule}, {errors[0].what}"
    return [f"the runtime {_text(release)} does not take it ({first}); see {_rerun(path, release)}"]


def _text(release: str) -> str:
    described = runtime(release)
    return described.name if described.measured else f"{described.name}, probably"


def _rerun(path: str, release: str) -> str:
    return shlex.join(["refsim", "check", path, *(["--runtime", release] if release != DEFAULT else [])])


def _cells(finding: Finding) -> tuple[object, ...]:
    operator = (finding.place.operator or "").removesuffix(".default")
    return (finding.level.value, finding.place, operator, finding.rule, finding.what)


def _advice(findings: Iterable[Finding]) -> Iterable[str]:
    """Why each rule is one, and the fix; the same of several findings once."""
    for finding in findings:
        yield f"why {finding.rule}: {finding.why}"
        yield f"fix {finding.rule}: {finding.fix}"

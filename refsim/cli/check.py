"""Say what a runtime will refuse in a file, or get wrong, without running it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import click

from refsim.check.finding import Finding, Level
from refsim.check.run import check, counts, summary
from refsim.check.runtime import runtime
from refsim.cli.kit.options import runtime_option
from refsim.cli.kit.verb import verb
from refsim.core.meanings import FileName
from refsim.core.result import Result, Table, Text
from refsim.core.status import DIFFERENT, SAME

COLUMNS = ("level", "where", "operator", "rule", "what")


@dataclass(frozen=True)
class CheckedFile(Result):
    """What a runtime refuses in a file, or gets wrong."""

    file: FileName
    runtime: Annotated[str, "The runtime: its name, or the file that describes it."]
    measured: Annotated[bool, "Whether files were run on it; otherwise all of this is probable."]
    counts: Annotated[Mapping[str, int], "Findings by level: error, warning, note."]
    findings: Annotated[Sequence[Finding], "What was found."]

    @property
    def status(self) -> int:
        return DIFFERENT if any(one.level is not Level.NOTE for one in self.findings) else SAME

    def text(self) -> Text:
        described = runtime(self.runtime)
        yield f"{self.file}, against the runtime {described.name}: {described.title}"
        if not described.measured:
            yield "nobody ran a file on this runtime: its sources were read, and all of this is probable"
        if self.findings:
            yield ""
            yield Table(COLUMNS, [_cells(finding) for finding in self.findings], drop=("operator",))
            yield ""
            yield from dict.fromkeys(_advice(self.findings))
        yield summary(self.findings)


@verb("check", "model.pte")
@click.argument("file")
@runtime_option
def command(file: str, release: str) -> CheckedFile:
    """Check FILE, a .pte or a delegate blob, against a runtime of ExecuTorch. Nothing is run.

    The status is 1 if there is an error or a warning.
    """
    findings = check(file, release)
    return CheckedFile(file, release, runtime(release).measured, counts(findings), findings)


def _cells(finding: Finding) -> tuple[object, ...]:
    operator = (finding.place.operator or "").removesuffix(".default")
    return (finding.level.value, finding.place, operator, finding.rule, finding.what)


def _advice(findings: Iterable[Finding]) -> Iterable[str]:
    """Why each rule is one, and the fix; the same of several findings once."""
    for finding in findings:
        yield f"why {finding.rule}: {finding.why}"
        yield f"fix {finding.rule}: {finding.fix}"

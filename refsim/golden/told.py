"""What verbs that compare buffers say: a report with what tells its causes apart, and what is wrong with kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from refsim.bytediff import Report
from refsim.bytediff.text import styled
from refsim.core import choices
from refsim.core.meanings import FileName
from refsim.core.plain import FLAT
from refsim.core.result import Command, Fitted, Result, Styled, Table, Text
from refsim.core.status import DIFFERENT, SAME
from refsim.exec.executor import Executor
from refsim.formats.module_folder import SUFFIX
from refsim.golden import apart
from refsim.golden.apart import COLUMNS, MOST_CAUSES, Apart, KernelCauses
from refsim.ops.base.registry import OPS

#: Lines of a module's source that are named: a kernel has few that store.
MOST_STORES = 5
STYLES: Mapping[str, Mapping[str, Any]] = {
    "same": {"fg": "green"},
    "different": {"fg": "red", "bold": True},
    "head": {"bold": True},
    "cause": {"fg": "magenta"},
    "": {},
}


@dataclass(frozen=True)
class ToldReport:
    """A report, and a case of the corpus that tells its causes apart. ``executor``: what wrote the buffer, if known."""

    report: Annotated[Report | None, "The buffer that is reported on; null if there is none."]
    apart: Annotated[
        Apart | None, "Causes that fit equally well, and the case that tells them apart; null without two."
    ]
    executor: str | None = None

    @classmethod
    def of(
        cls, report: Report | None, executor: str | None = None, runner: Executor | None = None
    ) -> ToldReport:
        """``runner``: the executor itself, which must be able to run that case."""
        runs = None if runner is None else runner.runs
        return cls(report, None if report is None else apart.apart(report, runs=runs), executor)

    def lines(self) -> list[str]:
        """What tells the causes apart."""
        return [] if self.apart is None else lines_of(self.apart, self.executor)

    def report_text(self) -> Text:
        if self.report is not None:
            yield from report_lines(self.report)

    def text(self) -> Text:
        yield from self.report_text()
        yield from self.lines()


@dataclass(frozen=True, kw_only=True)
class BufferCompared(Result):
    """A buffer that came from elsewhere. ``notes``: lines below the report."""

    actual: FileName
    of_run: Annotated[
        Sequence[str],
        "That it is of another value or of another run, as the .json beside it says; else empty.",
    ]
    told: Annotated[ToldReport, FLAT]
    notes: Sequence[str]

    @property
    def same(self) -> Annotated[bool, "Whether nothing differs that the profile does not allow."]:
        return self.told.report is not None and self.told.report.same

    @property
    def status(self) -> int:
        return SAME if self.same else DIFFERENT

    def text(self) -> Text:
        yield from self.told.text()
        yield from self.notes


def report_lines(report: Report) -> Text:
    """A report in its styles."""
    yield Fitted(
        lambda width: [Styled(line, STYLES[style]) for line, style in styled(report, width, choices.IN_JSON)]
    )


def lines_of(found: Apart, executor: str | None) -> list[str]:
    """What every verb says about causes that predict the same bytes."""
    where = "--actual FILE" if executor is None else f"-x {executor}"
    lines = list(found.lines(f"refsim replay {{case}} {where}"))
    if executor is None and found.case:
        op = OPS[found.case.partition("/")[0]]
        alone = op.serialized and not op.siblings
        inputs = "its inputs, and a program of it for ExecuTorch's runtime" if alone else "its inputs"
        command = f"refsim extract {found.case} -o DIR{' --pte words' if alone else ''}"
        lines.append(Command(f"FILE is what your kernel writes there; {inputs}: {command}"))
    return lines


def kernels_text(found: Sequence[KernelCauses]) -> Text:
    """A table of what is wrong with each kernel, and what tells equally good causes apart.

    Where one case alone is wrong, its report is the table.
    """
    for row in found:
        if row.wrong > 1:
            yield row.head
            yield Table(COLUMNS, row.rows, drop=("to tell apart",))
        if row.apart is not None:
            first, *others = lines_of(row.apart, row.executor or None)
            yield type(first)(f"{row.operator}: {first}")
            yield from (type(line)(f"  {line}") for line in others)


def kernel_texts(row: KernelCauses) -> list[str]:
    """The same about one kernel as lines for a page."""
    causes = [str(cause) for cause in row.causes[:MOST_CAUSES]] if row.sought > 1 else []
    return [*causes, *([] if row.apart is None else lines_of(row.apart, row.executor or None))]


def written_by(module: str, stores: Sequence[tuple[str, str]], suffix: str = SUFFIX) -> Iterator[str]:
    """The module that wrote an output, and the lines of its source that did, as lines of text."""
    if module:
        yield f"written by {module}{suffix}"
    for place, source in stores[:MOST_STORES]:
        yield f"stored at {place}" + (f": {source}" if source else "")
    if len(stores) > MOST_STORES:
        yield f"stored at {choices.more(len(stores) - MOST_STORES, choices.IN_JSON)}"

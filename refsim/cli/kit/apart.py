"""What is wrong with a kernel, and what tells causes apart: said alike by every verb, as text, page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from refsim.bytediff import Report
from refsim.cli.kit.text import print_table, say
from refsim.exec.executor import Executor
from refsim.golden import apart
from refsim.golden.apart import Apart
from refsim.golden.causes import COLUMNS, MOST_CAUSES, KernelCauses
from refsim.ops.base.registry import OPS


@dataclass
class Telling:
    """What tells causes apart, for buffers that one executor wrote, or that came from elsewhere.

    ``executor`` is its name, and ``runner`` itself; None for buffers from elsewhere. What was sought once is kept.
    """

    executor: str | None = None
    runner: Executor | None = None
    _found: dict[int, tuple[Report, Apart | None]] = field(default_factory=dict)

    def of(self, report: Report | None) -> Apart | None:
        """The rivals of a report, and a case that tells them apart; None without two."""
        if report is None:
            return None
        if id(report) not in self._found:
            runs = None if self.runner is None else self.runner.runs
            self._found[id(report)] = report, apart.apart(report, runs=runs)
        return self._found[id(report)][1]

    def as_json(self, report: Report | None) -> dict[str, Any] | None:
        found = self.of(report)
        return None if found is None else found.as_json()

    def lines(self, report: Report | None) -> list[tuple[str, bool]]:
        """(line, whether it ends in a command)."""
        found = self.of(report)
        return [] if found is None else lines_of(found, self.executor)

    def texts(self, report: Report | None) -> list[str]:
        """The lines for a page."""
        return [line for line, _ in self.lines(report)]

    def say(self, report: Report | None) -> None:
        say_lines(self.lines(report))


def lines_of(found: Apart, executor: str | None) -> list[tuple[str, bool]]:
    """(line, whether it ends in a command) about causes that predict the same bytes, for every verb."""
    lines = list(found.lines(rerun_of(executor)))
    if executor is None and found.case:
        op = OPS[found.case.partition("/")[0]]
        alone = op.serialized and not op.siblings
        inputs = "its inputs, and a program of it for ExecuTorch's runtime" if alone else "its inputs"
        command = f"refsim extract {found.case} -o DIR{' --pte words' if alone else ''}"
        lines.append((f"FILE is what your kernel writes there; {inputs}: {command}", True))
    return lines


def rerun_of(executor: str | None) -> str:
    """The command that tries a case of the corpus where a buffer came from; ``{case}`` stands for its name."""
    return "refsim replay {case} " + ("--actual FILE" if executor is None else f"-x {executor}")


def say_lines(lines: Sequence[tuple[str, bool]], indent: str = "") -> None:
    for line, command in lines:
        say(f"{indent}{line}", command=command)


def print_kernels(found: Sequence[KernelCauses]) -> None:
    """A table of what is wrong with each kernel, and what tells equally good causes apart.

    Where one case alone is wrong, its report is the table.
    """
    for row in found:
        if row.wrong > 1:
            say(row.head)
            print_table(COLUMNS, row.rows, drop=("to tell apart",))
        if row.apart is not None:
            (line, command), *rest = lines_of(row.apart, row.executor or None)
            say(f"{row.operator}: {line}", command=command)
            say_lines(rest, "  ")


def kernel_texts(row: KernelCauses) -> list[str]:
    """The same about one kernel as lines for a page."""
    causes = [str(cause) for cause in row.causes[:MOST_CAUSES]] if row.sought > 1 else []
    apart = [] if row.apart is None else lines_of(row.apart, row.executor or None)
    return [*causes, *(line for line, _ in apart)]

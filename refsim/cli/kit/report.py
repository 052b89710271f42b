"""The page of a report, for the verbs that compare buffers."""

from __future__ import annotations

from collections.abc import Sequence

from refsim.bytediff.html import render
from refsim.cli.kit.text import not_written, wrote
from refsim.core import atomic_write
from refsim.golden.told import ToldReport


def write_html(told: ToldReport, path: str | None, remarks: Sequence[str] = ()) -> None:
    """Write the page of a report, if it was asked for and there is something to show, and say which."""
    if path is not None and told.report is not None and told.report.differing:
        atomic_write.write(path, render(told.report, remarks=[*told.lines(), *remarks]).encode())
        wrote(path)
    elif path is not None:
        not_written(path, "there is no difference to show")

"""The table of seeded bugs holds: each edit fits its source, its causes and its module exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from modules import build
from modules.bugs import BUGS, Bug
from refsim.core.errors import FormatError
from refsim.ops.base.registry import OPS


def test_the_table_names_what_there_is() -> None:
    assert len({bug.id for bug in BUGS}) == len(BUGS) >= 28
    for bug in BUGS:
        assert bug.module in build.MODULES and bug.op in OPS and bug.causes, bug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_bug_fits_its_source(bug: Bug, tmp_path: Path) -> None:
    changed = (bug.sources(tmp_path) / bug.file).read_text()
    assert changed != (build.SOURCES / bug.file).read_text()


def test_text_that_is_not_there_once_is_refused(tmp_path: Path) -> None:
    bug = Bug("no-bug", "q8ta_clone", "q8ta_clone.comp", "no such text", "", (), "q8ta_clone")
    with pytest.raises(FormatError, match="not in the source once"):
        bug.sources(tmp_path)

"""The table of seeded bugs holds: each edit fits its source, and its module still compiles, to something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from modules import build
from modules.bugs import BUGS, Bug
from modules.test_modules_build import needs_tools
from refsim.bytediff.hypotheses import ALL
from refsim.ops.base.registry import OPS


def test_the_table_names_what_there_is() -> None:
    assert len({bug.id for bug in BUGS}) == len(BUGS) >= 28
    causes = {hypothesis.name for hypothesis in ALL}
    for bug in BUGS:
        assert bug.module in build.MODULES and bug.op in OPS and set(bug.causes) <= causes, bug


@needs_tools
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.id)
def test_a_bug_compiles_to_another_module(bug: Bug, tmp_path: Path) -> None:
    assert bug.compiled(tmp_path) != (build.BINARIES / f"{bug.module}.spv").read_bytes()

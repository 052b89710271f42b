"""The committed modules are those of the sources, and every source is one of theirs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from modules import build
from modules.bugs import BUGS, Bug
from refsim.core.errors import FormatError
from refsim.ops.base.registry import OPS
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Op
from refsim_gpu import spirv

needs_tools = pytest.mark.skipif(
    not all(map(shutil.which, ("glslc", "spirv-opt", "spirv-val"))),
    reason="glslc or spirv-tools is not installed: apt-get install glslc spirv-tools",
)


def test_every_module_is_committed_and_every_source_is_used() -> None:
    assert {path.stem for path in build.BINARIES.iterdir()} == set(build.MODULES)
    assert {path.stem for path in build.SOURCES.glob("*.comp")} == {m.source for m in build.MODULES.values()}


@pytest.mark.parametrize("name", build.MODULES)
def test_a_module_leaves_the_driver_nothing_to_fuse_and_carries_no_names(name: str) -> None:
    code = (build.BINARIES / f"{name}.spv").read_bytes()
    assert spirv.contractable(spirv.check(code, name)) == []
    kinds = {row.op for row in Module.parse(code, name).instructions()}
    assert not kinds & {Op.SOURCE, Op.NAME, Op.MEMBER_NAME, Op.LINE}


@pytest.mark.long
@needs_tools
def test_committed_modules_are_up_to_date() -> None:
    assert build.build(check=True) == [], "run: python tests/modules/build.py"


@needs_tools
def test_a_debug_build_keeps_names_and_lines(tmp_path: Path) -> None:
    code = build.compiled(build.MODULES["q8ta_relu_buffer"], tmp_path, build.DEBUG)
    assert {Op.NAME, Op.LINE} <= {row.op for row in Module.parse(code, "debug build").instructions()}


# --- the table of seeded bugs ---


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

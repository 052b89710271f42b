"""The committed modules are those of the sources, and every source is one of theirs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from modules import build
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

"""The committed includes and SPIR-V are what operators and sources say; valid SPIR-V that no driver can fuse."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from examples import BINARY, UNARY

from refsim.core.errors import MissingDependencyError
from refsim.ops.base.registry import OPS
from refsim.spirv.module import Module, Section
from refsim.spirv.opcodes import Decoration
from refsim_gpu import build_push, build_shaders, spirv

BINARIES = sorted(path for path in (build_shaders.SHADERS / "spirv").glob("*.spv"))
COOP = sorted((build_shaders.SHADERS / "spirv" / "coop").glob("*.spv"))
SOURCES = sorted(
    path
    for ending in ("comp", "glsl")
    for path in build_shaders.SHADERS.rglob(f"*.{ending}")
    if build_push.FOLDER not in path.parents
)
GLSLC = "2023.2"  # other versions compile to other words with the same meaning


def tool_version() -> str:
    done = subprocess.run(["glslc", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"shaderc v?(\d+\.\d+)", done.stdout)
    return found.group(1) if found else "unknown"


def test_every_kernel_has_a_shader() -> None:
    kernels = {name for name, op in OPS.items() if op.kernel is not None}
    assert kernels == {path.name.split(".")[0] for path in BINARIES}


def test_the_includes_are_what_the_operators_say() -> None:
    assert build_push.build(check=True) == [], "fix: python -m refsim_gpu.build_push"


def test_a_stale_include_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edited, missing, or of a kernel that is gone; writing mends all three."""
    shutil.copytree(build_push.FOLDER, tmp_path / "include" / "push")
    monkeypatch.setattr(build_push, "SHADERS", tmp_path)
    monkeypatch.setattr(build_push, "FOLDER", tmp_path / "include" / "push")
    relu, add, gone = (build_push.FOLDER / f"{name}.glsl" for name in (UNARY.name, BINARY.name, "gone"))
    relu.write_text(relu.read_text().replace("ZP = 19", "ZP = 20"))
    add.unlink()
    gone.write_text("")
    stale = [f"include/push/{name}.glsl" for name in ("gone", BINARY.name, UNARY.name)]
    assert build_push.build(check=True) == stale
    assert build_push.build(check=False) == stale
    assert build_push.build(check=True) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_no_source_says_where_words_are(path: Path) -> None:
    """Offsets, and ids of a kernel's own constants, come from include/push alone."""
    text = path.read_text()
    subscripts = re.findall(r"\bpush\[([^]]*)\]", text) + re.findall(r"\bpush_float\(([^)]*)\)", text)
    assert [each for each in subscripts if re.search(r"(?<![A-Za-z_])\d", each)] == []
    assert [number for number in re.findall(r"constant_id = (\d+)", text) if int(number) >= 6] == []
    included = re.findall(r'#include "(include/push/\w+\.glsl)"', text)
    named = {
        name
        for each in included
        for name in re.findall(r"const \w+ (\w+) =", (build_shaders.SHADERS / each).read_text())
    }
    declared = re.findall(r"^(?:layout.*)?const \w+ (.*);", text, re.MULTILINE)
    here = {name for each in declared for name in re.findall(r"(\w+) = ", each)}
    assert here & named <= {f"{what}_{axis}" for what in ("LOCAL", "TILE") for axis in "XYZ"}


def test_a_kernel_includes_its_own_words() -> None:
    for name, op in OPS.items():
        if op.kernel is not None:
            source = (build_shaders.SHADERS / f"{name}.comp").read_text()
            assert re.findall(r'include/push/(\w+)\.glsl"', source) == [name]


@pytest.mark.parametrize("path", [*BINARIES, *COOP], ids=lambda path: path.stem)
def test_nothing_can_be_fused(path: Path) -> None:
    assert spirv.contractable(path.read_bytes()) == []


def test_pin_rounding_marks_what_a_compiler_left_loose() -> None:
    code = (build_shaders.SHADERS / "spirv" / "q8ta_add.spv").read_bytes()
    module = Module.parse(code, "q8ta_add")
    marks = module.sections[Section.ANNOTATION]
    marks[:] = [row for row in marks if row.args[1] != Decoration.NO_CONTRACTION]
    bare = module.to_bytes()
    assert spirv.contractable(bare)
    assert spirv.contractable(spirv.pin_rounding(bare)) == []


def test_the_binaries_are_what_the_sources_build_to() -> None:
    if shutil.which("glslc") is None or shutil.which("spirv-opt") is None:
        pytest.skip("glslc and spirv-opt are not installed: apt-get install glslc spirv-tools")
    if tool_version() != GLSLC:
        pytest.skip(f"glslc is {tool_version()}, the binaries are by {GLSLC}")
    assert build_shaders.build(check=True, rows=build_shaders.variants()) == []


def test_the_binaries_on_cooperative_matrices_are_what_the_sources_build_to() -> None:
    try:
        build_shaders.coop_tools()
    except MissingDependencyError as error:
        pytest.skip(str(error))
    if shutil.which("glslc") is None or tool_version() != GLSLC:
        pytest.skip(f"the emulated builds are by glslc {GLSLC}: apt-get install glslc spirv-tools")
    assert build_shaders.build(check=True, rows=build_shaders.coop_variants()) == []


def test_every_binary_on_cooperative_matrices_is_built_from_a_source() -> None:
    """And every tile of the rules has one."""
    wanted = {binary for _, binary, _ in build_shaders.coop_variants()}
    assert wanted == set((build_shaders.SHADERS / "spirv" / "coop").glob("*.spv"))


def test_numbers_of_ids_do_not_matter_and_all_else_does(tmp_path: Path) -> None:
    if shutil.which("spirv-opt") is None:
        pytest.skip("spirv-opt is not installed: apt-get install spirv-tools")
    clone, relu = (
        (build_shaders.SHADERS / "spirv" / f"q8ta_{name}.spv").read_bytes() for name in ("clone", "relu")
    )
    compact = build_shaders.compact(relu, tmp_path)
    assert compact != relu
    assert build_shaders.same(relu, compact, tmp_path)
    assert not build_shaders.same(relu, clone, tmp_path)

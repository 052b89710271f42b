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
    kinds = {text.partition("(")[2].rstrip(")") for text in spirv.contractable(bare)}
    assert {"OpFAdd", "OpFMul", "OpVectorTimesScalar"} <= kinds
    assert spirv.contractable(spirv.pin_rounding(bare)) == []


@pytest.mark.parametrize("rows", [pytest.param("variants", marks=pytest.mark.long), "coop_variants"])
def test_the_binaries_are_what_the_sources_build_to(rows: str) -> None:
    try:
        build_shaders.coop_tools() if rows == "coop_variants" else None
    except MissingDependencyError as error:
        pytest.skip(str(error))
    if shutil.which("glslc") is None or shutil.which("spirv-opt") is None or tool_version() != GLSLC:
        pytest.skip(f"the binaries are by glslc {GLSLC}: apt-get install glslc spirv-tools")
    assert list(build_shaders.build(check=True, rows=getattr(build_shaders, rows)())) == []


def test_tools_of_the_packages_for_matrices_compile_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stand before Debian's where the environment that holds them is active."""
    newer, prefix, other = tmp_path / "bin", tmp_path / "cmeel.prefix" / "bin", tmp_path / "usr"
    for folder, text in (
        (newer, "#!/usr/bin/python3\nfrom cmeel.run import cmeel_run\ncmeel_run()"),
        (prefix, "#!/bin/sh\nexit 1"),
        (other, "#!/bin/sh\necho right > $1"),
    ):
        folder.mkdir(parents=True)
        (folder / "spirv-opt").write_text(text)
        (folder / "spirv-opt").chmod(0o755)
    monkeypatch.setenv("PATH", f"{newer}:{prefix}:{other}")
    build_shaders.run_tool("here", "spirv-opt", str(tmp_path / "out"))
    assert (tmp_path / "out").read_text() == "right\n"
    monkeypatch.setenv("PATH", f"{newer}:{prefix}")
    with pytest.raises(MissingDependencyError, match="spirv-opt: not installed; need apt-get install"):
        build_shaders.run_tool("here", "spirv-opt")


def test_what_needs_other_compilers_is_built_last_and_all_else_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compiled(source: Path, options: tuple[str, ...], folder: Path) -> bytes:
        if build_shaders.needs_matrices(source, options):
            raise MissingDependencyError("glslang", "no compiler of cooperative matrices")
        return b"new"

    rows = build_shaders.coop_variants() + build_shaders.variants()
    plain = [
        str(row[1].relative_to(build_shaders.SHADERS))
        for row in rows
        if not build_shaders.needs_matrices(row[0], row[2])
    ]
    monkeypatch.setattr(build_shaders, "compile_one", compiled)
    monkeypatch.setattr(build_shaders, "renewed", lambda *_: True)
    status = build_shaders.report("build", lambda check: build_shaders.build(check, rows), ["--check"])
    said = capsys.readouterr()
    assert status == 3 and said.err.startswith("build: glslang: no compiler of cooperative matrices")
    assert said.out.splitlines() == [f"stale {name}" for name in plain] and 0 < len(plain) < len(rows)


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

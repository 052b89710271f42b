"""The committed SPIR-V is what the sources build to, valid, and cannot be fused by a driver."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from refsim.ops.base.registry import OPS
from refsim_gpu import build_shaders, spirv

BINARIES = sorted(path for path in (build_shaders.SHADERS / "spirv").glob("*.spv"))
GLSLC = "2023.2"  # other versions compile to other words with the same meaning


def tool_version() -> str:
    done = subprocess.run(["glslc", "--version"], capture_output=True, text=True, check=True)
    found = re.search(r"shaderc v?(\d+\.\d+)", done.stdout)
    return found.group(1) if found else "unknown"


def test_every_kernel_has_a_shader() -> None:
    kernels = {name for name, op in OPS.items() if op.kernel is not None}
    assert kernels == {path.name.split(".")[0] for path in BINARIES}


@pytest.mark.parametrize("path", BINARIES, ids=lambda path: path.stem)
def test_nothing_can_be_fused(path: object) -> None:
    assert spirv.contractable(path.read_bytes()) == []  # type: ignore[attr-defined]


def test_pin_rounding_marks_what_a_compiler_left_loose() -> None:
    code = (build_shaders.SHADERS / "spirv" / "q8ta_add.spv").read_bytes()
    rows = [row for row in spirv.instructions(code) if not (row[0] == spirv.OP_DECORATE and row[2] == 42)]
    words = [word for row in rows for word in (len(row) << 16 | row[0], *row[1:])]
    bare = code[: spirv.HEADER_BYTES] + b"".join(word.to_bytes(4, "little") for word in words)
    assert spirv.contractable(bare)
    assert spirv.contractable(spirv.pin_rounding(bare)) == []


def test_the_binaries_are_what_the_sources_build_to() -> None:
    if shutil.which("glslc") is None or shutil.which("spirv-opt") is None:
        pytest.skip("glslc and spirv-opt are not installed: apt-get install glslc spirv-tools")
    if tool_version() != GLSLC:
        pytest.skip(f"glslc is {tool_version()}, the binaries are by {GLSLC}")
    assert build_shaders.build(check=True) == []

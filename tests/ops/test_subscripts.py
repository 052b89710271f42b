"""No shader has a constant subscript outside of a vector, a matrix or an array.

Devices forgive some, and then no byte shows it.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
import specialized
import subscripts
from specialized import Specialized
from spirv.glsl import assembled, compiled

from refsim.spirv.module import Module
from refsim_gpu import build_shaders

MODULES = {
    path.relative_to(build_shaders.SHADERS / "spirv").with_suffix("").as_posix(): path
    for path in sorted((build_shaders.SHADERS / "spirv").rglob("*.spv"))
}


@cache
def constants() -> dict[str, list[dict[int, int]]]:
    """Build -> the specialization constants of its launches."""
    found: dict[str, list[dict[int, int]]] = {}
    for name, launch in specialized.every():
        found.setdefault(name, []).append(dict(enumerate(specialized.words(launch))))
    return found


@pytest.mark.parametrize("name", MODULES)
def test_no_subscript_is_outside(name: str) -> None:
    """With the default constants, and with those of every launch that is written down."""
    module = Module.parse(MODULES[name].read_bytes(), name)
    for spec in ({}, *constants().get(name, ())):
        found = next(subscripts.outside(Specialized(module, spec)), None)
        assert found is None, subscripts.told(name, found, subscripts.source_of(name, found, spec))


def test_launches_and_sources_are_of_these_modules() -> None:
    assert set(constants()) <= set(MODULES) == set(subscripts.sources())


#: A shader whose subscript ``at`` is a constant only after optimization: the compiler's front end lets it pass.
GLSL = """
layout(constant_id = 0) const int N = 4;
layout(local_size_x = 1) in;
layout(set = 0, binding = 0) buffer Out {{ ivec4 t_out[]; }};
layout(set = 0, binding = 1) buffer Fixed {{ mat2x3 t_matrix; }};
shared int tile[N * 2];
void main() {{
  int at = {at}, way = int(gl_WorkGroupID.x);
  {statement}
}}
"""
#: Statement, elements of what it goes into (None: as many as memory has), and what is said of it.
STATEMENTS = (
    ("t_out[way][at] = 1;", 4, "write", "a vector of 4 components", "OpAccessChain"),
    ("t_out[0].x = (t_out[way] + 1)[at];", 4, "read", "a vector of 4 components", "OpVectorExtractDynamic"),
    ("t_out[0].x = t_out[at].y;", None, "read", "an array", "OpAccessChain"),
    ("t_matrix[at].x = 1.0;", 2, "write", "a matrix of 2 columns", "OpAccessChain"),
    ("tile[at] = way; t_out[0].x = tile[way];", 8, "write", "an array of 8 elements", "OpAccessChain"),
    (
        "int own[3] = int[3](way, 2, 3); own[at] = 4; t_out[0].x = own[way];",
        3,
        "write",
        "an array of 3 elements",
        "OpAccessChain",
    ),
)


def _told(code: bytes, spec: dict[int, int]) -> list[str]:
    types = Specialized(Module.parse(code, "small"), spec)
    return [subscripts.told("small", each, "small.comp") for each in subscripts.outside(types)]


@pytest.mark.parametrize(("statement", "size", "what", "of", "instruction"), STATEMENTS)
def test_what_is_outside_is_told(
    statement: str, size: int | None, what: str, of: str, instruction: str
) -> None:
    """Below the first element and behind the last one; neither the first nor the last."""
    for at in (-1, 0, *(() if size is None else (size - 1, size))):
        code = compiled(GLSL.format(at=at, statement=statement), "O")
        said = f"{what} out of bounds: small: subscript {at} of {of} in small.comp ({instruction})"
        assert _told(code, {}) == ([said] if at in (-1, size) else [])


def test_an_array_is_as_long_as_a_launch_makes_it() -> None:
    code = compiled(GLSL.format(at=9, statement="tile[at] = way; t_out[0].x = tile[way];"), "O")
    assert len(_told(code, {})) == 1 and not _told(code, {0: 5})
    assert "subscript 9 of an array of 6 elements" in _told(code, {0: 3})[0]


@pytest.mark.parametrize(("at", "wrong"), [(-1, True), (0, False), (3, False), (4, True)])
def test_a_component_that_is_inserted(at: int, wrong: bool) -> None:
    """No compiler writes this of GLSL, but spirv-opt may."""
    module = assembled(
        f"""OpCapability Shader
OpMemoryModel Logical GLSL450
%void = OpTypeVoid
%main_t = OpTypeFunction %void
%int = OpTypeInt 32 1
%ivec4 = OpTypeVector %int 4
%at = OpConstant %int {at}
%none = OpConstantNull %ivec4
%main = OpFunction %void None %main_t
%label = OpLabel
%made = OpVectorInsertDynamic %ivec4 %none %at %at
OpReturn
OpFunctionEnd
"""
    )
    of = f"subscript {at} of a vector of 4 components in small.comp (OpVectorInsertDynamic)"
    assert _told(module.to_bytes(), {}) == ([f"write out of bounds: small: {of}"] if wrong else [])


#: A shader of two files, of which the included one has the subscript: only the loop, unrolled, makes it a constant.
SHADER = """#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_control_flow_attributes : require
layout(local_size_x = 1) in;
layout(set = 0, binding = 0) buffer Out { ivec4 t_out[]; };
#include "include/qmath.glsl"
void main() { clear(); }
"""
INCLUDED = """void clear() {
    ivec4 tile = t_out[0];
    [[unroll]] for (int u = FIRST; u < 4; ++u) {
        tile[u] &= 255;
    }
    t_out[1] = tile;
}
"""


@pytest.mark.parametrize("first", [0, -1])
def test_the_source_line_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """Built as kernels are; without a compiler the shader alone is told."""
    if shutil.which("glslc") is None or shutil.which("spirv-opt") is None:
        pytest.skip("glslc and spirv-opt are not installed: apt-get install glslc spirv-tools")
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "qmath.glsl").write_text(INCLUDED)
    source, options = tmp_path / "small.comp", (f"-DFIRST=({first})",)
    source.write_text(SHADER)
    monkeypatch.setattr(build_shaders, "SHADERS", tmp_path)
    monkeypatch.setattr(subscripts, "sources", lambda: {"small": (source, source, options)})
    code = build_shaders.compile_one(source, options, tmp_path)
    found = list(subscripts.outside(Specialized(Module.parse(code, "small"), {})))
    assert bool(found) == (first < 0)
    for each in found:
        said = subscripts.told("small", each, subscripts.source_of("small", each, {}))
        assert "subscript -1 of a vector of 4 components in shaders/include/qmath.glsl:4 (" in said
    monkeypatch.setenv("PATH", "")
    for each in found:
        assert subscripts.source_of("small", each, {}) == "shaders/small.comp"

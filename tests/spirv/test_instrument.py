"""Instrumented modules are valid, keep their interface, and say what they could not watch."""

from __future__ import annotations

from pathlib import Path

import pytest
from spirv.glsl import BUILDS, EVERYTHING, assembled, compiled, validate
from spirv.test_rewrite import COMMITTED, CONVENTIONAL, ODD

from refsim.core.errors import UnsupportedError
from refsim.spirv.instrument import PARAMETERS, Instrumented, RunChoice, instrumented
from refsim.spirv.module import Module
from refsim.spirv.reflect import interface
from refsim.spirv.rewrite import for_kompute

FIRST = 40  # a binding that no kernel here has


def made_of(code: bytes, guard: int = 16) -> tuple[Module, Instrumented]:
    whole = for_kompute(Module.parse(code, "kernel"), 12, guard)
    module = Module.parse(whole.code, "kernel")
    made = instrumented(module, whole.bindings, FIRST)
    validate(made.code)
    assert module.to_bytes() == whole.code, "the module that was given stays as it is"
    return module, made


@pytest.mark.few(12)
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("source", [EVERYTHING, *ODD.values()], ids=["everything", *ODD])
def test_every_build_stays_valid(source: str, build: str) -> None:
    before, made = made_of(compiled(source, build), 48)
    after = interface(Module.parse(made.code, "kernel"))
    old = interface(before)
    assert (after.push, after.spec_ids, after.local_size) == (old.push, old.spec_ids, old.local_size)
    numbers = [row.number for row in after.bindings if row.number >= FIRST]
    assert numbers == list(range(FIRST, FIRST + 1 + len(made.records)))
    assert made.parameters == FIRST and sorted(made.records.values()) == numbers[1:]


@pytest.mark.few(20)
@pytest.mark.parametrize("path", [*CONVENTIONAL, *COMMITTED], ids=lambda path: path.stem)
def test_kernels_stay_valid(path: Path) -> None:
    _, made = made_of(path.read_bytes())
    if path in CONVENTIONAL:
        assert list(made.records) == [0] and not made.uncounted


def test_shared_memory_and_undefined_values_are_seen() -> None:
    source = (
        "layout(local_size_x = 8) in; layout(binding = 0) buffer B { int b[]; }; shared ivec4 s[8];"
        "void main() { uint i = gl_LocalInvocationIndex; s[i] = ivec4(i); barrier(); int sum;"
        "for (int k = 0; k < 3; k++) { sum += s[k].x; } b[i] = sum; }"
    )
    for build in ("O0", "O"):
        _, made = made_of(compiled(source, build))
        assert made.shared and made.variables and not made.subgroups


@pytest.mark.parametrize("build", ["O0", "O"])
def test_what_is_not_counted_is_said(build: str) -> None:
    source = (
        "struct S { ivec4 a[2]; mat2 m; }; layout(binding = 0) buffer B { S b[]; };"
        "void main() { b[1].a[0].y = 3; b[gl_WorkGroupID.x].m[1][0] = 2.0; b[2].a[1] = ivec4(1); }"
    )
    _, made = made_of(compiled(source, build), 48)
    assert list(made.records) == [0]
    assert made.uncounted == ("binding 0: a store of float",), "a matrix has strides of its own"


def test_places_in_subgroups_are_seen() -> None:
    source = (
        "#extension GL_KHR_shader_subgroup_basic : require\n"
        "layout(local_size_x = 8) in; layout(binding = 0) buffer B { uint b[]; };"
        "void main() { b[gl_GlobalInvocationID.x] = gl_SubgroupInvocationID; }"
    )
    _, made = made_of(compiled(source, "O"))
    assert made.subgroups


def test_a_built_in_number_that_is_used_oddly_is_refused() -> None:
    """A pointer to it is given to a function: allowed by SPIR-V, made by no compiler of GLSL."""
    module = assembled(POINTER)
    with pytest.raises(UnsupportedError, match="used in an unknown way; got OpFunctionCall"):
        instrumented(module, interface(module).bindings, FIRST)


POINTER = """
OpCapability Shader
OpMemoryModel Logical GLSL450
OpEntryPoint GLCompute %main "main" %id
OpExecutionMode %main LocalSize 1 1 1
OpDecorate %id BuiltIn WorkgroupId
%void = OpTypeVoid
%uint = OpTypeInt 32 0
%uint3 = OpTypeVector %uint 3
%pointer = OpTypePointer Input %uint3
%fn = OpTypeFunction %void
%taking = OpTypeFunction %void %pointer
%id = OpVariable %pointer Input
%other = OpFunction %void None %taking
%given = OpFunctionParameter %pointer
%first = OpLabel
OpReturn
OpFunctionEnd
%main = OpFunction %void None %fn
%label = OpLabel
%called = OpFunctionCall %void %other %id
OpReturn
OpFunctionEnd
"""


def test_the_words_of_a_choice() -> None:
    words = RunChoice(True, 2, False, 3, 5, 6).words((1, 2, 3), (7, 8, 9))
    assert words == [1, 2, 0, 3, 1, 2, 3, 7, 8, 9, 5, 6] and len(words) == PARAMETERS

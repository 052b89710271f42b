"""What a module asks of its caller, the same from every build of one source."""

from __future__ import annotations

import pytest
from spirv.glsl import BUILDS, EVERYTHING, assembled, compiled

from refsim.core.errors import FormatError, UnsupportedError
from refsim.spirv.module import Module
from refsim.spirv.reflect import interface

NAMED = {"O0", "g", "spv10", "spv15", "spv16"}
KINDS = {
    0: ("storage buffer", "int", False, True, 4, 0),
    1: ("storage buffer", "ivec4", True, False, 16, 0),
    2: ("sampled image 2d", "ivec4", True, False, 0, 0),
    3: ("sampled image 3d", "vec4", True, False, 0, 0),
    4: ("storage image 3d", "vec4", False, True, 0, 0),
    5: ("uniform block", "", True, False, 0, 44),
    6: ("storage image 2d", "ivec4", True, True, 0, 0),
}
NAMES = ["", "", "t_weight", "t_float", "t_image", "meta", "t_plane"]


@pytest.mark.parametrize("build", BUILDS)
def test_every_descriptor_kind_from_every_build(build: str) -> None:
    found = interface(Module.parse(compiled(EVERYTHING, build), build))
    seen = {
        row.number: (row.kind, row.element, row.readable, row.writable, row.stride, row.nbytes)
        for row in found.bindings
    }
    assert seen == KINDS
    assert [(row.type, row.offset, row.nbytes, row.stride) for row in found.bindings[5].members] == [
        ("ivec4[2]", 0, 32, 16),
        ("uvec2", 32, 8, 0),
        ("int", 40, 4, 0),
    ]
    assert (found.push_bytes, [row.type for row in found.push]) == (8, ["float", "int"])
    assert found.entry_point == "main"
    if build in NAMED:
        names = [row.name for row in found.bindings]
        assert names[2:] == NAMES[2:] and names[0] in ("Out", "")
        assert [row.name for row in found.bindings[5].members] == ["sizes", "count", "packed_dim"]
        assert [row.name for row in found.push] == ["scale", "zp"]


@pytest.mark.parametrize("build", BUILDS)
def test_specialization_constants_and_the_workgroup_they_make(build: str) -> None:
    found = interface(Module.parse(compiled(EVERYTHING, build), build))
    kept = {row.id: (row.type, row.default) for row in found.spec if row.id > 2}
    assert kept == {3: ("int", 2**32 - 7), 4: ("bool", 1), 5: ("float", 0x3F000000)}
    assert found.spec_ids[5] == 0x3F000000
    assert found.local_size_ids == (0, 1, 2)
    assert found.local({0: 8, 2: 3}) == (8, 1, 3)


HEAD = """
OpCapability Shader
OpExtension "SPV_KHR_storage_buffer_storage_class"
OpMemoryModel Logical GLSL450
OpEntryPoint GLCompute %main "go"
OpExecutionMode %main LocalSize 8 4 2
"""
BODY = """
%void = OpTypeVoid
%fn = OpTypeFunction %void
%int = OpTypeInt 32 1
%array = OpTypeRuntimeArray %int
%block = OpTypeStruct %int %array
%pointer = OpTypePointer StorageBuffer %block
%data = OpVariable %pointer StorageBuffer
%main = OpFunction %void None %fn
%label = OpLabel
OpReturn
OpFunctionEnd
"""
DECORATIONS = """
OpDecorate %array ArrayStride 4
OpMemberDecorate %block 0 Offset 0
OpMemberDecorate %block 1 Offset 16
OpDecorate %block Block
OpDecorate %data DescriptorSet 0
OpDecorate %data Binding 3
"""


def test_a_block_may_have_members_in_front_of_its_array() -> None:
    found = interface(assembled(HEAD + DECORATIONS + BODY))
    (row,) = found.bindings
    assert (row.number, row.kind, row.element, row.stride, row.nbytes, row.name) == (
        3,
        "storage buffer",
        "int",
        4,
        16,
        "",
    )
    assert (found.local_size, found.local_size_ids) == ((8, 4, 2), (None, None, None))
    assert found.entry_point == "go" and found.extensions == ("SPV_KHR_storage_buffer_storage_class",)
    assert found.push_bytes == 0 and found.spec_ids == {}


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("OpDecorate %data Binding 3", "", FormatError, "has no binding"),
        ("DescriptorSet 0", "DescriptorSet 2", UnsupportedError, "another descriptor set; got 2"),
        ("OpExecutionMode %main LocalSize 8 4 2", "", FormatError, "no workgroup size"),
        ("GLCompute", "Fragment", UnsupportedError, "not a compute shader"),
        ('OpEntryPoint GLCompute %main "go"', "", UnsupportedError, "entry points; got 0"),
    ],
)
def test_what_is_not_described_is_named(old: str, new: str, error: type, message: str) -> None:
    text = HEAD + DECORATIONS + BODY
    assert old in text
    with pytest.raises(error, match=message):
        interface(assembled(text.replace(old, new)))


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        (
            "layout(binding = 1) uniform isampler2D t[3];",
            "an array of descriptors; got combined|an array of desc",
        ),
        ("layout(binding = 1) uniform isampler2DArray t;", "another kind; got dim 1, arrayed"),
        ("layout(binding = 1) uniform isamplerBuffer t;", "another kind; got dim 5"),
        ("layout(binding = 1) uniform sampler t;", "is no image; got sampler"),
    ],
)
def test_other_descriptors_are_refused(declaration: str, message: str) -> None:
    source = "layout(binding = 0) buffer B { int b[]; };\n" + declaration + "void main() { b[0] = 1; }"
    with pytest.raises(UnsupportedError, match=message):
        interface(Module.parse(compiled(source), "kernel"))

"""Which source line an instruction came from, and which lines store to which binding."""

from __future__ import annotations

import pytest
from spirv.glsl import BUILDS, assembled, compiled

from refsim.core.errors import FormatError
from refsim.spirv.lines import Lines, SourceLine
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Op
from refsim.spirv.reflect import interface

SOURCE = """
layout(local_size_x = 1) in;
layout(binding = 0) buffer Out { int t_out[]; };
layout(binding = 1, rgba32i) uniform iimage2D t_image;
layout(binding = 2) buffer Count { uint n; uint seen[]; };
layout(binding = 3) readonly buffer In { int t_in[]; };
shared int part[4];

void put(int at, int value) {
  t_out[at] = value;  // twice: once for each call
}

void main() {
  part[0] = t_in[0];
  barrier();
  put(0, part[0]);
  atomicAdd(seen[1], 1u);
  put(1, t_in[1]);
  if (t_in[2] > 0) {
    imageStore(t_image, ivec2(0), ivec4(t_in[3]));
    n = 3;
  }
  t_out[2] =
    t_in[4];
}
"""
STORES = {
    0: {11, 25},
    1: {21},
    2: {18, 22},
}  # binding -> lines, the #version line included; a statement's last
WITH_LINES = {"g", "spv16"}


def lines(source: str, build: str) -> Lines:
    return Lines(Module.parse(compiled(source, build), build))


@pytest.mark.parametrize("build", BUILDS)
def test_the_lines_that_store_to_a_binding(build: str) -> None:
    found = lines(SOURCE, build)
    assert set(found.stores()) == set(STORES)
    for binding, want in STORES.items():
        seen = {place.line for place in found.store_places(binding)}
        assert seen == (want if build in WITH_LINES else set()), binding
    assert found.store_places(3) == found.store_places(9) == ()
    assert {store.instruction for store in found.stores()[2]} == {"OpStore", "OpAtomicIAdd"}
    for store in found.stores()[1]:
        row = found.module.functions[store.function][store.row]
        assert (row.op, row.name) == (Op.IMAGE_WRITE, store.instruction)


@pytest.mark.parametrize("build", BUILDS)
def test_the_line_that_declares_a_binding(build: str) -> None:
    """By the name of the variable, or of a block's last member. A statement with both is no declaration."""
    found = lines(SOURCE, build)
    declared = [found.declared(one.variable, one.number) for one in interface(found.module).bindings]
    want = [4, 5, 6, 7]  # the #version line included
    assert [one and one.line for one in declared] == (want if build in WITH_LINES else [None] * 4)
    first = interface(found.module).bindings[0]
    assert found.declared(first.variable, 2) is None


def test_a_module_without_debug_information_has_no_lines() -> None:
    found = lines(SOURCE, "O")
    assert not found.places and found.text(SourceLine("kernel.comp", 3)) == ""
    assert all(store.place is None for store in found.stores()[0])


def test_a_line_can_be_quoted() -> None:
    found = lines(SOURCE, "g")
    (place,) = found.store_places(1)
    assert str(place) == "kernel.comp:21"
    assert found.text(place) == "imageStore(t_image, ivec2(0), ivec4(t_in[3]));"
    assert found.text(SourceLine("kernel.comp", 0)) == found.text(SourceLine("kernel.comp", 999)) == ""
    loads = [row.result for body in found.module.functions for row in body if row.op == Op.LOAD]
    assert {place.line for load in loads if (place := found.of(load))} >= {15, 17, 19, 20, 21, 25}
    assert found.of(0) is None


def test_a_helper_that_takes_an_image_stores_to_each_that_it_is_given() -> None:
    source = """
layout(binding = 0, rgba32i) uniform writeonly iimage2D a;
layout(binding = 4, rgba32i) uniform writeonly iimage2D b;
layout(binding = 5, rgba32i) uniform writeonly iimage2D c;
void put(writeonly iimage2D image) { imageStore(image, ivec2(0), ivec4(1)); }
void main() { put(a); put(b); imageStore(c, ivec2(0), ivec4(1)); }
"""
    found = lines(source, "g")
    assert {n: [place.line for place in found.store_places(n)] for n in found.stores()} == {
        0: [6],
        4: [6],
        5: [7],
    }


SHADER_DEBUG_INFO = """
OpCapability Shader
OpExtension "SPV_KHR_non_semantic_info"
OpExtension "SPV_KHR_storage_buffer_storage_class"
%debug = OpExtInstImport "NonSemantic.Shader.DebugInfo.100"
OpMemoryModel Logical GLSL450
OpEntryPoint GLCompute %main "main"
OpExecutionMode %main LocalSize 1 1 1
%file = OpString "kernel.slang"
%text = OpString "first
second {
  third;"
OpDecorate %array ArrayStride 4
OpMemberDecorate %block 0 Offset 0
OpDecorate %block Block
OpDecorate %data DescriptorSet 0
OpDecorate %data Binding 7
%void = OpTypeVoid
%fn = OpTypeFunction %void
%uint = OpTypeInt 32 0
%0 = OpConstant %uint 0
%2 = OpConstant %uint 2
%3 = OpConstant %uint 3
%array = OpTypeRuntimeArray %uint
%block = OpTypeStruct %array
%pointer = OpTypePointer StorageBuffer %block
%element = OpTypePointer StorageBuffer %uint
%data = OpVariable %pointer StorageBuffer
%source = OpExtInst %void %debug DebugSource %file %text
%main = OpFunction %void None %fn
%label = OpLabel
%l1 = OpExtInst %void %debug DebugLine %source %2 %2 %0 %0
%at = OpAccessChain %element %data %0 %3
%l2 = OpExtInst %void %debug DebugLine %source %3 %3 %0 %0
OpStore %at %2
%l3 = OpExtInst %void %debug DebugNoLine
OpStore %at %3
OpBranch %next
%next = OpLabel
OpStore %at %0
OpReturn
OpFunctionEnd
"""


def test_lines_of_shader_debug_information() -> None:
    found = Lines(assembled(SHADER_DEBUG_INFO))
    assert found.store_places(7) == (SourceLine("kernel.slang", 3),)
    assert [store.place for store in found.stores()[7]] == [SourceLine("kernel.slang", 3), None, None]
    assert found.text(SourceLine("kernel.slang", 3)) == "third;"


def test_a_line_ends_with_its_block() -> None:
    text = SHADER_DEBUG_INFO.replace("%l3 = OpExtInst %void %debug DebugNoLine\n", "")
    places = [store.place for store in Lines(assembled(text)).stores()[7]]
    assert places == [SourceLine("kernel.slang", 3), SourceLine("kernel.slang", 3), None]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("DebugLine %source %3 %3", "DebugLine %source %data %3", "is no line number; got OpVariable"),
        ("DebugLine %source %3", "DebugLine %l1 %3", "is no source file; got OpExtInst"),
        ("DebugSource %file", "DebugSource %fn", "is no file name; got OpTypeFunction"),
    ],
)
def test_debug_information_that_contradicts_itself(old: str, new: str, message: str) -> None:
    assert old in SHADER_DEBUG_INFO
    with pytest.raises(FormatError, match=message):
        Lines(assembled(SHADER_DEBUG_INFO.replace(old, new)))

"""Rewritten modules are valid, ask Kompute for storage buffers only, and what cannot be rewritten is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from spirv.glsl import BUILDS, EVERYTHING, assembled, compiled, validate

from refsim.core.errors import ParameterError, RefsimError, UnsupportedError
from refsim.spirv.module import Module, Section
from refsim.spirv.opcodes import Op
from refsim.spirv.reflect import interface
from refsim.spirv.rewrite import for_kompute

COMMITTED = sorted((Path(__file__).parents[2] / "shaders" / "spirv").rglob("*.spv"))
CONVENTIONAL = sorted((Path(__file__).parents[1] / "modules" / "spirv").glob("*.spv"))
EXTENTS = {2: 2, 3: 3, 4: 3, 6: 2}  # binding -> dims


@pytest.mark.parametrize("guard", [0, 16])
@pytest.mark.parametrize("build", BUILDS)
def test_every_build_becomes_storage_buffers(build: str, guard: int) -> None:
    module = Module.parse(compiled(EVERYTHING, build), build)
    before = module.to_bytes()
    made = for_kompute(module, spec_count=9, guard_words=guard)
    validate(made.code)
    assert module.to_bytes() == before
    assert [(row.kind, row.element) for row in made.bindings] == [
        ("storage buffer", element) for element in ("int", "ivec4", "ivec4", "vec4", "vec4", "", "ivec4")
    ]
    assert [row.writable for row in made.bindings] == [True, False, False, False, True, False, True]
    assert {number: len(ids) for number, ids in made.extent_ids.items()} == EXTENTS
    assert [one for ids in made.extent_ids.values() for one in ids] == list(range(9, 19))
    old, new = (interface(Module.parse(code, build)) for code in (before, made.code))
    assert new.spec_ids == old.spec_ids | dict.fromkeys(range(9, 19), 1)
    assert (new.push, new.local_size, new.local_size_ids) == (old.push, old.local_size, old.local_size_ids)
    assert not {50, 55, 56} & new.capabilities
    kinds = {row.op for row in Module.parse(made.code, build).instructions()}
    assert not kinds & {Op.TYPE_IMAGE, Op.TYPE_SAMPLED_IMAGE, Op.IMAGE_FETCH, Op.IMAGE_READ, Op.IMAGE_WRITE}


def test_extents_come_behind_all_constants_of_the_module() -> None:
    module = Module.parse(compiled(EVERYTHING), "kernel")
    assert min(for_kompute(module, spec_count=0).extent_ids[2]) == 6
    assert min(for_kompute(module, spec_count=7).extent_ids[2]) == 7


@pytest.mark.few(30)
@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_modules_stay_valid_behind_a_guard(path: Path) -> None:
    code = path.read_bytes()
    module = Module.parse(code, path.name)
    assert for_kompute(module, 0).code == code
    made = for_kompute(module, 0, guard_words=16)
    assert made.code != code and made.bindings == interface(module).bindings
    validate(made.code)


@pytest.mark.parametrize("guard", [0, 16])
def test_kernels_under_the_conventions_of_et_vk_become_storage_buffers(guard: int) -> None:
    seen = set()
    for path in CONVENTIONAL:
        module = Module.parse(path.read_bytes(), path.name)
        made = for_kompute(module, 12, guard)
        validate(made.code)
        before = interface(module).bindings
        seen |= {row.kind for row in before}
        assert [(row.number, row.writable) for row in made.bindings] == [
            (row.number, row.writable) for row in before
        ]
        assert all(row.kind == "storage buffer" for row in made.bindings)
    assert len(seen) >= 5


def test_a_guard_is_whole_elements() -> None:
    module = Module.parse(compiled(EVERYTHING), "kernel")
    with pytest.raises(
        ParameterError, match=r"guard words; got 3, need whole elements of ivec4\[\], 16 bytes each"
    ):
        for_kompute(module, 0, guard_words=3)
    with pytest.raises(ParameterError, match="guard words; got -1"):
        for_kompute(module, 0, guard_words=-1)


BUFFER = "layout(binding = 0) buffer B { vec4 b[]; };\nlayout(binding = 1) uniform "
I2 = BUFFER + "isampler2D t;\n"
REFUSED = {
    "sampled": (
        BUFFER + "sampler2D t; void main() { b[0] = textureLod(t, vec2(0.5), 0); }",
        "binding 1: an image is used in a way that no buffer has; got OpImageSampleExplicitLod",
    ),
    "offset": (
        I2 + "void main() { b[0] = texelFetchOffset(t, ivec2(1), 0, ivec2(1)); }",
        "other image operands",
    ),
    "level": (I2 + "void main() { b[0] = texelFetch(t, ivec2(1), 1); }", "OpImageFetch of another level"),
    "any level": (I2 + "void main() { b[0] = texelFetch(t, ivec2(1), int(b[1].x)); }", "of another level"),
    "size of a level": (
        I2 + "void main() { b[0] = vec4(textureSize(t, 2), 0, 0); }",
        "QuerySizeLod of another level",
    ),
    "atomics": (
        "layout(binding = 1, r32i) uniform iimage2D t; void main() { imageAtomicAdd(t, ivec2(0), 1); }",
        "got OpImageTexelPointer",
    ),
    "bytes": (
        "layout(binding = 1, rgba8i) uniform iimage2D t; void main() { imageStore(t, ivec2(0), ivec4(1)); }",
        "binding 1 is an image of other texels; got image format 23 of int, need components of 32 bits",
    ),
    "array": (
        BUFFER + "sampler2D t[2]; void main() { b[0] = texelFetch(t[1], ivec2(1), 0); }",
        "an array of descriptors",
    ),
    "set": (
        "layout(set = 1, binding = 0) buffer B { int b[]; }; void main() { b[0] = 1; }",
        "descriptor set; got 1",
    ),
}


@pytest.mark.few(9)
@pytest.mark.parametrize("build", ["O0", "O", "spv16"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_no_buffer_can_do_is_refused_with_the_reason(name: str, build: str) -> None:
    source, message = REFUSED[name]
    with pytest.raises(UnsupportedError, match=message):
        for_kompute(Module.parse(compiled(source, build), "kernel"), 0)


ODD = {
    "unused image": I2 + "void main() { b[0] = vec4(1); }",
    "only its size": I2 + "void main() { b[0] = vec4(textureSize(t, 0), textureQueryLevels(t), 0); }",
    "one function, two images": I2 + "layout(binding = 2) uniform isampler2D u;"
    "precise vec4 one(isampler2D x, float f) { return texelFetch(x, ivec2(1), 0) * f + 1; }"
    "void main() { b[0] = one(t, 2) + one(u, 3); b[1] = one(t, 4); }",
    "a function that nothing calls": I2
    + "ivec4 never(isampler2D x) { return texelFetch(x, ivec2(1), 0); } void main() { b[0] = vec4(1); }",
    "barriers of images": "layout(binding = 1, rgba32f) uniform image2D t;"
    "void main() { imageStore(t, ivec2(1), vec4(2)); memoryBarrierImage(); barrier(); }",
    "qualifiers": "layout(binding = 1, rgba32f) coherent volatile restrict uniform image2D t;"
    "void main() { imageStore(t, ivec2(1), imageLoad(t, ivec2(0)) + vec4(imageSize(t), 0, 0)); }",
    "in a loop's head": "layout(binding = 1, rgba32f) uniform image2D t;"
    "void main() { for (int i = 0; i < 9; i += int(imageLoad(t, ivec2(i)).x)) { imageStore(t, ivec2(i), vec4(i)); } }",
    "two blocks of one struct": "struct S { ivec4 a[3]; };"
    "layout(binding = 0) buffer B { S b[]; }; layout(binding = 1) uniform U { S u; };"
    "layout(binding = 2) uniform V { S v; };"
    "void main() { b[gl_WorkGroupID.x] = u; b[1].a[0] = v.a[2]; S copy = u; b[2].a[1] = copy.a[gl_WorkGroupID.y]; }",
    "fixed part": "layout(binding = 0) buffer B { ivec4 n; int b[]; }; layout(binding = 1) uniform U { ivec4 u; };"
    "void main() { b[n.x] = u.y + b.length(); }",
}


@pytest.mark.few(24)
@pytest.mark.parametrize("guard", [0, 48])
@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("name", ODD)
def test_odd_modules_are_valid_after_it(name: str, build: str, guard: int) -> None:
    made = for_kompute(Module.parse(compiled(ODD[name], build), "kernel"), 0, guard)
    validate(made.code)


def test_a_copied_function_keeps_its_decorations() -> None:
    """NoContraction decides bytes: both copies of a function that takes an image must have it."""
    source = (
        ODD["one function, two images"]
        .replace("precise vec4 one", "vec4 one")
        .replace(
            "return texelFetch(x, ivec2(1), 0) * f + 1;",
            "precise vec4 y = texelFetch(x, ivec2(1), 0) * f + 1; return y;",
        )
    )
    module = Module.parse(compiled(source), "kernel")

    def pinned(of: Module) -> int:
        return sum(row.op == Op.DECORATE and row.args[1] == 42 for row in of.sections[Section.ANNOTATION])

    made = Module.parse(for_kompute(module, 0).code, "kernel")
    assert pinned(module) > 0
    assert pinned(made) == 2 * pinned(module)


def test_the_work_of_many_calls_is_bounded() -> None:
    """Each level calls the next with both orders of its images: two to the power of nothing."""
    fetch = "texelFetch({}, ivec2(1), 0)".format
    levels = f"ivec4 f0(isampler2D a, isampler2D b) {{ return {fetch('a')} + {fetch('b')}; }}\n"
    for level in range(1, 20):
        levels += f"ivec4 f{level}(isampler2D a, isampler2D b) {{ return f{level - 1}(a, b) + f{level - 1}(b, a); }}\n"
    source = (
        I2 + "layout(binding = 2) uniform isampler2D u;" + levels + "void main() { b[0] = vec4(f19(t, u)); }"
    )
    made = for_kompute(Module.parse(compiled(source), "kernel"), 0)
    validate(made.code)
    assert len(made.code) < 40_000


def test_debug_information_for_shaders_survives() -> None:
    """NonSemantic instructions that name an image's variable stay, those that name a loaded image go."""
    module = assembled(NON_SEMANTIC)
    made = for_kompute(module, 0, 16)
    validate(made.code)
    kept = [row.args[3] for row in Module.parse(made.code, "kernel").instructions() if row.op == Op.EXT_INST]
    assert kept == [1, 18]


NON_SEMANTIC = """
OpCapability Shader
OpExtension "SPV_KHR_non_semantic_info"
%debug = OpExtInstImport "NonSemantic.Mine"
OpMemoryModel Logical GLSL450
OpEntryPoint GLCompute %main "main"
OpExecutionMode %main LocalSize 1 1 1
OpDecorate %image DescriptorSet 0
OpDecorate %image Binding 0
%void = OpTypeVoid
%fn = OpTypeFunction %void
%int = OpTypeInt 32 1
%kind = OpTypeImage %int 2D 0 0 0 2 Rgba32i
%pointer = OpTypePointer UniformConstant %kind
%image = OpVariable %pointer UniformConstant
%first = OpExtInst %void %debug 1 %image
%int4 = OpTypeVector %int 4
%int2 = OpTypeVector %int 2
%zero = OpConstantNull %int2
%main = OpFunction %void None %fn
%label = OpLabel
%loaded = OpLoad %kind %image
%second = OpExtInst %void %debug 17 %loaded
%third = OpExtInst %void %debug 18 %image
%texel = OpImageRead %int4 %loaded %zero
OpImageWrite %loaded %zero %texel
OpReturn
OpFunctionEnd
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "%texel = OpImageRead %int4 %loaded %zero",
            "%texel = OpUndef %int4\n%other = OpUndef %kind",
            "got OpUndef",
        ),
        (
            "%zero = OpConstantNull %int2",
            "%f = OpTypeFloat 32\n%v = OpTypeVector %f 2\n%zero = OpConstantNull %v",
            "vec2",
        ),
        ("%image = ", "%nested = OpTypeStruct %kind\n%image = ", "got OpTypeStruct"),
    ],
)
def test_strange_uses_are_refused(old: str, new: str, message: str) -> None:
    assert old in NON_SEMANTIC
    with pytest.raises(RefsimError, match=message):
        for_kompute(assembled(NON_SEMANTIC.replace(old, new)), 0)


def test_positions_may_be_unsigned_and_longer() -> None:
    text = NON_SEMANTIC.replace(
        "%zero = OpConstantNull %int2",
        "%uint = OpTypeInt 32 0\n%v = OpTypeVector %uint 3\n%zero = OpConstantNull %v",
    )
    validate(for_kompute(assembled(text), 0).code)

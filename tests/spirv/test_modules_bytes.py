"""A module is read, written back unchanged and edited; damaged files meet typed errors and nothing else."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spirv.glsl import BUILDS, EVERYTHING, compiled, run_tool, validate

from refsim.core.errors import FormatError, LimitError, RefsimError, UnsupportedError
from refsim.spirv.instruction import Instruction, string_words
from refsim.spirv.lines import Lines
from refsim.spirv.module import MAX_BYTES, Module, Section
from refsim.spirv.opcodes import GRAMMAR, Op, StorageClass
from refsim.spirv.reflect import interface
from refsim.spirv.rewrite import for_kompute

COMMITTED = sorted((Path(__file__).parents[2] / "shaders" / "spirv").rglob("*.spv"))
SMALL = next(path for path in COMMITTED if path.stem == "q8ta_relu").read_bytes()


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_committed_modules_are_written_back_unchanged(path: Path) -> None:
    code = path.read_bytes()
    module = Module.parse(code, path.name)
    assert module.to_bytes() == module.copy().to_bytes() == code
    for row in module.instructions():
        assert row.op in GRAMMAR, row.name
        places = row.id_places()
        assert all(0 < row.args[place] < module.bound for place in places), row


@pytest.mark.parametrize("build", BUILDS)
def test_compiled_modules_are_written_back_unchanged(build: str) -> None:
    code = compiled(EVERYTHING, build)
    assert Module.parse(code, build).to_bytes() == code


def renumbered(module: Module) -> Module:
    """Every id mirrored: a place that the table takes for an id and is none, or the reverse, breaks the module."""
    other = module.copy()
    ids = {number: module.bound - number for number in range(1, module.bound)}
    for rows in (*other.sections.values(), *other.functions):
        rows[:] = [row.renamed(ids) for row in rows]
    return other


@pytest.mark.parametrize("build", BUILDS)
def test_the_table_knows_which_operands_are_ids(build: str) -> None:
    code = compiled(EVERYTHING, build)
    other = renumbered(Module.parse(code, build)).to_bytes()
    assert other != code
    validate(other)
    assert run_tool(other, "spirv-opt", "--compact-ids") == run_tool(code, "spirv-opt", "--compact-ids")


@pytest.mark.parametrize(
    "path", [path for path in COMMITTED if "." not in path.stem], ids=lambda path: path.stem
)
def test_the_table_knows_which_operands_are_ids_of_real_kernels(path: Path) -> None:
    code = path.read_bytes()
    other = renumbered(Module.parse(code, path.name)).to_bytes()
    assert run_tool(other, "spirv-opt", "--compact-ids") == run_tool(code, "spirv-opt", "--compact-ids")


def test_a_module_can_be_instrumented() -> None:
    """A counter in a new buffer, raised by every invocation: new types, constants, a binding, an instruction."""
    module = Module.parse(compiled(EVERYTHING, "spv14"), "kernel").copy()
    uint = module.type(Op.TYPE_INT, 32, 0)
    assert module.type(Op.TYPE_INT, 32, 0) == uint
    block = module.add(Op.TYPE_STRUCT, uint)
    module.decorate(block, 2)
    module.decorate_member(block, 0, 35, 0)
    counter = module.add_variable(StorageClass.STORAGE_BUFFER, block)
    module.decorate(counter, 34, 0)
    module.decorate(counter, 33, 7)
    module.decorate(counter, 33, 7)
    module.name(counter, "counter")
    pointer = module.pointer(StorageClass.STORAGE_BUFFER, uint)
    zero, one = module.constant(uint, 0), module.constant(uint, 1)
    where, old = module.new_id(), module.new_id()
    body = module.functions[0]
    at = next(i for i, row in enumerate(body) if row.op == Op.LABEL) + 1
    while body[at].op == Op.VARIABLE:
        at += 1
    body[at:at] = [
        Instruction(Op.ACCESS_CHAIN, (pointer, where, counter, zero)),
        Instruction(Op.ATOMIC_IADD, (uint, old, where, one, zero, one)),
    ]
    code = module.to_bytes()
    validate(code)
    added = interface(Module.parse(code, "kernel")).bindings[7]
    assert (added.name, added.kind, added.nbytes) == ("counter", "storage buffer", 4)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (b"", "not SPIR-V; got 0 bytes"),
        (SMALL[:17], "got 17 bytes"),
        (SMALL[:22], "got 22 bytes"),
        (b"\0" + SMALL[1:], "magic"),
        (SMALL[:12] + struct.pack("<I", 0) + SMALL[16:], "bound of ids; got 0"),
        (SMALL[:12] + struct.pack("<I", 1 << 30) + SMALL[16:], "bound of ids; got 1073741824"),
        (SMALL[:20] + b"\0\0\0\0" + SMALL[24:], "word 5: length of OpNop; got 0"),
        (SMALL[:-4], "the file is cut off: a function has no end"),
        (SMALL[:-8], "the file is cut off"),
        (SMALL[:-3], "the file is cut off; got "),
        (SMALL[:12], "the file is cut off; got 12 bytes"),
        (SMALL + SMALL[20:28], "stands too late"),
        (SMALL[:12] + struct.pack("<I", 3) + SMALL[16:], "result of .*; got .*, need 1 to 2"),
    ],
)
def test_damage_is_named(code: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=f"relu.spv: .*{message}"):
        Module.parse(code, "relu.spv")


def test_a_file_that_is_no_kernel_is_not_read_at_all() -> None:
    with pytest.raises(LimitError, match=f"got {MAX_BYTES + 4} bytes"):
        Module.parse(SMALL + bytes(MAX_BYTES + 4 - len(SMALL)), "large.spv")


def test_an_id_is_made_once() -> None:
    module = Module.parse(SMALL, "relu.spv")
    module.globals.append(module.globals[0])
    with pytest.raises(FormatError, match="makes an id again"):
        Module.parse(module.to_bytes(), "relu.spv")


def test_strings_are_whole_words() -> None:
    for text in ("", "abc", "abcd", "größer"):
        assert Instruction(Op.NAME, (1, *string_words(text))).text(1) == text
    assert Instruction(Op.NAME, (1, 0x80808080)).text(1) == "\ufffd" * 4


def test_an_unknown_instruction_is_kept_and_not_understood() -> None:
    module = Module.parse(SMALL, "relu.spv").copy()
    module.functions[0].insert(-1, Instruction(7777, (1, 2)))
    again = Module.parse(module.to_bytes(), "relu.spv")
    assert again.to_bytes() == module.to_bytes()
    with pytest.raises(UnsupportedError, match="opcode 7777"):
        again.functions[0][-2].id_places()


def questions(code: bytes) -> None:
    """All that refsim asks of a module that it did not make."""
    module = Module.parse(code, "damaged.spv")
    assert module.to_bytes() == code
    for row in module.instructions():
        if row.op in GRAMMAR:
            row.id_places()
    interface(module)
    lines = Lines(module)
    for stores in lines.stores().values():
        assert all(isinstance(lines.text(store.place), str) for store in stores if store.place)
    for guard in (0, 16):
        made = for_kompute(module, 3, guard)
        Module.parse(made.code, "rewritten.spv")
    assert module.to_bytes() == code


def test_an_entry_point_that_lists_what_is_not_defined_is_refused() -> None:
    work = Module.parse(SMALL, "relu.spv").copy()
    work.set_version((1, 6))
    entries = work.sections[Section.ENTRY_POINT]
    entries[0] = entries[0].with_args(*entries[0].args, 999_999)
    with pytest.raises(FormatError, match="not defined"):
        for_kompute(work, 3)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A module with words changed, removed, repeated or cut off."""
    code = draw(st.sampled_from([SMALL, *KERNELS]))
    words = list(struct.unpack(f"<{len(code) // 4}I", code))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(words) - 1))
        other = draw(st.integers(0, len(words) - 1))
        what = draw(st.sampled_from(["word", "small", "copy", "opcode", "remove", "insert", "repeat", "cut"]))
        if what == "word":
            words[at] = draw(st.integers(0, 0xFFFFFFFF))
        elif what == "small":
            words[at] = draw(st.integers(0, 400))
        elif what == "copy":
            words[at] = words[other]
        elif what == "opcode":
            words[at] = words[at] & 0xFFFF0000 | draw(st.sampled_from(sorted(GRAMMAR)))
        elif what == "remove":
            del words[at : at + draw(st.integers(1, 4))]
        elif what == "insert":
            words[at:at] = [words[other]]
        elif what == "repeat":
            words[at:at] = words[other : other + draw(st.integers(1, 40))]
        else:
            del words[max(at, 6) :]
        if len(words) < 6:
            break
    return struct.pack(f"<{len(words)}I", *words)


KERNELS: list[bytes] = []


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    """Compiled kernels join the corpus of the fuzzer where there is a compiler."""
    import shutil

    if shutil.which("glslc"):
        KERNELS.extend(compiled(EVERYTHING, build) for build in ("g", "spv10", "spv16"))


@settings(max_examples=400)
@given(damaged())
def test_damaged_modules_meet_typed_errors(code: bytes) -> None:
    try:
        questions(code)
    except RefsimError as error:
        assert str(error)


def test_a_type_that_holds_itself_is_an_error_and_no_hang() -> None:
    module = Module.parse(SMALL, "relu.spv").copy()
    struct_at = next(i for i, row in enumerate(module.globals) if row.op == Op.TYPE_STRUCT)
    number = module.globals[struct_at].result
    module.globals[struct_at] = Instruction(Op.TYPE_STRUCT, (number, number, number))
    with pytest.raises(FormatError, match="nested too deeply"):
        interface(module)

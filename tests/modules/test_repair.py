"""Edits of modules: all of them are valid, many at once do what one does, and the words say what was read."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from modules import build, example
from refsim.modules.repair.code import Code
from refsim.modules.repair.edits import SPEC_CONSTANT_OP, Edit, edits, ordered, parts
from refsim.modules.repair.found import AROUND, FoundRepair, RepairSearch
from refsim.modules.repair.schema import CHOICE, Given, Schema, bound, bounded, edited, selectable, selector
from refsim.modules.repair.search import BATCH, alike_first, batches
from refsim.modules.repair.validator import refused, tool
from refsim.modules.repaired import unused
from refsim.ops.base.binding import bind
from refsim.ops.base.module_call import ModuleDispatch, dispatches
from refsim.ops.base.registry import OPS
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Op, StorageClass
from refsim.spirv.reflect import interface
from refsim.spirv.types import Types

needs_validator = pytest.mark.skipif(tool() is None, reason="needs spirv-val")
MODULES = (
    "q8ta_relu_buffer",
    "q8ta_conv2d_pw_float",
    "q8ta_linear_gemv_float",
    "q8ta_quantize_texture3d_float",
)
BINDING, LACKING = 20, "q8ta_conv2d_pw_float"
#: A dispatch whose host gives nothing: every edit is a choice of its own.
NOTHING = ModuleDispatch("", (), b"", (), (1, 1, 1), (1, 1, 1))


def _module(path: Path) -> Module:
    return Module.parse(path.read_bytes(), path.name)


@pytest.fixture(scope="module")
def code() -> Code:
    return Code(_module(example.binary("repairable")))


@pytest.fixture(scope="module")
def found(code: Code) -> list[Edit]:
    return edits(code)


@pytest.mark.few(2)
@needs_validator
@pytest.mark.parametrize("name", MODULES)
def test_many_edits_in_one_module_are_valid(name: str) -> None:
    code = Code(_module(build.BINARIES / f"{name}.spv"))
    every = [edit for edit in edits(code) if selectable(code, edit)]
    for at in range(0, len(every), len(every) // 6):
        batch = every[at : at + BATCH]
        assert refused(Schema(code, batch, Given(code, NOTHING), BINDING).module.to_bytes()) is None


def test_the_words_that_choose_an_edit_stay_where_the_host_puts_them(code: Code, found: list[Edit]) -> None:
    """What runs modules puts guard words in front of arrays without a length."""
    some = [edit for edit in found[:BATCH] if selectable(code, edit)]
    module = Schema(code, some, Given(code, NOTHING), BINDING).module
    (chooses,) = (row for row in interface(module).bindings if row.number == BINDING)
    assert (chooses.stride, chooses.nbytes) == (0, 4 * CHOICE)


def test_every_loop_ends_whatever_an_edit_makes_of_its_condition(code: Code, found: list[Edit]) -> None:
    """The witness of a batch is run by a driver that may wait for ever."""
    some = [edit for edit in found[:BATCH] if selectable(code, edit)]
    module = Schema(code, some, Given(code, NOTHING), BINDING).module
    rows = module.definitions()
    loops = 0
    for body in module.functions:
        ends = {row.args[0] for row in body if row.op == Op.LOOP_MERGE}
        made = {row.result: row for row in body if row.result}
        for row in body:
            if row.op == Op.BRANCH_CONDITIONAL and ends & set(row.args[1:3]):
                condition = made[row.args[0]]
                most = made[made[made[condition.args[3]].args[3]].args[2]]
                assert condition.op in (Op.LOGICAL_AND, Op.LOGICAL_OR)
                assert rows[most.args[-1]].args[2] == CHOICE - 1  # the word behind the value
                loops += 1
    assert loops >= sum(row.op == Op.LOOP_MERGE for body in code.module.functions for row in body) > 0


@pytest.mark.parametrize("name", MODULES)
def test_every_computed_index_stays_inside(name: str) -> None:
    """A driver may crash, or lose the device, over a foreign index into shared memory, or into a vector of it."""
    module = _module(build.BINARIES / f"{name}.spv").copy()
    bound(module, selector(module, BINDING))
    arrays = (Op.TYPE_ARRAY, Op.TYPE_RUNTIME_ARRAY, Op.TYPE_VECTOR)
    types, seen = Types(module), 0
    for body in module.functions:
        made = {row.result: row for row in body if row.result}
        for row in body:
            if row.op != Op.ACCESS_CHAIN:
                continue
            holder = types.pointee({**types.rows, **made}[row.args[2]].type)
            for index in row.args[3:]:
                of = types.rows[holder]
                if index in made and of.op in arrays:
                    assert made[index].op == Op.SELECT
                    seen += 1
                holder = of.args[1 + types.rows[index].args[2]] if of.op == Op.TYPE_STRUCT else of.args[1]
    assert seen


@needs_validator
def test_single_edits_are_valid(code: Code, found: list[Edit]) -> None:
    for edit in found[:: len(found) // 60]:
        assert refused(edited(code, edit).to_bytes()) is None, edit.said


def test_an_edit_of_a_branch_alone_does_not_end_a_search(code: Code, found: list[Edit]) -> None:
    """It may lead past the bug, by another way that is right."""
    said = ("condition negated", '"<=" in place of "<"')
    branch, compared = (
        next(FoundRepair("m", one, code) for one in found if one.said == text) for text in said
    )
    assert branch.detour and not compared.detour
    search = RepairSearch("q8ta_conv2d_pw", repairs=[branch], tried=1, edits=2)
    assert not search.mended and not search.ended
    search.repairs.append(compared)
    assert search.mended and search.ended


def test_exchanged_constants_are_tried_with_loops_that_end(code: Code, found: list[Edit]) -> None:
    """They change the module as a whole, and its loops as well."""
    some = [edit for edit in found if not selectable(code, edit)]
    for edit in some:
        module = bounded(code, edit, BINDING)
        assert BINDING in {row.number for row in interface(module).bindings}
        assert tool() is None or refused(module.to_bytes()) is None
    assert some


def test_constants_of_unlike_sizes_are_exchanged_last() -> None:
    """A driver unrolls loops by them. Equal ones are not exchanged."""
    code = Code(_module(build.BINARIES / "q8ta_clone.spv"))
    every = next(parts(code))
    (edit,) = (one for one in every if one.said == "specialization constants 3 and 4 exchanged")
    ranks = [[one.rank for one in alike_first([edit], {3: 4, 4: other})] for other in (4, 5, 0x43210000)]
    assert ranks[0] == [] and ranks[1] == [edit.rank] and ranks[2] > ranks[1]


@needs_validator
def test_the_validator_refuses_what_is_wrong(code: Code) -> None:
    broken = code.module.copy()
    broken.functions[0].pop(-2)
    assert refused(broken.to_bytes()) is not None


def test_an_edit_changes_the_module_and_the_next_one_begins_anew(code: Code, found: list[Edit]) -> None:
    before = code.module.to_bytes()
    some = [edited(code, edit).to_bytes() for edit in found[:: len(found) // 60]]
    assert before not in some and len(set(some)) == len(some) and code.module.to_bytes() == before


def test_simple_edits_come_first(found: list[Edit]) -> None:
    assert [edit.rank for edit in found] == sorted(edit.rank for edit in found)
    assert '"<=" in place of "<"' in {edit.said for edit in found[:BATCH]}


@pytest.mark.long
def test_loads_of_variables_with_other_names_are_no_copies() -> None:
    """Unrolled copies of an array have no names here; the variables of a line in a module without optimization have."""

    def copies(code: Code) -> set[frozenset[int]]:
        every = (
            frozenset(code.at(change.site).args[2] for change in edit.changes)
            for edit in edits(code)
            if edit.changes and code.at(edit.changes[0].site).op == Op.LOAD
        )
        return {one for one in every if len(one) > 1 and all(code.rows[row].op == Op.VARIABLE for row in one)}

    code = Code(_module(example.binary("repairable")))
    found = copies(code)
    assert found
    code.types.names.update({number: f"v{number}" for one in found for number in one})
    assert not copies(code)


def test_a_place_is_a_source_line_or_an_instruction(code: Code, found: list[Edit]) -> None:
    edit = next(one for one in found if one.said == '"<=" in place of "<"')
    repair = FoundRepair("mine", edit, code, 7)
    line = repair.line
    assert line is not None and str(repair).startswith(f"{line}: ")
    plain = Code(_module(build.BINARIES / "q8ta_relu_buffer.spv"))
    of_code = next(one for one in edits(plain) if one.changes)
    repair = FoundRepair("mine", of_code, plain, 7)
    assert repair.line is None and str(repair).startswith("mine.spv, Op")
    shown = repair.around()
    assert len(shown) == 2 * AROUND + 1 and shown[AROUND].startswith("> ")


def lacking() -> Module:
    """A pointwise convolution that adds scales in place of the bias, and the input's zero point for the output's."""
    code = Code(_module(build.BINARIES / f"{LACKING}.spv"))
    variables = {row.number: row.variable for row in interface(code.module).bindings}
    for body in code.module.functions:
        for at, row in enumerate(body):
            if row.op == Op.ACCESS_CHAIN and row.args[2] == variables[5]:
                body[at] = row.with_args(*row.args[:2], variables[4], *row.args[3:])
            elif row.op == Op.ACCESS_CHAIN and [code.number(word) for word in row.args[3:]] == [3]:
                body[at] = row.with_args(*row.args[:3], code.constant(code.type_of(row.args[3]), 1))
    return code.module


def test_what_a_module_never_reads_is_told_where_nothing_repairs_it() -> None:
    op = "q8ta_conv2d_pw"
    (step,) = dispatches(bind(OPS[op].cases.example).call)
    assert list(unused(_module(build.BINARIES / f"{LACKING}.spv"), step)) == []
    facts = list(unused(lacking(), step))
    assert len(facts) == 2 and "binding 5 (bias)" in facts[0] and "push word 3 " in facts[1]
    found = RepairSearch(op, modules=(LACKING,), unread={LACKING: facts})
    assert [f"  {LACKING}.spv {fact}" for fact in facts] == list(found.lines())[1:]


def test_edits_share_a_choice_where_the_host_knows_what_they_put_in_one_place() -> None:
    """Then a batch holds more edits, and equal values are one try."""
    op = "q8ta_conv2d_pw"
    (step,) = dispatches(bind(OPS[op].cases.example).call)
    code = Code(_module(build.BINARIES / f"{LACKING}.spv"))
    batch = next(one for one in batches(edits(code)) if len(one) > 4 * BATCH)
    schema = Schema(code, batch, Given(code, step), BINDING)
    words = {tuple(row) for row in schema.words.tolist()}
    assert len(batch) > len(words) > len({row[0] for row in words})
    assert tool() is None or refused(schema.module.to_bytes()) is None


def test_the_host_knows_push_words_uniform_words_and_constants() -> None:
    """What it does not know, an edit loads itself: a coordinate of the invocation."""
    op = "q8ta_conv2d_pw"
    (step,) = dispatches(bind(OPS[op].cases.example).call)
    code = Code(_module(build.BINARIES / f"{LACKING}.spv"))
    given = Given(code, step)
    push = np.frombuffer(step.push, np.uint32)
    storages = set()
    for leaf in (leaf for leaves in code.leaves.values() for leaf in leaves):
        storage, words = code.rows[leaf.variable].args[2], given.words(leaf)
        storages.add(storage)
        assert (words is None) == (storage == StorageClass.INPUT), leaf
        if storage == StorageClass.PUSH_CONSTANT and len(leaf.path) == 1 and code.size(leaf.type) == 1:
            assert words is not None and words[0] in push
        elif storage == StorageClass.UNIFORM and words is not None:
            blocks = [set(bind.words.reshape(-1).tolist()) for bind in step.binds if bind.words is not None]
            assert any(set(words[: code.size(leaf.type)]) <= block for block in blocks)
    assert storages == {StorageClass.INPUT, StorageClass.PUSH_CONSTANT, StorageClass.UNIFORM}
    one = code.constant(code.type(Op.TYPE_INT, 32, 1), -1)
    assert given.words(one) == (0xFFFFFFFF, 0, 0, 0)


@pytest.mark.parametrize(
    ("name", "there", "back"),
    [
        (LACKING, "(a + b) * s in place of a * s + b", "a * s + b in place of (a + b) * s"),
        (MODULES[3], "floor(x + 0.5) in place of round", "roundEven(x) in place of floor(x + 0.5)"),
    ],
)
def test_templates_undo_each_other(name: str, there: str, back: str) -> None:
    """What is made is as valid as what was there."""
    code = Code(_module(build.BINARIES / f"{name}.spv"))
    edit = next(one for one in next(parts(code)) if one.said.startswith(there))
    again = Code(edited(code, edit))
    undone = [one for one in next(parts(again)) if one.said == back]
    results = {code.at(one.site).result for one in edit.changes}
    assert results in ({again.at(one.site).result for one in other.changes} for other in undone)
    for module in (again.module, edited(again, undone[0])):
        assert tool() is None or refused(module.to_bytes()) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("q8ta_clone", "specialization constants 3 and 4 exchanged"),
        ("q8ta_conv2d_pw_float", "bindings 4 and 5 exchanged"),
        ("q8ta_conv2d_pw_float", r"binding \d+ in place of 0.*"),
        ("q8ta_conv2d_pw_float", r"member 4 and member 5 exchanged"),
        ("q8ta_conv2d_pw_float", r"\[%\d+\]\[%\d+\] exchanged"),
        ("q8ta_conv2d_dw_float", r"%\d+\.x and %\d+\.y exchanged"),
        ("q8ta_im2col", r"%\d+ taken apart by %\d+ first"),
        ("q8ta_im2col", r".+ taken apart by 0\.0\[\d\]\.[xyzw] first"),
        ("q8ta_conv2d_float", r".+ in place of the sum"),
        ("q8ta_pixel_shuffle", r"0, 8, 16, 24 by turns in place of .+"),
        ("q8ta_clone", r"%\d+ in place of %\d+"),
        ("q8ta_add_buffer", r'"& 255" behind it'),
        ("q8ta_im2col", r".+ in place of .+ everywhere"),
    ],
)
def test_what_is_exchanged_or_put_together_otherwise_is_valid(name: str, said: str) -> None:
    code = Code(_module(build.BINARIES / f"{name}.spv"))
    some = [edit for edit in next(parts(code)) if re.fullmatch(said, edit.said)]
    assert some, Counter(edit.said for edit in next(parts(code)) if "exchanged" in edit.said)
    for edit in some[:: max(1, len(some) // 4)]:
        module = edited(code, edit)
        assert module.to_bytes() != code.module.to_bytes()
        assert tool() is None or refused(module.to_bytes()) is None, edit.said


@pytest.mark.long
@pytest.mark.parametrize("name", ["q8ta_clone", "q8ta_linear"])
def test_a_computed_specialization_constant_is_edited_where_it_is_used(name: str) -> None:
    code = Code(_module(build.BINARIES.parents[2] / "shaders" / "spirv" / f"{name}.spv"))
    computed = {row.result for row in code.module.globals if row.op == SPEC_CONSTANT_OP}
    some = [
        edit
        for edit in next(parts(code))
        if edit.changes
        and all({code.at(one.site).args[at] for at, _ in one.places} & computed for one in edit.changes)
        and all(one.rows for one in edit.changes)
    ]
    if name == "q8ta_clone":
        assert {"==", "!="} & {edit.said.split('"')[1] for edit in some if '"' in edit.said}
    else:  # computed from what is computed
        assert max(len(edit.changes[0].rows) for edit in some) > 1
    for edit in some[:: max(1, len(some) // 8)]:
        assert tool() is None or refused(edited(code, edit).to_bytes()) is None, edit.said


def test_some_uses_of_a_value_are_one_edit() -> None:
    """A compiler that inlines a function has put its argument in several places."""
    code = Code(_module(build.BINARIES / "q8ta_pixel_shuffle.spv"))
    some = [edit for edit in next(parts(code)) if edit.said.endswith(" uses")]
    assert some and all(len({one.site for one in edit.changes}) > 1 for edit in some)
    for edit in some[:: len(some) // 12]:
        assert tool() is None or refused(edited(code, edit).to_bytes()) is None, edit.said


def test_the_kind_of_edit_that_a_cause_names_comes_first(found: list[Edit]) -> None:
    plain, told = ordered(found, ()), ordered(found, ["tie rule"])
    assert plain == found and sorted(told, key=id) == sorted(found, key=id)
    at = next(number for number, edit in enumerate(found) if "round" in edit.said and edit.rank)
    assert told.index(found[at]) < at


def test_a_specialization_constant_that_the_compiler_dropped_may_be_used() -> None:
    """The host gives it all the same; what an edit does not use of what was declared for edits is no part of it."""
    module = _module(build.BINARIES / "q8ta_pixel_shuffle.spv")
    spec = interface(module).spec_ids
    code = Code(module, (*spec, max(spec) + 1))
    said = f"specialization constant {max(spec) + 1} in place of "
    edit = next(one for one in next(parts(code)) if one.said.startswith(said))
    made = edited(code, edit)
    assert interface(made).spec_ids == {**spec, max(spec) + 1: 0}
    assert tool() is None or refused(made.to_bytes()) is None
    plain = next(one for one in next(parts(code)) if not one.said.startswith("specialization constant"))
    assert interface(edited(code, plain)).spec_ids == spec
    assert len(edited(code, plain).globals) <= len(module.globals) + 2

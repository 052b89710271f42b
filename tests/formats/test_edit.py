"""Appending to graphs and programs: what was there stays, and what was added is where it was asked for."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import flatbuffers
import numpy as np
import pytest

from refsim.core.errors import FormatError, GraphError
from refsim.core.layout import PACKED_4W4C
from refsim.formats import literals
from refsim.formats.pte import schema as pp
from refsim.formats.pte.edit import ProgramEditor, single_delegate
from refsim.formats.pte.read import load, read_pte
from refsim.formats.pte.write import write_pte
from refsim.formats.vkgraph.edit import CLONE, FULL, PREPACK, GraphEditor
from refsim.formats.vkgraph.read import Blob, read_blob
from refsim.formats.vkgraph.schema import VkTensor

DATA = Path(__file__).parents[1] / "data"
FILES = sorted(path for path in DATA.glob("[mn]*/*.pte") if load(path).plan().delegates)


def blobs(path: Path) -> dict[int, Blob]:
    pte = load(path)
    return dict(pte.blobs(pte.plan()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_appended_changes_nothing(path: Path) -> None:
    pte = load(path)
    editor = ProgramEditor(pte)
    for number, blob in pte.blobs(pte.plan()):
        again = GraphEditor(blob)
        assert again.graph() == blob.graph
        editor.set_blob(number, again.blob())
    written = read_pte(editor.write())
    assert written.program.plans == pte.program.plans
    assert written.program.constant_segment == pte.program.constant_segment
    assert dict(written.named_data) == dict(pte.named_data)
    for number, blob in written.blobs(written.plan()):
        assert blob.graph == blobs(path)[number].graph


def test_what_is_there_keeps_its_ids_and_its_order() -> None:
    blob = blobs(DATA / "models" / "linear_head.pte")[0]
    editor = GraphEditor(blob)
    first = editor.own_memory(17)
    second = editor.own_memory(20)
    words = editor.fills({17: 512}, 0x5A)[17]
    copy = editor.tensor("int32", (256,))
    editor.clone(editor.alias(20, 1024), copy, before=2)
    places = [editor.output(words), editor.output(copy)]
    graph = editor.graph()
    old = blob.graph
    assert places == [1, 2] and graph.output_ids == (*old.output_ids, words, copy)
    assert (first, second) == (3, 4)  # 0 to 2 are taken
    changed = {number for number, value in enumerate(old.values) if graph.values[number] != value}
    assert changed == {17, 20}
    assert replace(graph.values[17], mem_obj_id=2) == old.values[17]  # type: ignore[type-var]
    names = [call.name for call in graph.chain]
    assert names[:6] == [
        FULL,
        FULL,
        CLONE,
        FULL,
        FULL,
        CLONE,
    ]  # what fills, and what makes the next ones wait
    assert names[8] == CLONE
    assert [call for call in graph.chain if call in old.chain] == list(old.chain)
    assert len({call.node_id for call in graph.chain}) == len(graph.chain)
    assert [graph.values[n].mem_obj_id for n in (words, copy)] == [3, -1]  # type: ignore[union-attr]
    assert read_blob(editor.blob()).graph == graph


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x5A, 0x7F, 0x80, 0xC3, 0xFE, 0xFF])
def test_a_fill_writes_the_bytes_that_it_says(byte: int) -> None:
    """The value goes through a float: of int32 only 0 and -1 are used, of float32 the value with the bits."""
    editor = GraphEditor(blobs(DATA / "models" / "linear_head.pte")[0])
    editor.fills({17: 512}, byte)
    graph = editor.graph()
    codes = {3: "<i", 5: "<f"}
    fills = [c for c in graph.chain if c.name == FULL and graph.values[c.args[-1]].mem_obj_id >= 0]  # type: ignore
    assert len(fills) == 1 if byte in (0, 255) else 2
    for call in fills:
        dims, value, into = (graph.values[number] for number in call.args)
        assert isinstance(into, VkTensor) and isinstance(dims, literals.IntList)
        assert isinstance(value, literals.Int | literals.Double) and dims.items == into.dims == (128,)
        assert float(np.float32(value.value)) == value.value
    held = fills[-1].args[2]
    code = codes[graph.values[held].datatype]  # type: ignore[union-attr]
    number = value.value if code == "<f" else int(value.value)
    assert struct.pack(code, number) == bytes((byte,)) * 4


def test_a_program_from_nothing() -> None:
    """Words in, and a constant that the runtime prepacks: both through an int32 alias, words out."""
    editor = GraphEditor()
    words = editor.tensor("int32", (8,))
    editor.input(words)
    packed = editor.tensor("int8", (1, 4, 2, 4), PACKED_4W4C)
    object_id = editor.memory(packed)
    assert editor.memory(packed) == object_id
    weight = editor.constant(np.arange(5, dtype=np.int8))
    other = editor.constant(np.arange(3, dtype=np.float32))
    held = editor.tensor("float32", (3,))
    assert editor.prepack(other, held) == held
    out = editor.tensor("int32", (8,))
    editor.clone(words, out)
    editor.output(out)
    data = single_delegate(editor.blob(), [("int32", (8,))], [("int32", (8,))])
    assert data == single_delegate(editor.blob(), [("int32", (8,))], [("int32", (8,))])
    pte = read_pte(data)
    assert pte.program.constant_segment is not None
    assert pte.program.constant_segment.offsets == (0,)
    plan = pte.plan()
    assert plan.arena_sizes == (0, 64)
    first, second = (plan.values[number] for number in (*plan.inputs, *plan.outputs))
    assert isinstance(first, pp.Tensor) and isinstance(second, pp.Tensor)
    assert first.allocation is not None and second.allocation is not None
    assert (first.allocation.offset, second.allocation.offset) == (0, 32)
    ((_, blob),) = pte.blobs(plan)
    assert blob.graph.chain[0].name == PREPACK
    assert [bytes(part) for part in blob.constants] == [bytes(range(5)), np.arange(3, dtype="<f4").tobytes()]
    assert blob.graph.values[weight].dims == (5,)  # type: ignore[union-attr]


def test_outputs_lie_behind_everything_else() -> None:
    pte = load(DATA / "models" / "mixed_ops.pte")
    plan = pte.plan()
    editor = ProgramEditor(pte)
    assert editor.output(1, "int32", (3,)) == 1
    assert editor.output(0, "float32", (1, 2)) == 2
    written = read_pte(editor.write()).plan()
    assert written.values[: len(plan.values)] == plan.values
    assert written.arena_sizes == (0, plan.arena_sizes[1] + 32)
    a, b = written.outputs[len(plan.outputs) :]
    calls = [c for c in written.chains[0].instructions if isinstance(c, pp.DelegateCall)]
    before = [c for c in plan.chains[0].instructions if isinstance(c, pp.DelegateCall)]
    assert calls == [
        replace(before[0], args=(*before[0].args, b)),
        replace(before[1], args=(*before[1].args, a)),
    ]
    last = written.values[b]
    assert isinstance(last, pp.Tensor) and last.allocation is not None
    assert (last.dtype_name, last.sizes, last.allocation.offset) == (
        "FLOAT",
        (1, 2),
        plan.arena_sizes[1] + 16,
    )


def test_a_segment_that_two_delegates_share_is_written_for_one_of_them() -> None:
    pte = load(DATA / "models" / "mixed_ops.pte")
    plan = pte.plan()
    twins = replace(plan, delegates=(plan.delegates[0], plan.delegates[0]))
    shared = read_pte(write_pte(replace(pte.program, plans=(twins,)), pte.segments))
    editor = ProgramEditor(shared)
    editor.set_blob(1, b"another one")
    written = read_pte(editor.write())
    first, second = written.plan().delegates
    assert written.delegate_data(first) == shared.delegate_data(twins.delegates[0])
    assert bytes(written.delegate_data(second)) == b"another one"


def test_a_program_gets_the_segment_that_the_runtime_wants() -> None:
    pte = load(DATA / "models" / "linear_head.pte")
    without = read_pte(write_pte(replace(pte.program, constant_segment=None), pte.segments))
    assert without.program.constant_segment is None
    assert read_pte(ProgramEditor(without).write()).program.constant_segment is not None


def test_fields_that_would_be_lost_are_refused() -> None:
    """A program whose root table has a field that this reader does not know, as a newer schema may have."""
    builder = flatbuffers.Builder(64)
    builder.StartObject(12)
    builder.PrependInt32Slot(11, 7, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"ET12")
    pte = read_pte(bytes(builder.Output()))
    assert pte.unread() == ["Program slot 11"]
    plan = pp.Plan("forward", (), (), (), (pp.Chain((), (), ()),), (), ())
    with pytest.raises(GraphError, match="would be lost in another file; got Program slot 11"):
        ProgramEditor(replace(pte, program=replace(pte.program, plans=(plan,))))


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda e: e.alias(17, 511), "no whole words; got 511"),
        (lambda e: e.alias(12, 4), "value 12: has no memory to share; got Double"),
        (lambda e: e.alias(8, 4), "value 8: has no memory to share"),
        (lambda e: e.alias(e.tensor("int32", (1,)), 4), "has no memory object"),
        (lambda e: e.own_memory(99), "no such id; got 99"),
        (lambda e: e.tensor("int128", (1,)), "a dtype that no delegate holds; got int128"),
        (lambda e: e.call(CLONE, 0, 1, before=6), "position.*got 6"),
        (lambda e: e.call(CLONE, 0, 100), "no such id; got 100"),
    ],
)
def test_edits_that_make_no_sense(edit, match: str) -> None:
    editor = GraphEditor(blobs(DATA / "models" / "linear_head.pte")[0])
    with pytest.raises((GraphError, FormatError), match=match):
        edit(editor)


def test_a_delegate_must_be_called_once() -> None:
    pte = load(DATA / "models" / "linear_head.pte")
    plan = pte.plan()
    twice = replace(plan, chains=(replace(plan.chains[0], instructions=plan.chains[0].instructions * 2),))
    editor = ProgramEditor(read_pte(write_pte(replace(pte.program, plans=(twice,)), pte.segments)))
    with pytest.raises(GraphError, match="delegate 0: is not called once; got 2 calls"):
        editor.output(0, "int32", (1,))
    with pytest.raises(GraphError, match="a dtype that no plan holds"):
        ProgramEditor(pte).output(0, "qint8", (1,))

"""The .pte container: real files, every place where data may lie, and files that are broken on purpose."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from refsim.core.errors import FormatError, LimitError
from refsim.formats.flatbuffer.encode import encode
from refsim.formats.limits import Limits
from refsim.formats.literals import Bool, BoolList, Double, DoubleList, Int, Null, String
from refsim.formats.pte import schema as pp
from refsim.formats.pte.read import EXTENDED_AT, kind_of, load, read_pte
from refsim.formats.pte.schema import PROGRAM
from refsim.formats.pte.write import write_pte

MODELS = sorted((Path(__file__).parents[1] / "data" / "models").glob("*.pte"))

FLOAT = 6


def tensor(sizes=(2, 3), **more):
    return pp.Tensor(FLOAT, tuple(sizes), tuple(range(len(sizes))), **more)


#: values 0 to 10 of a plan that uses every kind of value and of instruction
VALUES = (
    tensor(),
    tensor(allocation=pp.Allocation(1, 16, 2)),
    tensor(data_index=1),
    Int(-7),
    Double(0.5),
    Bool(True),
    String("mean"),
    Null(),
    pp.IntIdList((3, 3)),
    pp.TensorList((0, 1)),
    pp.OptionalTensorList((0, -1, 7)),
    DoubleList((1.5, 2.5)),
    BoolList((True, False)),
)
CALLS = (
    pp.KernelCall(0, (0, 3, 1)),
    pp.DelegateCall(0, (0, 1)),
    pp.MoveCall(0, 1),
    pp.JumpFalseCall(5, 5),
    pp.FreeCall(1),
)
PLAN = pp.Plan(
    name="forward",
    values=VALUES,
    inputs=(0,),
    outputs=(1,),
    chains=(pp.Chain((0,), (1,), CALLS),),
    operators=(pp.Operator("aten::mean", "out"), pp.Operator("f", "")),
    delegates=(
        pp.Delegate("VulkanBackend", pp.DelegateData(pp.DELEGATE_SEGMENT, 1)),
        pp.Delegate(
            "Other",
            pp.DelegateData(pp.DELEGATE_INLINE, 0),
            (pp.CompileSpec("key", memoryview(b"v")),),
        ),
        pp.Delegate("Empty", None),
    ),
    arena_sizes=(0, 100),
    container=pp.ContainerMetadata("in", "out"),
)
PROGRAM_OBJECT = pp.Program(
    version=0,
    plans=(PLAN, replace(PLAN, name="other")),
    inline_delegates=(memoryview(b"inline bytes"),),
    constant_segment=pp.SegmentOffsets(0, (0, 8)),
    named_data=(pp.NamedData("a", 1), pp.NamedData("b", 1)),
)
SEGMENTS = (bytes(range(40)), b"blob of the delegate")


def changed_plan(**change):
    return write_pte(replace(PROGRAM_OBJECT, plans=(replace(PLAN, **change),)), SEGMENTS)


def with_value(value):
    return changed_plan(values=(*VALUES, value))


def with_call(call):
    return changed_plan(chains=(pp.Chain((), (), (call,)),))


def test_everything_round_trips():
    pte = read_pte(write_pte(PROGRAM_OBJECT, SEGMENTS))
    assert replace(pte.program, segments=()) == PROGRAM_OBJECT
    assert pte.segments == SEGMENTS
    assert dict(pte.named_data) == {"a": SEGMENTS[1], "b": SEGMENTS[1]}
    plan = pte.plan("other")
    assert plan.literal(8) == (-7, -7)
    assert [plan.literal(number) for number in (3, 4, 5, 6, 7)] == [-7, 0.5, True, "mean", None]
    assert (plan.literal(11), plan.literal(12)) == ((1.5, 2.5), (True, False))
    assert plan.literal(0) == VALUES[0]
    assert plan.values[1].allocation.offset == 2 * 2**32 + 16
    assert [value.is_constant for value in plan.values[:3]] == [False, False, True]
    assert plan.values[0].dtype_name == "FLOAT"
    assert str(plan.operators[1]) == "f"
    with pytest.raises(FormatError, match=r"no such method; got 'x', need one of \['forward', 'other'\]"):
        pte.plan("x")


def test_delegates_inline_and_in_a_segment():
    pte = read_pte(write_pte(PROGRAM_OBJECT, SEGMENTS), "file")
    in_segment, inline, empty = pte.plan().delegates
    assert pte.delegate_data(in_segment) == SEGMENTS[1]
    assert pte.delegate_data(inline) == b"inline bytes"
    with pytest.raises(FormatError, match="file: delegate 'Empty': no data"):
        pte.delegate_data(empty)
    with pytest.raises(FormatError, match="file: delegate 0: header at byte 0: file too short"):
        list(pte.blobs(pte.plan()))


def test_tensor_data_wherever_it_lies():
    pte = read_pte(write_pte(PROGRAM_OBJECT, SEGMENTS))
    assert pte.tensor_data(VALUES[0]) is None
    assert pte.tensor_data(VALUES[2]) == SEGMENTS[0][8:32]

    buffers = replace(
        PROGRAM_OBJECT, constant_segment=None, constant_buffers=(memoryview(b""), memoryview(bytes(24)))
    )
    assert read_pte(write_pte(buffers, SEGMENTS)).tensor_data(VALUES[2]) == bytes(24)

    state = tensor((1,), data_index=1, allocation=pp.Allocation(), extra=pp.ExtraTensorInfo(1, "state"))
    mutable = replace(
        PROGRAM_OBJECT,
        plans=(replace(PLAN, values=(*VALUES, state)),),
        mutable_segments=(pp.SegmentOffsets(), pp.SegmentOffsets(0, (0, 36))),
    )
    assert read_pte(write_pte(mutable, SEGMENTS)).tensor_data(state) == SEGMENTS[0][36:]

    elsewhere = tensor(extra=pp.ExtraTensorInfo(0, "weight", pp.EXTERNAL))
    pte = read_pte(with_value(elsewhere))
    assert elsewhere.is_constant
    with pytest.raises(FormatError, match="data lies outside the file; got 'weight'"):
        pte.tensor_data(elsewhere)


def test_both_extended_headers_and_none():
    data = bytearray(write_pte(PROGRAM_OBJECT, SEGMENTS))
    long = read_pte(data)
    struct.pack_into("<I", data, EXTENDED_AT + 4, 24)
    struct.pack_into("<Q", data, EXTENDED_AT + 24, 2**64 - 1)
    assert read_pte(data).program == long.program

    plan = replace(PLAN, values=VALUES[:2], chains=(), delegates=())
    bare = pp.Program(0, (plan,))
    assert read_pte(encode(bare, PROGRAM)).program == bare
    with pytest.raises(FormatError, match=r"segments\[0\]: segment without an extended header"):
        read_pte(encode(replace(bare, segments=(pp.DataSegment(0, 4),)), PROGRAM))
    # as ExecuTorch writes a program without any constant
    empty = read_pte(encode(replace(bare, segments=(pp.DataSegment(0, 0),)), PROGRAM))
    assert [bytes(segment) for segment in empty.segments] == [b""]


HEADER_ERRORS = {
    "identifier": (4, b"ET11", "Program at byte 4: wrong file identifier; got b'ET11', need b'ET12'"),
    "header length": (12, struct.pack("<I", 23), "bad header length; got 23, need at least 24"),
    "program size": (16, struct.pack("<Q", 2**63), "sizes leave the file"),
    "segment base": (24, struct.pack("<Q", 2**64 - 1), "sizes leave the file"),
    "segment size": (32, struct.pack("<Q", 2**64 - 1), "sizes leave the file"),
    "base inside program": (24, struct.pack("<Q", 40), "sizes leave the file"),
    "shorter segments": (32, struct.pack("<Q", 20), "segment leaves the file"),
    "root": (0, struct.pack("<I", 2**31), "root at byte 0: offset leaves the file"),
}


@pytest.mark.parametrize("name", HEADER_ERRORS)
def test_header_errors(name):
    at, patch, message = HEADER_ERRORS[name]
    data = bytearray(write_pte(PROGRAM_OBJECT, SEGMENTS))
    data[at : at + len(patch)] = patch
    with pytest.raises(FormatError, match=r"^file\.pte: ") as caught:
        read_pte(data, "file.pte")
    assert message in str(caught.value)


BROKEN = {
    "input": (lambda: changed_plan(inputs=(13,)), "plans[0].inputs[0]: no such id; got 13, need 0 to 12"),
    "output": (lambda: changed_plan(outputs=(-1,)), "outputs[0]: no such id; got -1"),
    "kernel": (lambda: with_call(pp.KernelCall(2, ())), "instructions[0].op_index[0]: no such id; got 2"),
    "kernel argument": (lambda: with_call(pp.KernelCall(0, (0, 13))), "args[1]: no such id"),
    "delegate": (lambda: with_call(pp.DelegateCall(3, ())), "delegate_index[0]: no such id; got 3"),
    "delegate argument": (lambda: with_call(pp.DelegateCall(0, (-2,))), "args[0]: no such id; got -2"),
    "move": (lambda: with_call(pp.MoveCall(0, 99)), "instructions[0][1]: no such id; got 99"),
    "jump condition": (lambda: with_call(pp.JumpFalseCall(50, 0)), "condition[0]: no such id"),
    "jump": (lambda: with_call(pp.JumpFalseCall(5, 2)), "destination[0]: no such id; got 2, need 0 to 1"),
    "free": (lambda: with_call(pp.FreeCall(77)), "value_index[0]: no such id; got 77"),
    "chain": (lambda: changed_plan(chains=(pp.Chain((99,), (), ()),)), "chains[0].inputs[0]: no such id"),
    "list item": (lambda: with_value(pp.TensorList((-1,))), "items[0]: no such id; got -1"),
    "kind of item": (lambda: with_value(pp.IntIdList((0,))), "wrong kind of value; got Tensor, need Int"),
    "kind of tensor": (lambda: with_value(pp.OptionalTensorList((3,))), "got Int, need Tensor or Null"),
    "list of itself": (lambda: with_value(pp.TensorList((13,))), "got TensorList, need Tensor"),
    "dtype": (lambda: with_value(pp.Tensor(8, (), ())), "values[13].scalar_type: unknown code; got 8"),
    "dynamism": (lambda: with_value(tensor(shape_dynamism=3)), "shape_dynamism: unknown code; got 3"),
    "location": (lambda: with_value(tensor(extra=pp.ExtraTensorInfo(0, "", 2))), "location: unknown code"),
    "storage offset": (lambda: with_value(tensor(storage_offset=1)), "storage_offset: not supported"),
    "size": (lambda: with_value(tensor((2, -1))), "dims[1]: negative size; got -1, need at least 0"),
    "dim order": (lambda: with_value(pp.Tensor(6, (1, 1), (0, 0))), "dim_order: not an order of the dims"),
    "dim order rank": (lambda: with_value(pp.Tensor(6, (1,), ())), "not an order of the dims; got []"),
    "no such data": (lambda: with_value(tensor(data_index=2)), "no such data; got 2, need 0 to 1"),
    "data past the end": (lambda: with_value(tensor((9,), data_index=1)), "data leaves its segment"),
    "no state": (
        lambda: with_value(tensor(data_index=1, allocation=pp.Allocation())),
        "values[13]: no such buffer; got 1, need none: there are no such things",
    ),
    "place of a delegate": (
        lambda: changed_plan(delegates=(pp.Delegate("a", pp.DelegateData(2, 0)),)),
        "delegates[0].processed.location: unknown code; got 2, need one of [0, 1]",
    ),
    "delegate segment": (
        lambda: changed_plan(delegates=(pp.Delegate("a", pp.DelegateData(1, 2)),)),
        "delegates[0].processed.index[0]: no such id; got 2, need 0 to 1",
    ),
    "constant segment": (
        lambda: write_pte(replace(PROGRAM_OBJECT, constant_segment=pp.SegmentOffsets(2, (0, 0))), SEGMENTS),
        "values[2]: no such segment; got 2, need 0 to 1",
    ),
    "named segment": (
        lambda: write_pte(replace(PROGRAM_OBJECT, named_data=(pp.NamedData("k", 2),)), SEGMENTS),
        "named_data[0]: no such segment; got 2, need 0 to 1",
    ),
    "key twice": (
        lambda: write_pte(replace(PROGRAM_OBJECT, named_data=(pp.NamedData("k", 0),) * 2), SEGMENTS),
        "named_data[1]: key occurs twice; got 'k'",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_program(name):
    make, message = BROKEN[name]
    with pytest.raises(FormatError, match=r"^file\.pte: ") as caught:
        read_pte(make(), "file.pte")
    assert message in str(caught.value)


def test_limits():
    with pytest.raises(LimitError, match="exceeds the limit rank; got 9"):
        read_pte(with_value(tensor((1,) * 9)))
    with pytest.raises(LimitError, match="exceeds the limit tensor_bytes"):
        read_pte(with_value(tensor((2**31 - 1,))))
    with pytest.raises(LimitError, match="exceeds the limit total_bytes; got 72, need at most 71"):
        read_pte(write_pte(PROGRAM_OBJECT, SEGMENTS), limits=Limits(total_bytes=71))


def test_kind_of():
    pte = load(MODELS[0])
    assert kind_of(MODELS[0].read_bytes()) == "pte"
    assert kind_of(pte.delegate_data(pte.plan().delegates[0])) == "blob"
    assert [kind_of(data) for data in (b"", b"VH0", bytes(64))] == [None] * 3

"""Graphs that their schema allows and that still make no sense: reader and writer refuse them alike."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from refsim.core.errors import FormatError, GraphError, LimitError
from refsim.formats.flatbuffer.encode import encode
from refsim.formats.limits import Limits
from refsim.formats.literals import Int, Null
from refsim.formats.pte.read import load
from refsim.formats.vkgraph.read import HEADER, HEADER_MAGIC, read_blob
from refsim.formats.vkgraph.schema import (
    DEFAULT_STORAGE,
    NAMED_OFFSET,
    VKGRAPH,
    OperatorCall,
    ValueList,
    VkBytes,
    VkGraph,
    VkTensor,
)
from refsim.formats.vkgraph.write import named_constant, pack_constants, write_blob

FLOAT = 5
GOOD = VkGraph(
    version="0",
    chain=(OperatorCall(0, "aten.relu.default", (0, 1)),),
    values=(VkTensor(FLOAT, (2, 3)), VkTensor(FLOAT, (2, 3)), ValueList((0, 1)), Null(), Int(3)),
    input_ids=(0,),
    output_ids=(1,),
)
RAW = bytes(32)


def unchecked_blob(graph: VkGraph) -> bytes:
    body = encode(graph, VKGRAPH)
    return HEADER.pack(HEADER_MAGIC, HEADER.size, 30, len(body), 30 + len(body), len(RAW)) + body + RAW


def with_values(*values):
    return {"values": GOOD.values + values}


def floats(dims, **more):
    return with_values(VkTensor(FLOAT, dims, **more))


def nested_lists(depth):
    """Value 5 is a list of a tensor, each further one a list of the one before."""
    return with_values(ValueList((0,)), *(ValueList((4 + n,)) for n in range(1, depth)))


BROKEN = {
    "argument": (
        {"chain": (OperatorCall(0, "f", (0, 5)),)},
        "chain[0] 'f'.args[1]: no such id; got 5, need 0 to 4",
    ),
    "negative argument": ({"chain": (OperatorCall(0, "f", (-1,)),)}, "args[0]: no such id; got -1"),
    "no arguments": ({"chain": (OperatorCall(0, "f", ()),)}, "operator without arguments; got 0"),
    "input": ({"input_ids": (0, 9)}, "input_ids[1]: no such id; got 9"),
    "output": ({"output_ids": (2**32 - 1,)}, "output_ids[0]: no such id; got 4294967295"),
    "list item": (with_values(ValueList((77,))), "values[5].items[0]: no such id; got 77"),
    "list in itself": (with_values(ValueList((5,))), "values[5]: ValueList contains itself; got 5"),
    "lists in a ring": (with_values(ValueList((6,)), ValueList((5,))), "ValueList contains itself"),
    "datatype": (with_values(VkTensor(8, (1,))), "values[5].datatype: unknown code; got 8"),
    "staging datatype": (
        with_values(VkTensor(FLOAT, (1,), staging_datatype=-3)),
        "staging_datatype: unknown",
    ),
    "storage": (with_values(VkTensor(FLOAT, (1,), storage_type=3)), "storage_type: unknown code; got 3"),
    "override": ({"storage_type_override": 4}, "storage_type_override: unknown code; got 4"),
    "constant id": (with_values(VkTensor(FLOAT, (1,), constant_id=0)), "constant_id[0]: no such id; got 0"),
    "short constant": (
        {**with_values(VkTensor(FLOAT, (3,), constant_id=0)), "constants": (VkBytes(0, 11),)},
        "values[5]: constant too short for its dims; got 11, need 12 bytes",
    ),
    "constant range": ({"constants": (VkBytes(24, 9),)}, "constants[0]: byte range leaves the constants"),
    "constant wraps": ({"constants": (VkBytes(2**64 - 2, 2),)}, "need an end of at most 32"),
    "shader range": ({"shaders": (VkBytes(33, 0),)}, "shaders[0]: byte range leaves the constants"),
    "key": ({"constants": (VkBytes(NAMED_OFFSET, 1),)}, "named data without a key"),
}
LIMITED = {
    "rank": (floats((1,) * 9), "values[5].dims: exceeds the limit rank; got 9"),
    "elements": (floats((2**16, 2**14)), "exceeds the limit tensor_bytes; got 4294967296"),
    "one dim": (floats((0, 2**32 - 1)), "exceeds the limit tensor_bytes; got 4294967295"),
    "unset datatype": (with_values(VkTensor(127, (2**32 - 1,))), "exceeds the limit tensor_bytes"),
    "all tensors": (with_values(*[VkTensor(FLOAT, (2**29,))] * 9), "exceeds the limit total_bytes"),
    "list depth": (nested_lists(9), "exceeds the limit list_depth; got 9"),
    "list depth, either way round": (
        with_values(*(ValueList((6 + n,)) for n in range(5000)), Null()),
        "exceeds the limit list_depth",
    ),
    "list explosion": (
        with_values(*[ValueList((0,) * 300), ValueList((5,) * 300)]),
        "exceeds the limit list_items",
    ),
}


def test_the_good_graph_is_good():
    assert read_blob(unchecked_blob(GOOD)).graph == GOOD
    assert read_blob(write_blob(GOOD, RAW)).graph == GOOD
    read_blob(unchecked_blob(replace(GOOD, **nested_lists(8))))
    read_blob(unchecked_blob(replace(GOOD, **with_values(VkTensor(FLOAT, (0, 3)), VkTensor(FLOAT, ())))))
    read_blob(unchecked_blob(replace(GOOD, memory_layout_override=77, storage_type_override=DEFAULT_STORAGE)))


@pytest.mark.parametrize(
    ("error", "change", "message"),
    [
        pytest.param(error, *row, id=name)
        for error, rows in ((FormatError, BROKEN), (LimitError, LIMITED))
        for name, row in rows.items()
    ],
)
def test_broken_graph(error, change, message):
    graph = replace(GOOD, **change)
    blob = unchecked_blob(graph)
    for attempt in (lambda: read_blob(blob, "name"), lambda: write_blob(graph, RAW, "name")):
        with pytest.raises(error, match=r"^name: ") as caught:
            attempt()
        assert message in str(caught.value)


def test_names_from_a_file_are_escaped_and_cut():
    graph = replace(GOOD, chain=(OperatorCall(0, "\x1b[2J" + "x" * 1000, (9,)),))
    with pytest.raises(FormatError) as caught:
        read_blob(unchecked_blob(graph))
    assert "\\x1b" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_long_row_of_shallow_lists_is_fine():
    lists = (ValueList((0, 1, 3)),) * 2000
    assert len(read_blob(write_blob(replace(GOOD, **with_values(*lists)), RAW)).graph.values) == 2005


# --- real delegates ---


MODELS = sorted((Path(__file__).parents[1] / "data" / "models").glob("*.pte"))


def simple_blob() -> bytearray:
    pte = load(MODELS[0])
    return bytearray(pte.delegate_data(pte.plan().delegates[0]))


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_constants_fill_their_tensors_without_a_copy(path):
    pte = load(path)
    for _, blob in pte.blobs(pte.plan()):
        used = [value for value in blob.graph.values if isinstance(value, VkTensor) and value.is_constant]
        assert used
        for value in used:
            data = blob.constants[value.constant_id]
            assert len(data) == value.nbytes
            assert data.readonly
            assert data.obj is pte.segments[0].obj
        assert len(list(blob.constants)) == len(blob.constants)


def test_inline_and_named_constants():
    blob = read_blob(simple_blob())
    rows, raw = pack_constants([b"abc", named_constant("key", 2), b"", b"defg"])
    graph = replace(blob.graph, constants=rows, values=(VkTensor(2, (3,), constant_id=0),) * 40)
    again = read_blob(write_blob(graph, raw), named={"key": memoryview(b"xyz")})
    assert [bytes(part) for part in again.constants] == [b"abc", b"xy", b"", b"defg"]
    assert [row.offset % 16 for row in rows if not row.named_key] == [0, 0, 0]

    with pytest.raises(GraphError, match="missing constant; got 'key', need one of 1 keys"):
        read_blob(write_blob(graph, raw), named={"other": memoryview(b"")}).constants[1]
    with pytest.raises(FormatError, match="named data too short; got 1, need 2 bytes"):
        read_blob(write_blob(graph, raw), named={"key": memoryview(b"x")}).constants[1]
    with pytest.raises(GraphError, match="no such constant; got 4"):
        _ = again.constants[4]


def test_the_four_leading_bytes_are_free():
    blob = simple_blob()
    blob[:4] = b"\x01\x02\x03\x04"
    assert read_blob(blob).graph == read_blob(simple_blob()).graph


HEADER_ERRORS = {
    "magic": (4, b"VH01", "wrong magic; got b'VH01', need b'VH00'"),
    "length": (8, struct.pack("<H", 31), "wrong header length; got 31, need 30"),
    "flatbuffer inside the header": (10, struct.pack("<I", 29), "region leaves the file; got offset 29"),
    "flatbuffer past the end": (14, struct.pack("<I", 2**32 - 1), "need within 30 to"),
    "constants before the flatbuffer": (18, struct.pack("<I", 32), "constants offset at byte 18"),
    "constants past the end": (22, struct.pack("<Q", 2**64 - 1), "size 18446744073709551615"),
}


@pytest.mark.parametrize("name", HEADER_ERRORS)
def test_header_errors(name):
    at, patch, message = HEADER_ERRORS[name]
    blob = simple_blob()
    blob[at : at + len(patch)] = patch
    with pytest.raises(FormatError, match=r"^file\.bin: ") as caught:
        read_blob(blob, "file.bin")
    assert message in str(caught.value)


def test_identifier_of_the_flatbuffer():
    blob = simple_blob()
    start = HEADER.unpack_from(blob)[2]
    blob[start + 4 : start + 8] = b"VK99"
    with pytest.raises(FormatError, match=f"VkGraph at byte {start + 4}: wrong file identifier; got b'VK99'"):
        read_blob(blob)


def test_limits_are_the_callers():
    blob = simple_blob()
    with pytest.raises(LimitError, match="exceeds the limit tensor_bytes; got 8192, need at most 1000"):
        read_blob(blob, limits=Limits(tensor_bytes=1000))
    with pytest.raises(LimitError, match="exceeds the limit total_bytes"):
        read_blob(blob, limits=Limits(total_bytes=2000))
    with pytest.raises(LimitError, match="exceeds the limit rank; got 2, need at most 1"):
        read_blob(blob, limits=Limits(rank=1))

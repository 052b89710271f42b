"""Delegate blobs: real ones against what ExecuTorch said of them, broken ones against their errors."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from refsim.core.errors import FormatError, GraphError, LimitError
from refsim.formats.limits import Limits
from refsim.formats.pte.read import load
from refsim.formats.vkgraph.read import HEADER, read_blob
from refsim.formats.vkgraph.schema import VkTensor
from refsim.formats.vkgraph.write import named_constant, pack_constants, write_blob

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

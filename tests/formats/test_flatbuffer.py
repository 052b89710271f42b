"""The flatbuffer decoder: shared and unknown parts are fine, overlapping and broken ones are refused."""

import struct
import tracemalloc
from dataclasses import replace

import flatbuffers
import pytest

from refsim.core.errors import FormatError, LimitError
from refsim.formats.file import quote, view
from refsim.formats.flatbuffer import decode as decoder
from refsim.formats.flatbuffer.decode import decode
from refsim.formats.flatbuffer.encode import encode
from refsim.formats.literals import Int, IntList, Null, String
from refsim.formats.vkgraph.schema import VKGRAPH, OperatorCall, VkGraph

EMPTY = VkGraph("", (), (), (), ())


def read(data):
    return decode(view(data), VKGRAPH, "file", base=100)


def finish(builder, slots, count=9):
    """A file whose root holds the given offsets by slot."""
    builder.StartObject(count)
    for slot, offset in slots.items():
        builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    builder.Finish(builder.EndObject(), file_identifier=b"VK00")
    return bytes(builder.Output())


def patched(data, old, new):
    assert data.count(old) == 1
    return data.replace(old, new)


def test_absent_fields_take_their_defaults():
    assert read(finish(flatbuffers.Builder(), {})) == EMPTY


def test_fields_that_the_schema_does_not_know_are_skipped():
    builder = flatbuffers.Builder()
    name = builder.CreateString("newer")
    assert read(finish(builder, {0: name, 14: name}, count=15)) == replace(EMPTY, version="newer")


def test_objects_may_be_shared():
    builder = flatbuffers.Builder()
    name = builder.CreateString("f" * 100)
    builder.StartObject(3)
    builder.PrependUOffsetTRelativeSlot(1, name, 0)
    call = builder.EndObject()
    builder.StartVector(4, 1000, 4)
    for _ in range(1000):
        builder.PrependUOffsetTRelative(call)
    graph = read(finish(builder, {0: name, 1: builder.EndVector()}))
    assert graph.chain == (OperatorCall(0, "f" * 100, ()),) * 1000
    assert len({id(call) for call in graph.chain}) == 1


def test_overlapping_vectors_cannot_multiply_memory():
    marks = [struct.pack("<Iq", 1, 0x7A00000000 + n) for n in range(2000)]
    data = encode(replace(EMPTY, values=tuple(IntList((0x7A00000000 + n,)) for n in range(2000))), VKGRAPH)
    bomb = bytearray(data)
    for mark in marks:
        at = data.index(mark)
        struct.pack_into("<I", bomb, at, (len(data) - at - 4) // 8)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="objects overlap"):
            read(bytes(bomb))
        assert tracemalloc.get_traced_memory()[1] < 40 * len(data)
    finally:
        tracemalloc.stop()


def test_number_of_objects_is_limited(monkeypatch):
    data = encode(replace(EMPTY, values=tuple(Int(n) for n in range(60))), VKGRAPH)
    assert len(read(data).values) == 60
    monkeypatch.setattr(decoder, "MAX_OBJECTS", 100)
    with pytest.raises(LimitError, match=r"file: too many objects; got 10\d, need at most 100"):
        read(data)


ONE = encode(replace(EMPTY, version="ver", values=(String("héllo"), Null())), VKGRAPH)
ROOT = struct.unpack_from("<I", ONE)[0]
VTABLE = ROOT - struct.unpack_from("<i", ONE, ROOT)[0]


def stomp(at, code, value):
    data = bytearray(ONE)
    struct.pack_into("<" + code, data, at, value)
    return bytes(data)


BROKEN = {
    "short": (ONE[:7], "VkGraph at byte 100: flatbuffer too short; got 7 bytes, need at least 8"),
    "not utf-8": (
        patched(ONE, "héllo".encode(), b"h\xff\xffllo"),
        "String.value at byte",
    ),
    "string without end": (patched(ONE, b"ver\0", b"ver!"), "string without its end; got 33, need 0"),
    "long string": (
        patched(ONE, b"\x03\0\0\0ver\0", b"\xff\xff\xff\xffver\0"),
        "VkGraph.version at byte",
    ),
    "root": (stomp(0, "I", len(ONE) - 3), "root at byte 100: offset leaves the file"),
    "root at itself": (stomp(0, "I", 0), "offset leaves the file; got 0, need 4 to"),
    "vtable before the file": (stomp(ROOT, "i", ROOT + 1), "vtable leaves the file; got -1"),
    "vtable behind the file": (stomp(ROOT, "i", -(2**31)), "vtable leaves the file"),
    "vtable size": (stomp(VTABLE, "H", 3), "bad vtable size; got 3"),
    "vtable runs out": (stomp(VTABLE, "H", 0xFFFE), "bad vtable size; got 65534"),
    "table size": (stomp(VTABLE + 2, "H", 0xFFFF), "bad table size; got 65535"),
    "field outside its table": (stomp(VTABLE + 4, "H", 0x7FFF), "VkGraph.version at byte"),
    "field on the vtable offset": (stomp(VTABLE + 4, "H", 3), "field leaves its table; got 3"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name):
    data, message = BROKEN[name]
    assert read(ONE).values[0] == String("héllo")
    with pytest.raises(FormatError, match=r"^file: .* at byte [12]\d\d: .*; got .*, need ") as caught:
        read(data)
    assert message in str(caught.value)


@pytest.mark.parametrize(("kind", "offset"), [(0, 8), (12, 8), (255, 8), (1, 0)])
def test_unions(kind, offset):
    builder = flatbuffers.Builder()
    builder.StartObject(0)
    null = builder.EndObject()
    builder.StartObject(2)
    builder.PrependUint8Slot(0, kind, 0)
    if offset:
        builder.PrependUOffsetTRelativeSlot(1, null, 0)
    value = builder.EndObject()
    builder.StartVector(4, 1, 4)
    builder.PrependUOffsetTRelative(value)
    data = finish(builder, {2: builder.EndVector()})
    with pytest.raises(FormatError, match=r"VkValue\.value at byte \d+: (unknown kind|kind without a value)"):
        read(data)


def test_quote():
    assert quote("a\nb") == "'a\\nb'"
    assert len(quote("x" * 500)) == 80

"""read(write(g)) == g for any graph, with bytes that are the same every time and that upstream accepts."""

import math
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refsim.core.errors import FormatError, RefsimError
from refsim.formats import literals
from refsim.formats.file import view
from refsim.formats.flatbuffer.decode import decode
from refsim.formats.flatbuffer.encode import encode
from refsim.formats.pte.read import load, read_pte
from refsim.formats.pte.schema import PROGRAM
from refsim.formats.pte.write import write_pte
from refsim.formats.vkgraph import schema as vk
from refsim.formats.vkgraph.read import HEADER, read_blob
from refsim.formats.vkgraph.write import pack_constants, write_blob

MODELS = sorted((Path(__file__).parents[1] / "data" / "models").glob("*.pte"))

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
doubles = st.floats(allow_nan=False)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def tuples(element):
    return st.lists(element, max_size=5).map(tuple)


free = st.builds(
    vk.VkTensor,
    datatype=st.sampled_from(sorted(vk.DATATYPES)),
    dims=tuples(st.integers(0, 20)),
    mem_obj_id=int32,
    storage_type=st.sampled_from(sorted(vk.STORAGES)),
    memory_layout=st.integers(0, 255),
    staging_datatype=st.sampled_from(sorted(vk.DATATYPES)),
)
plain = st.one_of(
    free,
    st.just(literals.Null()),
    st.builds(literals.Int, int64),
    st.builds(literals.Double, doubles),
    st.builds(literals.Bool, st.booleans()),
    st.builds(literals.IntList, tuples(int64)),
    st.builds(literals.DoubleList, tuples(doubles)),
    st.builds(literals.BoolList, tuples(st.booleans())),
    st.builds(literals.String, text),
    st.builds(vk.SymInt, int32),
)
named = tuples(st.builds(vk.VkBytes, st.just(vk.NAMED_OFFSET), st.integers(0, 99), text.filter(bool)))


@st.composite
def graphs(draw):
    """A graph that passes the checks, with its constants region."""
    parts = draw(st.lists(st.binary(max_size=40), max_size=4))
    rows, raw = pack_constants(parts)
    rows += draw(named)
    constant = st.integers(0, max(len(rows) - 1, 0)).map(
        lambda number: vk.VkTensor(2, (rows[number].length,), number) if rows else literals.Null()
    )
    values = draw(st.lists(st.one_of(constant, plain), min_size=1, max_size=8))
    ids = tuples(st.integers(0, len(values) - 1))
    values += draw(st.lists(st.builds(vk.ValueList, ids), max_size=2))
    call = st.builds(vk.OperatorCall, st.integers(0, 2**32 - 1), text, ids.filter(bool))
    graph = vk.VkGraph(
        version=draw(text),
        chain=draw(tuples(call)),
        values=tuple(values),
        input_ids=draw(ids),
        output_ids=draw(ids),
        constants=rows,
        storage_type_override=draw(st.sampled_from(sorted(vk.STORAGES))),
        memory_layout_override=draw(st.integers(0, 255)),
    )
    return graph, raw


@settings(max_examples=100)
@given(graphs())
def test_round_trip(case):
    graph, raw = case
    blob = write_blob(graph, raw)
    again = read_blob(blob, named={row.named_key: memoryview(bytes(99)) for row in graph.constants})
    assert again.graph == graph
    assert write_blob(again.graph, raw) == blob
    assert (
        b"".join(bytes(part).ljust(len(part) + -len(part) % 16, b"\0") for part in again.constants)[
            : len(raw)
        ]
        == raw
    )
    assert len(blob) % 16 == 0


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_real_programs_round_trip(path):
    pte = load(path)
    again = read_pte(write_pte(pte.program, pte.segments))
    assert again.program.plans == pte.program.plans
    assert again.segments == pte.segments
    assert dict(again.named_data) == dict(pte.named_data)
    body = encode(pte.program, PROGRAM)
    assert decode(view(body), PROGRAM, "program") == pte.program


def one_value(value) -> vk.VkGraph:
    return vk.VkGraph("0", (), (value,), (), ())


@pytest.mark.parametrize(
    "bits", [0x8000000000000000, 0x7FF8000000000123, 0x0000000000000001, 0xFFF0000000000000]
)
def test_doubles_keep_their_bits(bits):
    (value,) = struct.unpack("<d", struct.pack("<Q", bits))
    for item in (literals.Double(value), literals.DoubleList((value,))):
        (read,) = read_blob(write_blob(one_value(item))).graph.values
        found = read.value if isinstance(read, literals.Double) else read.items[0]
        assert struct.pack("<d", found) == struct.pack("<Q", bits)
    assert math.copysign(1, value) == (-1 if bits >> 63 else 1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            literals.Int(2**63),
            "Int.value: cannot be written; got 9223372036854775808, need a value that fits a long",
        ),
        (vk.SymInt(-(2**31) - 1), "SymInt.value"),
        (vk.VkTensor(5, (2**32,)), "limit tensor_bytes"),
        (literals.Int("3"), "Int.value: cannot be written; got '3', need a long"),
        (literals.Int(1.5), "got 1.5, need a long"),
        (literals.Bool(2), "need a bool"),
        (literals.String("\ud800"), "text that UTF-8 can hold"),
        (literals.String(b"x"), "need a str"),
        ("text", "VkValue.value: cannot be written; got 'text', need one of Null, Int"),
        (literals.IntList((2**64,)), "IntList.items"),
    ],
)
def test_values_that_no_file_can_hold(value, message):
    with pytest.raises(RefsimError, match=r"^here: ") as caught:
        write_blob(one_value(value), where="here")
    assert message in str(caught.value)


def test_encoding_by_the_wrong_schema():
    graph = one_value(literals.Null())
    with pytest.raises(FormatError, match="Program: cannot be written"):
        encode(graph, PROGRAM)


def test_regions_are_aligned():
    rows, raw = pack_constants([b"a" * 17, b"b"])
    blob = write_blob(replace(one_value(literals.Null()), constants=rows), raw[:-3])
    _, _, start, size, raw_start, raw_size = HEADER.unpack_from(blob)
    assert (start, raw_start % 16, raw_size) == (32, 0, 48)
    assert rows == (vk.VkBytes(0, 17), vk.VkBytes(32, 1))
    assert raw_start - start - size < 16

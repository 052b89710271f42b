"""refsim locate: both directions agree for every byte, padding is called so, and nonsense is refused."""

from __future__ import annotations

import numpy as np
import pytest

from refsim.core.buffer import ByteKind, byte_kinds, offsets
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS
from refsim.core.locate import at_byte, at_index
from refsim.core.tensor import TensorDesc

SHAPES = [(3,), (6, 5), (5, 3, 6), (2, 6, 3, 5), (2, 1, 3, 5, 2, 3)]


@pytest.mark.parametrize("layout", (*INT8_LAYOUTS, *FLOAT_LAYOUTS), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_byte_both_ways(layout, shape: tuple[int, ...]) -> None:
    desc = TensorDesc(shape, layout)
    step = 1 if desc.is_int8 else 4
    kinds = byte_kinds(desc) if desc.is_int8 else np.zeros(desc.nbytes, np.uint8)
    places = offsets(desc).reshape(shape) * step
    seen = set()
    for byte in range(0, desc.nbytes, step):
        place = at_byte(desc, byte)
        assert place.kind == kinds[byte] and place.byte == byte and place.word == byte // 4
        assert place.block * layout.block_numel + place.intra == byte // step
        if place.kind is ByteKind.VALUE:
            assert places[place.index] == byte
            assert at_index(desc, place.index) == place
            seen.add(place.index)
        else:
            beyond = [i >= s for i, s in zip(place.index[-len(shape) :], shape, strict=True)]
            assert any(beyond) or len(place.index) > len(shape)
    assert len(seen) == desc.numel


def test_text_and_json_say_the_same(refsim) -> None:
    text = refsim("locate -l 4W4C -s 1,6,3,5 --byte 29")
    assert text.status == 0
    found = {line[:16].strip(): line[16:] for line in text.out.splitlines()}
    assert found["index"] == "0,5,0,3" and found["kind"] == "value" and found["word"] == "7"
    facts = refsim("locate -l 4W4C -s 1,6,3,5 --index 0,5,0,3 --json").json
    assert facts["byte"] == 29 and facts["lane"] == 1 and facts["block"] == 1
    assert facts["place_in_block"] == 13
    assert facts["kind"] == "value" and facts["bytes"] == 192 and facts["layout"] == "PACKED_INT8_4W4C"


def test_padding_is_named(refsim) -> None:
    def kind(byte: int) -> str:
        return refsim(f"locate -l 4W4C -s 1,6,3,5 --byte {byte} --json").json["kind"]

    assert [kind(b) for b in (0, 16, 18, 36)] == ["value", "value", "lane padding", "word padding"]

"""refsim pack, unpack and locate: the bytes that PackedBuffer gives, and back; where each lies; nothing half done."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds, offsets
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS
from refsim.core.locate import at_byte, at_index
from refsim.core.tensor import TensorDesc

ARRAY = np.arange(1 * 6 * 3 * 5, dtype=np.int8).reshape(1, 6, 3, 5)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", ARRAY)


@pytest.mark.parametrize("layout", (*INT8_LAYOUTS, *FLOAT_LAYOUTS), ids=str)
def test_bytes_are_those_of_the_layout_and_unpack_undoes_pack(layout, refsim) -> None:
    padding = dict(lane=-7, word=9) if layout.packed_int8 else {}
    array = ARRAY if layout.packed_int8 else ARRAY.astype(np.float32)
    np.save("a.npy", array)
    options = [word for name, value in padding.items() for word in (f"--{name}", value)]
    done = refsim(f"pack a.npy -l {layout.short_name} -o a.bin --sidecar --json", *options)
    expected = PackedBuffer.pack(array, layout, **padding)
    assert done.status == 0 and Path("a.bin").read_bytes() == expected.raw.tobytes()
    assert done.json["bytes"] == expected.desc.nbytes and done.json["layout"] == layout.name
    sidecar = json.loads(Path("a.json").read_text())
    assert sidecar == dict(value="a", shape=[1, 6, 3, 5], layout=layout.name, dtype=array.dtype.name)
    for place in ("", f"-l {layout.name} -s 1x6x3x5"):
        back = refsim(f"unpack a.bin -o back{len(place)}.npy --json {place}")
        assert back.status == 0 and back.json["shape"] == [1, 6, 3, 5]
        assert back.json["dtype"] == array.dtype.name
        assert np.array_equal(np.load(f"back{len(place)}.npy"), array)


def test_fortran_order_is_the_same_array(refsim) -> None:
    np.save("f.npy", np.asfortranarray(ARRAY))
    for name in "af":
        assert refsim(f"pack {name}.npy -l 4W4C -o {name}.bin").status == 0
    assert Path("a.bin").read_bytes() == Path("f.bin").read_bytes()


def test_an_array_of_an_npz_is_taken(refsim) -> None:
    np.savez("one.npz", out0=ARRAY)
    np.savez("two.npz", out0=ARRAY.astype(np.float32), out1=ARRAY)
    for number, given in enumerate(("one.npz", "one.npz --array out0", "two.npz --array out1")):
        assert refsim(f"pack {given} -l 4C -o {number}.bin").status == 0, given
        assert Path(f"{number}.bin").read_bytes() == PackedBuffer.pack(ARRAY, "4C").raw.tobytes()


def good() -> bytes:
    return Path("a.npy").read_bytes()


#: What the error says of it -> a file that is no array, or the array in one that fits no layout.
BAD = {
    "ends too early": lambda: good()[:-1],
    "not a readable array file": lambda: b"hello world, this is no array",
    "not a readable array file; got an empty": lambda: b"",
    "shorter than it says": lambda: good().replace(b"(1, 6, 3, 5)", b"(1,6,3,9999999)"),
    "not the header of an array": lambda: good()[:50],
    "unknown .npy version": lambda: good()[:6] + b"\x07" + good()[7:],
    "does not hold numbers": lambda: good().replace(b"'|i1'", b"'|O8'"),
    "wrong dtype for 4C; got int32, need int8": lambda: ARRAY.astype(np.int32),
    "unsupported rank; got [1, 1, 1": lambda: np.zeros([1] * 9, np.int8),
    "unsupported rank; got []": lambda: np.int8(3),
    "a size is below 1": lambda: np.zeros((1, 0, 3, 5), np.int8),
}


@pytest.mark.parametrize("said", BAD)
def test_bad_input_is_one_line_and_writes_nothing(said: str, refsim) -> None:
    content = BAD[said]()
    if isinstance(content, bytes):
        Path("bad.npy").write_bytes(content)
    else:
        np.save("bad.npy", content)
    refsim("pack bad.npy -l 4C -o out.bin").refused(said)
    assert sorted(path.name for path in Path().iterdir()) == ["a.npy", "bad.npy"]


def test_a_sidecar_that_says_something_else_is_an_error(refsim) -> None:
    """As many bytes in another shape would be another array."""
    np.save("a.npy", np.arange(96, dtype=np.int8).reshape(1, 6, 4, 4))
    for name, layout in (("a", "4C"), ("c", "4W4C")):
        assert refsim(f"pack a.npy -l {layout} -o {name}.bin --sidecar").status == 0
    for verb in ("unpack a.bin -o b.npy", "diff a.bin a.bin"):
        other = refsim(f"{verb} -l 4C -s 1,6,2,8")
        other.refused("a.json: says another shape of a.bin; got (1, 6, 2, 8), need (1, 6, 4, 4)")
        refsim(f"{verb} -l 4C1W -s 1,6,4,4").refused("says another layout")
        assert refsim(f"{verb} -l 4C -s 1,6,4,4").status == 0
    two = refsim("diff a.bin c.bin")
    two.refused("c.json: says another layout of c.bin; got 4C of a.json, need 4W4C, as it says")
    case = refsim("diff a.bin a.bin --case q8ta_add/0003")
    case.refused("a.json: says another layout of a.bin; got 4W4C of --case q8ta_add/0003, need 4C")
    Path("a.json").write_text('{"shape": [1, 2]}')
    refsim("unpack a.bin -o c.npy").refused("not a sidecar")
    Path("a.json").write_text("notes of somebody else")
    assert refsim("unpack a.bin -l 4C -s 1,6,2,8 -o c.npy").status == 0


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


def test_an_index_past_the_rank_is_one_of_a_larger_shape(refsim) -> None:
    said = refsim("locate -l 4W4C -s 6,12 --byte 2").out
    assert "index           2,0,0 of 1,6,12\n" in said
    assert "index           1,0\n" in refsim("locate -l 4W4C -s 6,12 --index 1,0").out

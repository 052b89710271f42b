"""refsim pack, unpack, locate and diff: the bytes of PackedBuffer, where each lies, and what differs and why."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from saved import contents

from refsim.bytediff import report, search
from refsim.bytediff.defects import Start
from refsim.bytediff.evidence import Evidence
from refsim.bytediff.rank import Cause
from refsim.core.buffer import ByteKind, PackedBuffer, byte_kinds, offsets
from refsim.core.layout import FLOAT_LAYOUTS, INT8_LAYOUTS
from refsim.core.locate import at_byte, at_index
from refsim.core.qmath import PROFILES
from refsim.core.tensor import TensorDesc
from refsim.formats.cases import Stored
from refsim.golden.named import open_case
from refsim.ops.base.spec import Call
from refsim.ops.q8ta_add import ALPHA_IGNORED

ARRAY = np.arange(1 * 6 * 3 * 5, dtype=np.int8).reshape(1, 6, 3, 5)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array; its buffer, and one whose words have their lanes rotated."""
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", ARRAY)
    good = PackedBuffer.pack(ARRAY, "4W4C").raw
    good.tofile("a.bin")
    np.roll(good.reshape(-1, 4), 1, 1).tofile("b.bin")


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
    before = contents(Path())
    refsim("pack bad.npy -l 4C -o out.bin").refused(said)
    assert contents(Path()) == before


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


# --- diff ------------------------------------------------------------------------------------------------

PLACE = "-l 4W4C -s 1,6,3,5"
PAIR = f"diff a.bin b.bin {PLACE}"


def test_same_is_0_and_different_is_1_with_its_cause(refsim) -> None:
    done = refsim(f"diff a.bin a.bin {PLACE}")
    assert done.status == 0 and done.out.splitlines()[0] == "1x6x3x5 4W4C: the same"
    done = refsim(f"{PAIR} --limit 3 --html r.html")
    assert done.status == 1 and "\x1b" not in done.out and done.err.startswith("rerun: refsim diff ")
    assert "1. lanes rotated: output words rotated by 1 (predicts every byte)" in done.out
    assert "first 3 of" in done.out and "lanes rotated" in Path("r.html").read_text()
    # without the call nobody knows who wrote a word: that takes no column, and the text says how to learn it
    assert "workgroup" not in done.out and "invocation" not in done.out and "  word  lane  " in done.out
    assert any("--case CASE" in line for line in done.out.splitlines()[-2:])


def test_json_holds_what_the_text_says(refsim) -> None:
    facts = refsim(f"{PAIR} --json").json["report"]
    assert (
        facts["same"] is False
        and facts["layout"] == "PACKED_INT8_4W4C"
        and facts["shape"] == list(ARRAY.shape)
    )
    assert facts["causes"][0]["name"] == "lanes rotated" and facts["causes"][0]["exact"] is True
    counts = {count["kind"]: count for count in facts["counts"]}
    assert sum(count["bytes"] for count in counts.values()) == 192
    assert sum(count["different"] for count in counts.values()) == facts["differing"]
    first = facts["differences"][0]
    assert first["byte"] == 0 and first["index"] == [0, 0, 0, 0] and first["kind"] == "value"
    assert (first["expected"], first["actual"], first["legal"]) == (0, 45, [])


def test_another_buffer_is_recognized(refsim) -> None:
    np.random.default_rng(1).integers(0, 256, 192).astype(np.uint8).tofile("c.bin")
    (first, *_) = refsim(f"diff a.bin c.bin {PLACE} --other c.bin --json").json["report"]["causes"]
    assert first["name"] == "stale or foreign buffer" and "c.bin" in first["detail"]


def test_layout_and_shape_come_from_a_sidecar(refsim) -> None:
    Path("b.json").write_text('{"value": "b", "shape": [1, 6, 3, 5], "layout": "PACKED_INT8_4W4C"}')
    assert refsim("diff a.bin b.bin").status == 1


def test_a_limit_of_0_says_that_nothing_is_listed(refsim) -> None:
    done = refsim(f"{PAIR} --limit 0 --html page.html")
    assert done.status == 1 and re.search(r"^\d+ differences, none listed: the limit is 0$", done.out, re.M)
    assert "expected  actual" not in done.out and "expected  actual" in refsim(f"{PAIR} --limit 1").out
    page = Path("page.html").read_text()
    assert "First 0 of" not in page and "none listed: the limit is 0" in page


def test_how_long_to_look_for_a_cause(monkeypatch: pytest.MonkeyPatch, refsim) -> None:
    asked: list[float] = []

    def explained(ev: Evidence, seconds: float, like: Sequence[str]) -> tuple[Start, list[Cause]]:
        asked.append(seconds)
        return Start(ev), []

    monkeypatch.setattr(report, "explained", explained)
    monkeypatch.setenv(search.VARIABLE, "7")
    assert [refsim(PAIR, *more).status for more in (("--search", 2.5), (), ("--search", 0))] == [1, 1, 1]
    assert asked == [2.5, 7, 0]


# --- with a case -----------------------------------------------------------------------------------------


def stored(case: str) -> tuple[Stored, Call]:
    """A case, whose right bytes lie in a.bin then, and its call."""
    held = open_case(case)
    held.expected.raw.tofile("a.bin")
    return held, held.bound.call


@pytest.mark.long
def test_a_case_lets_each_byte_be_judged_by_the_profiles(refsim) -> None:
    """A GPU that fuses its multiply-adds writes two other bytes, which its profile allows and others do not."""
    held, call = stored("q8ta_add/0105")
    call = call.under(PROFILES["nvidia"])
    call.expected(held.bound.inputs).raw.tofile("b.bin")
    pair = "diff a.bin b.bin --case q8ta_add/0105"
    found = refsim(f"{pair} --json").json["report"]
    assert [row["legal"] for row in found["differences"]] == [["nvidia"]] * 2
    assert found["differences"][0]["invocation"] is not None
    assert found["legal"]["nvidia"] == {"explains": 2, "contradicts": 0}
    text = refsim(pair)
    assert text.status == 1 and "workgroup  invocation" in text.out and "--case" not in text.out
    legal, other = refsim(f"{pair} --profile nvidia"), refsim(f"{pair} --profile lavapipe")
    assert legal.status == 0 and ": 2 bytes differ, as profile nvidia allows\n" in legal.out
    assert other.status == 1 and "2 of them not as profile lavapipe has them" in other.out


def test_a_known_defect_comes_off_before_the_bug_beside_it(refsim) -> None:
    held, call = stored("q8ta_add/0107")
    params = replace(call.params, alpha=1.0, b_zp=call.params.a_zp)
    replace(call, params=params).expected(held.bound.inputs).raw.tofile("b.bin")
    facts = refsim("diff a.bin b.bin --case q8ta_add/0107 --json").json["report"]
    first = facts["causes"][0]
    assert ALPHA_IGNORED.note in facts["pattern"][0]
    assert (first["name"], first["exact"], first["weak"]) == ("another tensor's quantization", True, False)


CASE = "q8ta_conv2d/0019"


@pytest.fixture
def of_case(here: None) -> None:
    """What a case expects in a.bin, the same with two wrong bytes in b.bin, and zeros in c.bin."""
    wrong = stored(CASE)[0].expected.raw.copy()
    wrong[[0, 4]] ^= 3
    wrong.tofile("b.bin")
    np.zeros_like(wrong).tofile("c.bin")


@pytest.mark.long
def test_two_buffers_the_wrong_way_round_are_told_so(of_case: None, refsim) -> None:
    """Every cause that changes nothing in a case reproduces its right bytes; none of them is the cause of these."""
    done = refsim(f"diff b.bin a.bin --case {CASE} --limit 2 --html page.html")
    assert done.status == 1 and "predicts every byte" not in done.out
    assert "likely cause: none is sought, since the actual bytes are right" in done.out
    ask = f"a.bin is what {CASE} expects, b.bin is not: are they the wrong way round? refsim "
    (line,) = (line for line in done.out.splitlines() if line.startswith(ask))
    again = line.removeprefix(ask)
    assert again.startswith(f"diff a.bin b.bin --case {CASE}") and ask in Path("page.html").read_text()
    back = refsim(again)
    assert back.status == 1 and "the wrong way round" not in back.out
    facts = refsim(f"diff b.bin a.bin --case {CASE} --json").json
    assert facts["report"]["causes"] == [] and facts["apart"] is None
    assert facts["of_case"] == [f"{line[: line.index(' --limit')]} --json"]
    assert refsim(f"diff a.bin b.bin --case {CASE} --json").json["of_case"] == []


def test_an_expected_buffer_that_is_not_the_case_s_is_told_so(of_case: None, refsim) -> None:
    """Bytes that are right have no cause, though a cause that changes nothing predicts them."""
    done = refsim(f"diff c.bin b.bin --case {CASE}")
    compare = f"replay {CASE} --actual b.bin"
    assert done.status == 1
    assert f"c.bin is not what {CASE} expects; to compare b.bin with that: refsim {compare}" in done.out
    assert refsim(f"diff c.bin b.bin --case {CASE} --json").json["report"]["causes"] == []
    assert refsim(compare).status == 1
    assert "c.bin is not what" in refsim(f"diff c.bin c.bin --case {CASE}").out

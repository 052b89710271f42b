"""refsim diff: verdicts, text and JSON, sidecars, and two buffers that are not what a case expects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from refsim.bytediff import report, search
from refsim.bytediff.defects import Start
from refsim.bytediff.evidence import Evidence
from refsim.bytediff.rank import Cause
from refsim.core.buffer import PackedBuffer
from refsim.core.qmath import PROFILES
from refsim.formats.cases import Stored
from refsim.golden.named import open_case
from refsim.ops.base.spec import Call
from refsim.ops.q8ta_add import ALPHA_IGNORED

SHAPE = (1, 6, 3, 5)


@pytest.fixture(autouse=True)
def buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expected buffer, and one whose words have their lanes rotated."""
    monkeypatch.chdir(tmp_path)
    good = PackedBuffer.pack(np.arange(90).astype(np.int8).reshape(SHAPE), "4W4C").raw
    good.tofile("a.bin")
    np.roll(good.reshape(-1, 4), 1, 1).tofile("b.bin")


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
    assert facts["same"] is False and facts["layout"] == "PACKED_INT8_4W4C" and facts["shape"] == list(SHAPE)
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
    call = replace(call, target=replace(call.target, profile=PROFILES["nvidia"]))
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
def of_case(buffers: None) -> None:
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

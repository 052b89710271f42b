"""refsim diff: verdicts, text and JSON, sidecars, and what bad input says."""

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
from refsim.golden.named import open_case
from refsim.ops.q8ta_add import ALPHA_IGNORED

SHAPE = (1, 6, 3, 5)


@pytest.fixture
def buffers(tmp_path: Path) -> tuple[Path, Path]:
    """An expected buffer, and one whose words have their lanes rotated."""
    good = PackedBuffer.pack(np.arange(90).astype(np.int8).reshape(SHAPE), "4W4C").raw
    (tmp_path / "a.bin").write_bytes(good.tobytes())
    (tmp_path / "b.bin").write_bytes(np.roll(good.reshape(-1, 4), 1, 1).tobytes())
    return tmp_path / "a.bin", tmp_path / "b.bin"


def test_same_is_0_and_one_line_says_so(buffers, refsim) -> None:
    done = refsim("diff", buffers[0], buffers[0], "-l", "4W4C", "-s", "1,6,3,5")
    assert done.status == 0 and done.out.splitlines()[0] == "1x6x3x5 4W4C: the same"


def test_different_is_1_and_the_cause_is_named(buffers, refsim) -> None:
    done = refsim("diff", *buffers, "-l", "4W4C", "-s", "1,6,3,5", "--limit", "3")
    assert done.status == 1 and "\x1b" not in done.out
    assert "1. lanes rotated: output words rotated by 1 (predicts every byte)" in done.out
    assert "first 3 of" in done.out
    assert done.err.startswith("rerun: refsim diff ")


def test_what_nobody_knows_takes_no_column(buffers, tmp_path: Path, refsim) -> None:
    """Without the call nobody knows who wrote a word; the text says how to learn it."""
    alone = refsim("diff", *buffers, "-l", "4W4C", "-s", "1,6,3,5", "--limit", "3")
    assert "workgroup" not in alone.out and "invocation" not in alone.out and "  word  lane  " in alone.out
    assert "--case CASE" in alone.out.splitlines()[-1]
    case = "q8ta_add/0105"
    expected = open_case(case).expected
    (tmp_path / "a.bin").write_bytes(expected.raw.tobytes())
    (tmp_path / "b.bin").write_bytes((expected.raw ^ np.uint8(1)).tobytes())
    known = refsim("diff", tmp_path / "a.bin", tmp_path / "b.bin", "--case", case)
    assert "workgroup  invocation" in known.out and "--case" not in known.out


def test_json_holds_what_the_text_says(buffers, refsim) -> None:
    facts = refsim("diff", *buffers, "-l", "4W4C", "-s", "1,6,3,5", "--json").json["report"]
    assert facts["same"] is False and facts["layout"] == "PACKED_INT8_4W4C" and facts["shape"] == list(SHAPE)
    assert facts["causes"][0]["name"] == "lanes rotated" and facts["causes"][0]["exact"] is True
    counts = {count["kind"]: count for count in facts["counts"]}
    assert sum(count["bytes"] for count in counts.values()) == 192
    assert sum(count["different"] for count in counts.values()) == facts["differing"]
    first = facts["differences"][0]
    assert first["byte"] == 0 and first["index"] == [0, 0, 0, 0] and first["kind"] == "value"
    assert (first["expected"], first["actual"], first["legal"]) == (0, 45, [])


def test_another_buffer_is_recognized(buffers, tmp_path: Path, refsim) -> None:
    other = np.random.default_rng(1).integers(0, 256, 192).astype(np.uint8)
    (tmp_path / "c.bin").write_bytes(other.tobytes())
    options = ["-l", "4W4C", "-s", "1,6,3,5", "--other", tmp_path / "c.bin", "--json"]
    facts = refsim("diff", buffers[0], tmp_path / "c.bin", *options).json["report"]
    assert facts["causes"][0]["name"] == "stale or foreign buffer"
    assert str(tmp_path / "c.bin") in facts["causes"][0]["detail"]


def test_layout_and_shape_come_from_a_sidecar(buffers, tmp_path: Path, refsim) -> None:
    refsim("diff", *buffers).refused("give --layout and --shape")
    refsim("diff", *buffers, "-l", "4W4C").refused("give --shape, --case")
    refsim("diff", *buffers, "-s", "1,6,3,5").refused("give --layout, --case")
    (tmp_path / "b.json").write_text('{"value": "b", "shape": [1, 6, 3, 5], "layout": "PACKED_INT8_4W4C"}')
    assert refsim("diff", *buffers).status == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            ["-l", "4W4C", "-s", "1,6,3,9"],
            "a.bin: raw buffer for 1x6x3x9 4W4C: wrong size; got 192 bytes, need 288\n",
        ),
        (["-l", "CONV2D", "-s", "1,6,3,5"], "no addresses before"),
        (["-l", "4W4C", "-s", "1,6,0,5"], "a size is below 1"),
        (["-l", "4W4C", "-s", "1,6,3,5", "--other", "nonesuch.bin"], "nonesuch.bin"),
    ],
)
def test_bad_input_is_one_line(options: list[str], match: str, buffers, refsim) -> None:
    refsim("diff", *buffers, *options).refused(match)


def test_a_page_is_written(buffers, tmp_path: Path, refsim) -> None:
    done = refsim("diff", *buffers, "-l", "4W4C", "-s", "1,6,3,5", "--html", tmp_path / "r.html")
    assert done.status == 1 and "lanes rotated" in (tmp_path / "r.html").read_text()


@pytest.mark.long
def test_a_case_lets_each_byte_be_judged_by_the_profiles(tmp_path: Path, refsim) -> None:
    """A GPU that fuses its multiply-adds writes two other bytes, which its profile allows and others do not."""
    stored = open_case("q8ta_add/0105")
    call = replace(stored.bound.call, target=replace(stored.bound.call.target, profile=PROFILES["nvidia"]))
    (tmp_path / "a.bin").write_bytes(stored.expected.raw.tobytes())
    (tmp_path / "b.bin").write_bytes(call.expected(stored.bound.inputs).raw.tobytes())
    pair = ("diff", tmp_path / "a.bin", tmp_path / "b.bin", "--case", "q8ta_add/0105")
    done = refsim(*pair, "--json")
    assert done.status == 1 and [d["legal"] for d in done.json["report"]["differences"]] == [
        ["nvidia"],
        ["nvidia"],
    ]
    assert done.json["report"]["differences"][0]["invocation"] is not None
    assert done.json["report"]["legal"]["nvidia"] == {"explains": 2, "contradicts": 0}
    legal = refsim(*pair, "--profile", "nvidia")
    assert legal.status == 0 and ": 2 bytes differ, as profile nvidia allows\n" in legal.out
    other = refsim(*pair, "--profile", "lavapipe")
    assert other.status == 1 and "2 of them not as profile lavapipe has them" in other.out


def test_a_profile_needs_the_case_and_the_case_its_tensor(buffers, refsim) -> None:
    place = ("-l", "4W4C", "-s", "1,6,3,5")
    refsim("diff", *buffers, *place, "--profile", "nvidia").refused("--profile needs --case CASE")
    refsim("diff", *buffers, *place, "--case", "q8ta_add/0105").refused("the call writes another tensor")


def test_a_limit_of_0_says_that_nothing_is_listed(buffers, tmp_path: Path, refsim) -> None:
    pair = ("diff", *buffers, "-l", "4W4C", "-s", "1,6,3,5")
    done = refsim(*pair, "--limit", 0)
    assert re.search(r"^\d+ differences, none listed: the limit is 0$", done.out, re.M)
    assert "expected  actual" not in done.out and "expected  actual" in refsim(*pair, "--limit", 1).out
    assert refsim(*pair, "--limit", 0, "--html", tmp_path / "page.html").status == 1
    page = (tmp_path / "page.html").read_text()
    assert "First 0 of" not in page and "none listed: the limit is 0" in page


CASE = "q8ta_conv2d/0019"


@pytest.fixture
def of_case(tmp_path: Path) -> tuple[Path, Path, Path]:
    """What a case expects, the same with two wrong bytes, and zeros."""
    right = open_case(CASE).expected.raw
    wrong = right.copy()
    wrong[[0, 4]] ^= 3
    paths = tmp_path / "right.bin", tmp_path / "wrong.bin", tmp_path / "zeros.bin"
    for path, raw in zip(paths, (right, wrong, np.zeros_like(right)), strict=True):
        path.write_bytes(raw.tobytes())
    return paths


@pytest.mark.long
def test_two_buffers_the_wrong_way_round_are_told_so(of_case, tmp_path: Path, refsim) -> None:
    """Every cause that changes nothing in a case reproduces its right bytes; none of them is the cause of these."""
    right, wrong, _ = of_case
    page = tmp_path / "page.html"
    done = refsim("diff", wrong, right, "--case", CASE, "--limit", 2, "--html", page)
    assert done.status == 1 and "predicts every byte" not in done.out
    assert "likely cause: none is sought, since the actual bytes are right" in done.out
    ask = f"{right} is what {CASE} expects, {wrong} is not: are they the wrong way round? refsim "
    line = next(line for line in done.out.splitlines() if line.startswith(ask))
    words = line.removeprefix(ask).split()
    assert words[:5] == ["diff", str(right), str(wrong), "--case", CASE] and ask in page.read_text()
    back = refsim(*words)
    assert back.status == 1 and "the wrong way round" not in back.out
    facts = refsim("diff", wrong, right, "--case", CASE, "--json").json
    assert (
        facts["report"]["causes"] == []
        and facts["apart"] is None
        and facts["of_case"] == [f"{line[: line.index(' --limit')]} --json"]
    )
    assert refsim("diff", right, wrong, "--case", CASE, "--json").json["of_case"] == []


def test_an_expected_buffer_that_is_not_the_case_s_is_told_so(of_case, refsim) -> None:
    """Bytes that are right have no cause, though a cause that changes nothing predicts them."""
    _, wrong, zeros = of_case
    done = refsim("diff", zeros, wrong, "--case", CASE)
    compare = f"refsim replay {CASE} --actual {wrong}"
    assert done.status == 1
    assert f"{zeros} is not what {CASE} expects; to compare {wrong} with that: {compare}" in done.out
    assert refsim("diff", zeros, wrong, "--case", CASE, "--json").json["report"]["causes"] == []
    assert refsim(*compare.split()[1:]).status == 1
    assert f"{zeros} is not what" in refsim("diff", zeros, zeros, "--case", CASE).out


def test_how_long_to_look_for_a_cause(buffers, monkeypatch: pytest.MonkeyPatch, refsim) -> None:
    asked: list[float] = []

    def explained(ev: Evidence, seconds: float, like: Sequence[str]) -> tuple[Start, list[Cause]]:
        asked.append(seconds)
        return Start(ev), []

    monkeypatch.setattr(report, "explained", explained)
    monkeypatch.setenv(search.VARIABLE, "7")
    line = ("diff", *buffers, "-l", "4W4C", "-s", "1,6,3,5")
    assert [refsim(*line, *more).status for more in (("--search", 2.5), (), ("--search", 0))] == [1, 1, 1]
    assert asked == [2.5, 7, 0]
    refsim(*line, "--search", -1).refused("-1")


def test_a_known_defect_comes_off_before_the_bug_beside_it(tmp_path: Path, refsim) -> None:
    """A kernel that ignores alpha, as upstream's does, and that takes b's zero point for a's."""
    case = "q8ta_add/0107"
    stored = open_case(case)
    call = stored.bound.call
    (tmp_path / "a.bin").write_bytes(stored.expected.raw.tobytes())
    params = replace(call.params, alpha=1.0, b_zp=call.params.a_zp)
    wrong = replace(call, params=params).expected(stored.bound.inputs)
    (tmp_path / "b.bin").write_bytes(wrong.raw.tobytes())
    facts = refsim("diff", tmp_path / "a.bin", tmp_path / "b.bin", "--case", case, "--json").json["report"]
    first = facts["causes"][0]
    assert ALPHA_IGNORED.note in facts["pattern"][0]
    assert (first["name"], first["exact"], first["weak"]) == ("another tensor's quantization", True, False)

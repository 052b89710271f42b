"""Where two causes predict the same bytes, every verb that explains a buffer says how to tell them apart."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from examples import UNARY
from saved import flip

from refsim.bytediff import Cause
from refsim.cli.kit.text import show
from refsim.core.buffer import PackedBuffer
from refsim.core.plain import plain
from refsim.golden import apart
from refsim.golden import told as shown
from refsim.golden.check import compared
from refsim.golden.named import open_case
from refsim.golden.rules import case
from refsim.ops.base.binding import bind

CASE = f"{UNARY.name}/0003"
TWO = apart.Rivals(
    UNARY.name,
    (
        apart.Rival("zero point not folded", "IN_ZP taken as 0"),
        apart.Rival("truncation", "True for flags & TRUNCATE"),
    ),
)


@pytest.fixture
def two(miscomputed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever differs, two causes predict it; the emulated executor's output has a wrong byte, each run anew."""
    runs = count(1)

    def spoil(out: PackedBuffer) -> None:
        out.words[0] ^= next(runs) & 3 | 4

    miscomputed(UNARY.name, spoil)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(apart, "rivals", lambda op, causes, found=(): TWO)


def said(out: str, command: str) -> bool:
    start = '"zero point not folded" and "truncation" predict the same bytes here; to tell them apart: '
    return start + command in out and " differ there" in out


@pytest.mark.long
def test_diff_and_replay(two: None, refsim) -> None:
    for name in ("right", "wrong"):
        open_case(CASE).expected.raw.tofile(name)
    flip("wrong")
    for line in (f"diff right wrong --case {CASE}", f"replay {CASE} --actual wrong"):
        assert said(refsim(line).out, f"refsim replay {UNARY.name}/")
        found = refsim(f"{line} --json").json["apart"]
        assert found["case"].startswith(UNARY.name) and found["causes"] == plain(TWO.causes)
    assert refsim(f"replay {CASE} --actual right --json").json["apart"] is None
    done = refsim(f"replay {CASE} -x cpu:emulated")
    assert said(done.out, "refsim replay ") and " -x cpu:emulated" in done.out


@pytest.mark.parametrize(
    "verb",
    [pytest.param("compare -x cpu,cpu:emulated", marks=pytest.mark.long),
     pytest.param("bisect -x cpu:emulated", marks=pytest.mark.long), "repeat -x cpu:emulated -n 4"],
)  # fmt: skip
def test_verbs_of_models(verb: str, two: None, refsim, mixed: str) -> None:
    done = refsim(f"{verb} {mixed} --html page.html")
    assert done.status == 1 and " -x cpu:emulated" in done.out
    assert refsim(f"{verb} {mixed} --json").json["apart"]["causes"] == plain(TWO.causes)
    page = Path("page.html").read_text()
    assert "to tell them apart: refsim replay " in page and " differ there" in page


@pytest.mark.long
def test_triage_and_its_pages(two: None, refsim, models: Path) -> None:
    raw = models.parent / "device" / "refine_seg.raw"
    line = f"triage {raw}.pte -i {models}/refine_seg.io.npz --outputs {raw}.npz"
    done = refsim(f"{line} -o found")
    assert done.status == 0 and "predict the same bytes here; " in done.out
    (node,) = (n for n in refsim(f"{line} --json").json["nodes"] if n["apart"] is not None)
    assert node["value"] == "delegate0_v97" and node["apart"]["causes"] == plain(TWO.causes)
    for page in ("triage.html", "pages/delegate0_v97.html"):
        assert "predict the same bytes here; " in Path("found", page).read_text()


def test_a_table_of_kernels(two: None, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (Cause(one.name, one.detail, 9, 9, 0) for one in TWO.causes)
    lucky = replace(first, name="luck")
    found = {f"{UNARY.name}/0000": (first, second), "x": (first, second, lucky)}
    rows = [apart.WrongCase(name, held) for name, held in found.items()]
    (row,) = apart.of_kernels({(UNARY.name, "cpu"): rows})
    (fit, cause, named), (_, _, other), (worse, _, none) = row.rows
    assert cause == first.brief and fit == "2 of 2" and named == other and named.startswith(UNARY.name)
    assert (worse, none) == ("1 of 2", "") and row.apart is not None and row.apart.case == named
    show(shown.kernels_text([row]))
    assert said(capsys.readouterr().out.replace("\n  ", "; "), f"refsim replay {named} -x cpu")


def test_verify_notes_them() -> None:
    """An add that takes the zero point of a for 0, which is that of its output."""
    bound = bind(case("q8ta_add", 141))
    call = replace(bound.call, params=replace(bound.call.params, a_zp=0))
    detail = compared(bound, bound.call.expected(bound.inputs), call.expected(bound.inputs))
    found = apart.rivals("q8ta_add", detail["causes"])
    assert found is not None
    assert {"zero point not folded", "another tensor's quantization"} <= {row.name for row in found.free}

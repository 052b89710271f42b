"""Where two causes predict the same bytes, every verb that explains a buffer says how to tell them apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import UNARY

from refsim.bytediff import Cause
from refsim.cli.kit.text import show
from refsim.core.plain import plain
from refsim.exec.emulated import EmulatedExecutor
from refsim.golden import apart, causes
from refsim.golden import told as shown
from refsim.golden.named import open_case

CASE = f"{UNARY.name}/0003"
TWO = apart.Rivals(
    UNARY.name,
    (
        apart.Rival("zero point not folded", "IN_ZP taken as 0"),
        apart.Rival("truncation", "fractions cut off"),
    ),
)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever differs, two causes predict it; and the emulated executor's output has a wrong byte."""
    honest = EmulatedExecutor.run

    def run(self, launch, inputs):
        out = honest(self, launch, inputs)
        if launch.shader == UNARY.name:
            out.words[0] ^= 1
        return out

    monkeypatch.setattr(EmulatedExecutor, "run", run)
    for module in (apart, causes):
        monkeypatch.setattr(module, "rivals", lambda op, causes, found=(): TWO)


def said(out: str, command: str) -> bool:
    start = '"zero point not folded" and "truncation" predict the same bytes here; to tell them apart: '
    return start + command in out and " differ there" in out


@pytest.mark.long
def test_diff_and_replay(two: None, refsim, tmp_path) -> None:
    stored = open_case(CASE)
    (tmp_path / "right").write_bytes(stored.expected.raw.tobytes())
    (tmp_path / "wrong").write_bytes((stored.expected.raw ^ 1).tobytes())
    given = ("diff", tmp_path / "right", tmp_path / "wrong", "--case", CASE)
    assert said(refsim(*given).out, f"refsim replay {UNARY.name}/")
    found = refsim(*given, "--json").json["apart"]
    assert found["case"].startswith(UNARY.name) and found["causes"][0]["detail"] == "IN_ZP taken as 0"
    assert said(refsim("replay", CASE, "--actual", tmp_path / "wrong").out, "refsim replay ")
    assert refsim("replay", CASE, "--actual", tmp_path / "right", "--json").json["apart"] is None
    done = refsim("replay", CASE, "-x", "cpu:emulated")
    assert said(done.out, "refsim replay ") and " -x cpu:emulated" in done.out


@pytest.mark.long
@pytest.mark.parametrize("verb", [("compare", "-x", "cpu,cpu:emulated"), ("bisect", "-x", "cpu:emulated")])
def test_compare_and_bisect(verb: tuple[str, ...], two: None, refsim, models, tmp_path) -> None:
    name, *executors = verb
    given = (name, models / "mixed_ops.pte", "-i", models / "mixed_ops.io.npz", *executors)
    done = refsim(*given)
    assert done.status == 1 and " -x cpu:emulated" in done.out
    assert refsim(*given, "--json").json["apart"]["causes"] == plain(TWO.causes)
    page = tmp_path / "page.html"
    refsim(*given, "--html", page)
    assert "to tell them apart: refsim replay " in page.read_text() and " differ there" in page.read_text()


def test_repeat(two: None, refsim, models, monkeypatch) -> None:
    wrong, runs = EmulatedExecutor.run, iter(range(1000))

    def run(self, launch, inputs):
        out = wrong(self, launch, inputs)
        if launch.shader == UNARY.name and next(runs) % 2:
            out.words[0] ^= 3
        return out

    monkeypatch.setattr(EmulatedExecutor, "run", run)
    given = (
        "repeat",
        models / "mixed_ops.pte",
        "-i",
        models / "mixed_ops.io.npz",
        "-x",
        "cpu:emulated",
        "-n",
        "4",
    )
    done = refsim(*given)
    assert done.status == 1 and " -x cpu:emulated" in done.out
    assert refsim(*given, "--json").json["apart"]["causes"] == plain(TWO.causes)


@pytest.mark.long
def test_triage_and_its_pages(two: None, refsim, models, tmp_path) -> None:
    device_data = models.parent / "device"
    given = ("triage", device_data / "refine_seg.raw.pte", "-i", models / "refine_seg.io.npz",
             "--outputs", device_data / "refine_seg.raw.npz")  # fmt: skip
    done = refsim(*given, "-o", tmp_path / "found")
    assert done.status == 0 and "predict the same bytes here; " in done.out
    (node,) = (n for n in refsim(*given, "--json").json["nodes"] if n["apart"] is not None)
    assert node["value"] == "delegate0_v97" and node["apart"]["causes"] == plain(TWO.causes)
    for page in ("triage.html", "pages/delegate0_v97.html"):
        assert "predict the same bytes here; " in (tmp_path / "found" / page).read_text()


def test_a_table_of_kernels(two: None, capsys: pytest.CaptureFixture[str]) -> None:
    """What verify, check, shaders and triage end with: each cause with its cases, and what tells two apart."""
    first, second = (Cause(one.name, one.detail, 9, 9, 0) for one in TWO.causes)
    lucky = replace(first, name="luck")
    rows = [
        causes.WrongCase(f"{UNARY.name}/0000", (first, second)),
        causes.WrongCase("x", (first, second, lucky)),
    ]
    (row,) = causes.of_kernels({(UNARY.name, "cpu"): rows})
    (fit, cause, case), (_, _, other), (worse, _, none) = row.rows
    assert cause == first.brief and fit == "2 of 2" and case == other and case.startswith(UNARY.name)
    assert (worse, none) == ("1 of 2", "") and row.apart is not None and row.apart.case == case
    show(shown.kernels_text([row]))
    assert said(capsys.readouterr().out.replace("\n  ", "; "), f"refsim replay {case} -x cpu")


def test_verify_notes_them() -> None:
    """An add that takes the zero point of a for 0, which is that of its output."""
    from refsim.golden.check import compared
    from refsim.golden.rules import case
    from refsim.ops.base.binding import bind

    bound = bind(case("q8ta_add", 141))
    call = replace(bound.call, params=replace(bound.call.params, a_zp=0))
    detail = compared(bound, bound.call.expected(bound.inputs), call.expected(bound.inputs))
    two = apart.rivals("q8ta_add", list(map(Cause.of, detail["causes"])))
    assert two is not None
    free = [row.name for row in two.free]
    assert {"zero point not folded", "another tensor's quantization"} <= {*free}

"""Where two causes predict the same bytes, every verb that explains a buffer says how to tell them apart."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from examples import UNARY

from refsim.bytediff import diff
from refsim.cli import _golden_verify, _shaders
from refsim.core.buffer import PackedBuffer
from refsim.exec.emulated import EmulatedExecutor
from refsim.golden import apart
from refsim.golden.check import Checked
from refsim.golden.named import open_case
from refsim.modules.trial import Explained

CASE = f"{UNARY.name}/0003"
TWO = apart.Rivals(
    UNARY.name,
    (
        apart.Rival("zero point not folded", "in_zp taken as 0"),
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
    monkeypatch.setattr(apart, "rivals", lambda report, found=(): TWO if report.differing else None)


def said(out: str, command: str) -> bool:
    start = '"zero point not folded" and "truncation" predict the same bytes here; to tell them apart: '
    return start + command in out and '; "the same" excludes ' in out


def test_diff_and_replay(two: None, refsim, tmp_path) -> None:
    stored = open_case(CASE)
    (tmp_path / "right").write_bytes(stored.expected.raw.tobytes())
    (tmp_path / "wrong").write_bytes((stored.expected.raw ^ 1).tobytes())
    given = ("diff", tmp_path / "right", tmp_path / "wrong", "--case", CASE)
    assert said(refsim(*given).out, f"refsim replay {UNARY.name}/")
    found = refsim(*given, "--json").json["apart"]
    assert found["case"].startswith(UNARY.name) and found["causes"][0]["detail"] == "in_zp taken as 0"
    assert said(refsim("replay", CASE, "--actual", tmp_path / "wrong").out, "refsim replay ")
    assert refsim("replay", CASE, "--actual", tmp_path / "right", "--json").json["apart"] is None
    done = refsim("replay", CASE, "-x", "cpu:emulated")
    assert said(done.out, "refsim replay ") and " -x cpu:emulated" in done.out


@pytest.mark.few(1)
@pytest.mark.parametrize("verb", [("compare", "-x", "cpu,cpu:emulated"), ("bisect", "-x", "cpu:emulated")])
def test_compare_and_bisect(verb: tuple[str, ...], two: None, refsim, models, tmp_path) -> None:
    name, *executors = verb
    given = (name, models / "mixed_ops.pte", "-i", models / "mixed_ops.io.npz", *executors)
    done = refsim(*given)
    assert done.status == 1 and said(done.out, "refsim replay ") and " -x cpu:emulated" in done.out
    assert refsim(*given, "--json").json["apart"]["causes"] == TWO.as_json()
    page = tmp_path / "page.html"
    refsim(*given, "--html", page)
    assert "to tell them apart: refsim replay " in page.read_text() and "excludes" in page.read_text()


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
    assert done.status == 1 and said(done.out, "refsim replay ") and " -x cpu:emulated" in done.out
    assert refsim(*given, "--json").json["apart"]["causes"] == TWO.as_json()


@pytest.mark.long
def test_triage_and_its_pages(two: None, refsim, models, tmp_path) -> None:
    device_data = models.parent / "device"
    given = ("triage", device_data / "refine_seg.raw.pte", "-i", models / "refine_seg.io.npz",
             "--outputs", device_data / "refine_seg.raw.npz")  # fmt: skip
    done = refsim(*given, "-o", tmp_path / "found")
    assert done.status == 0 and "predict the same bytes here; " in done.out
    (node,) = (n for n in refsim(*given, "--json").json["nodes"] if n["apart"] is not None)
    assert node["value"] == "delegate0_v97" and node["apart"]["causes"] == TWO.as_json()
    for page in ("triage.html", "pages/delegate0_v97.html"):
        assert "predict the same bytes here; " in (tmp_path / "found" / page).read_text()


def test_verify_says_each_two_once() -> None:
    failed = [
        Checked(f"{UNARY.name}/{n:04d}", "cpu", "different", {"alike": TWO.as_json()}) for n in range(3)
    ]
    ((name, lines),) = _golden_verify._apart([Checked(CASE, "cpu", "different", {}), *failed])
    (line, command), (meaning, _) = lines
    assert name == f"{UNARY.name}/0000" and said(line + meaning, "refsim replay ")
    assert line.endswith(" -x cpu") and command


def test_verify_notes_them() -> None:
    """An add that takes the zero point of a for 0, which is that of its output."""
    from dataclasses import replace

    from refsim.golden.check import compared
    from refsim.golden.rules import case
    from refsim.ops.base.binding import bind

    bound = bind(case("q8ta_add", 141))
    call = replace(bound.call, params=replace(bound.call.params, a_zp=0))
    detail = compared(bound, bound.call.expected(bound.inputs), call.expected(bound.inputs))
    free = [row["name"] for row in detail["alike"] if not row["fitted"]]
    assert {"zero point not folded", "another tensor's quantization"} <= {*free}


def test_shaders(two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_shaders, "rivals", apart.rivals)
    stored = open_case(CASE)
    wrong = PackedBuffer.from_raw(
        stored.expected.raw ^ np.uint8(1), stored.expected.desc.shape, stored.expected.desc.layout
    )
    report = diff(stored.expected, wrong, call=stored.bound)
    tried = SimpleNamespace(candidate=SimpleNamespace(bound=stored.bound))
    found = Explained(tried, report, (), (CASE,), 1, 1)  # type: ignore[arg-type]
    build = SimpleNamespace(
        writer=lambda call: "",
        stores=lambda module: (),
        executor=SimpleNamespace(name="spv:out@0"),
        takes=bool,
    )
    (line, command), (meaning, _) = _shaders.telling(build, found)  # type: ignore[arg-type]
    assert said(line + meaning, "refsim replay ") and line.endswith(" -x spv:out@0") and command

"""`refsim expose`: files and manifests, and refusals before anything is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime

from refsim.device import manifest as m
from refsim.device.noticed import exposed


def test_a_program_and_its_manifest(refsim, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.pte"
    done = refsim("expose", models / "linear_head.pte", "-o", out)
    assert done.status == 0 and done.err == ""
    assert "out1" in done.out and "delegate0_v17" in done.out and f"refsim triage {out}" in done.out
    _, manifest = m.read(out)
    assert [row.value for row in manifest.outputs[1:]] == [f"delegate0_v{n}" for n in (17, 20, 24, 28)]
    x = np.load(models / "linear_head.io.npz")
    outputs = Runtime(out.read_bytes()).run([x["in0"]])
    assert outputs[0].tobytes() == x["upstream_out0"].tobytes()


def test_a_runtime_without_packed_buffers_gets_values(refsim, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.pte"
    line = ("expose", models / "linear_head.pte", "-o", out, "--runtime", "webgpu")
    done = refsim(*line)
    _, manifest = m.read(out)
    assert done.status == 0 and {row.way for row in manifest.outputs[1:]} == {"values"}
    assert f"refsim triage {out} -i IN.npz --outputs OUTPUTS --runtime webgpu" in " ".join(done.out.split())
    refsim(*line, "--as", "words").refused("webgpu has no packed buffers; got --as words, need values")


def test_json_names_every_file(refsim, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.pte"
    done = refsim("expose", models / "linear_head.pte", "-o", out, "--chunk", 3, "--json")
    names = [tmp_path / "m.1.pte", tmp_path / "m.2.pte"]
    assert [row["file"] for row in done.json["files"]] == [str(name) for name in names]
    for name, manifest in zip(names, done.json["manifests"], strict=True):
        assert json.loads(Path(f"{name}.json").read_text()) == manifest
    assert done.json["left_out"] == {}


def test_a_file_is_replaced_but_not_the_program_itself(refsim, models: Path, tmp_path: Path) -> None:
    program, out = tmp_path / "m.pte", tmp_path / "out.pte"
    program.write_bytes((models / "linear_head.pte").read_bytes())
    out.write_text("something old")
    assert refsim("expose", program, "-o", out).status == 0 and m.read(out)
    refsim("expose", program, "-o", tmp_path / "." / "m.pte").refused(
        "is read as FILE, and --output would replace it; need another name"
    )
    assert program.read_bytes() == (models / "linear_head.pte").read_bytes()


def test_an_exposed_file_is_not_exposed_again(refsim, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pte"
    assert refsim("expose", models / "linear_head.pte", "-o", out).status == 0
    refsim("expose", out, "-o", tmp_path / "again.pte").refused(
        f"{out}: is exposed already; need linear_head.pte"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.pte", "out.pte.json"]
    Path(f"{out}.json").write_text("{}")
    refsim("expose", out, "-o", tmp_path / "again.pte").refused(
        f"{out}: is exposed, but {out}.json is not its manifest; need that file"
    )


@pytest.mark.parametrize("options", [(), ("--share",), ("--fill", "none"), ("--as", "values")])
def test_an_exposed_file_is_known_without_its_manifest(
    refsim, models: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Copied alone, it says itself that it is exposed: to expose it again would hand out its helpers."""
    lost = tmp_path / "lost.pte"
    assert refsim("expose", models / "linear_head.pte", *options, "-o", lost).status == 0
    Path(m.path_of(lost)).unlink()
    for words in (
        ("triage", lost, "--random", 0, "--outputs", "x.npz"),
        ("collect", lost, "x.npz", "-o", tmp_path / "dump"),
        ("expose", lost, "-o", tmp_path / "again.pte"),
    ):
        done = refsim(*words)
        done.refused(
            f"{lost}: is exposed, but {lost}.json is missing; need that file: copy it from where expose"
        )
        assert "try:" not in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lost.pte"]


def test_a_program_that_is_like_an_exposed_one_is_none(models: Path, tmp_path: Path, refsim) -> None:
    """A value dequantized as it is quantized, and a case with packed inputs as words."""
    assert not any(exposed(path) for path in sorted(models.glob("*.pte")))
    head = (models / "linear_head.pte", "--random", 0, "-n", "delegate0_v20", "--pte")
    for kind in ("words", "constants"):
        assert refsim("extract", *head, kind, "-o", tmp_path / kind).status == 0
        assert not exposed(tmp_path / kind / "program.pte")


@pytest.mark.parametrize(
    ("options", "fill", "way"),
    [((), 0x5A, "words"), (("--fill", "none"), None, "words"), (("--fill", "0"), 0, "words"),
     (("--share",), None, "words"), (("--as", "values"), None, "values")],
)  # fmt: skip
def test_what_fills(refsim, models: Path, tmp_path: Path, options, fill, way) -> None:
    assert refsim("expose", models / "linear_head.pte", "-o", tmp_path / "m.pte", *options).status == 0
    _, manifest = m.read(tmp_path / "m.pte")
    assert (manifest.fill, manifest.way) == (fill, way)


def test_values_without_words_are_told(refsim, models: Path, tmp_path: Path) -> None:
    """By default they go out as values; asked for, they are left out."""
    program, told = models.parent / "networks" / "int8_scaled.pte", "delegate0_v9"
    for options, line in (((), "as values"), (("--share",), "as values"), (("--as", "words"), "left out")):
        done = refsim("expose", program, "-o", tmp_path / "m.pte", *options)
        assert done.status == 0 and re.search(rf"^{line}: {told}, .*already bound", done.out, re.M)
        assert refsim("check", tmp_path / "m.pte").status == 0
    assert "as values" not in refsim("expose", program, "-o", tmp_path / "m.pte", "--as", "values").out


def test_verify_says_what_it_proved(refsim, models: Path, tmp_path: Path) -> None:
    given = ("expose", models / "linear_head.pte", "-o", tmp_path / "m.pte", "--verify")
    rows = refsim(*given, "--chunk", 3, "--json").json["verified"]
    assert len(rows) == 2 and {row["operators"] for row in rows} == {5}
    assert "verified: " in refsim(*given).out
    assert refsim(*given[:-1], "--json").json["verified"] == []

"""Exposed files: what expose writes and says, that no verb runs one here, and what collect makes of their outputs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from device.simulated import Runtime
from saved import contents

from refsim.core.errors import GraphError
from refsim.device import manifest as m
from refsim.device.noticed import exposed
from refsim.exec.model import load

DEVICE = Path(__file__).parents[1] / "data" / "device"
VALUES = [f"delegate0_v{number}" for number in (17, 20, 24, 28)]


@pytest.fixture
def expose(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The command that exposes a small model as m.pte in this folder."""
    monkeypatch.chdir(tmp_path)
    return f"expose {models}/linear_head.pte -o m.pte"


def test_a_program_and_its_manifest(refsim, expose: str, models: Path) -> None:
    Path("m.pte").write_text("something old")
    done = refsim(expose)
    assert done.status == 0 and done.err == ""
    assert "out1" in done.out and VALUES[0] in done.out and "refsim triage m.pte" in done.out
    _, manifest = m.read("m.pte")
    assert [row.value for row in manifest.outputs[1:]] == VALUES
    x = np.load(models / "linear_head.io.npz")
    outputs = Runtime(Path("m.pte").read_bytes()).run([x["in0"]])
    assert outputs[0].tobytes() == x["upstream_out0"].tobytes()


def test_a_runtime_without_packed_buffers_gets_values(refsim, expose: str) -> None:
    done = refsim(f"{expose} --runtime webgpu")
    _, manifest = m.read("m.pte")
    assert done.status == 0 and {row.way for row in manifest.outputs[1:]} == {"values"}
    said = " ".join(done.out.split())
    assert "refsim triage m.pte -i IN.npz --outputs OUTPUTS --runtime webgpu" in said
    refused = refsim(f"{expose} --runtime webgpu --as words")
    refused.refused("webgpu has no packed buffers; got --as words, need values")


def test_an_exposed_file_is_not_exposed_again(refsim, expose: str) -> None:
    assert refsim(expose).status == 0
    before = contents(Path())
    refsim("expose m.pte -o again.pte").refused("m.pte: is exposed already; need linear_head.pte")
    assert contents(Path()) == before
    Path("m.pte.json").write_text("{}")
    refused = refsim("expose m.pte -o again.pte")
    refused.refused("m.pte: is exposed, but m.pte.json is not its manifest; need that file")


@pytest.mark.parametrize("options", ["", "--share", "--fill none", "--as values"])
def test_an_exposed_file_is_known_without_its_manifest(refsim, expose: str, options: str) -> None:
    """Copied alone, it says itself that it is exposed: to expose it again would hand out its helpers."""
    assert refsim(f"{expose} {options}").status == 0
    Path("m.pte.json").unlink()
    before = contents(Path())
    lines = ["triage m.pte --random 0 --outputs x.npz", "collect m.pte x.npz -o d", "expose m.pte -o n.pte"]
    if options == "--as values":  # floats of their own, which are right here as well
        assert refsim("run m.pte --random 0").status == 0
    else:
        lines.append("run m.pte --random 0")
    for line in lines:
        done = refsim(line)
        done.refused(
            "m.pte: is exposed, but m.pte.json is missing; need that file: copy it from where expose"
        )
        assert done.hints == []
    assert contents(Path()) == before


def test_a_program_that_is_like_an_exposed_one_is_none(expose: str, models: Path, refsim) -> None:
    """A value dequantized as it is quantized, and a case with packed inputs as words."""
    assert not any(exposed(path) for path in sorted(models.glob("*.pte")))
    for kind in ("words", "constants"):
        line = f"extract {models}/linear_head.pte --random 0 -n delegate0_v20 --pte {kind} -o {kind}"
        assert refsim(line).status == 0
        assert not exposed(Path(kind) / "program.pte")


@pytest.mark.parametrize(
    ("options", "fill", "way"),
    [("", 0x5A, "words"), ("--fill none", None, "words"), ("--fill 0", 0, "words"), ("--share", None, "words"),
     ("--as values", None, "values")],
)  # fmt: skip
def test_what_fills(refsim, expose: str, options: str, fill: int | None, way: str) -> None:
    assert refsim(f"{expose} {options}").status == 0
    _, manifest = m.read("m.pte")
    assert (manifest.fill, manifest.way) == (fill, way)


def test_values_without_words_are_told(refsim, expose: str, models: Path) -> None:
    scaled = f"expose {models.parent}/networks/int8_scaled.pte -o m.pte"
    for option, line in (("", "as values"), ("--share", "as values"), ("--as words", "left out")):
        done = refsim(f"{scaled} {option}")
        assert done.status == 0 and re.search(rf"^{line}: delegate0_v9, .*already bound", done.out, re.M)
        assert refsim("check m.pte").status == 0
    assert "as values" not in refsim(f"{scaled} --as values").out


def test_verify_says_what_it_proved(refsim, expose: str) -> None:
    rows = refsim(f"{expose} --verify --chunk 3 --json").json["verified"]
    assert [row["operators"] for row in rows] == [5, 5]
    assert "verified: " in refsim(f"{expose} --verify").out
    assert refsim(f"{expose} --json").json["verified"] == []


@pytest.mark.parametrize(("file", "taken"), [("int8_mixer", False), ("int8_scaled", True)])
def test_a_file_that_no_runtime_loads_is_said_to_be_one(
    file: str, taken: bool, models, expose, refsim
) -> None:
    network = models.parent / "networks" / f"{file}.pte"
    done = refsim(f"expose {network} -o m.pte")
    said = " ".join(done.out.split())
    assert done.status == 0 and ("does not take it (claimed-operator, " in said) != taken
    assert (f"see refsim check {network}" in said) != taken


def test_several_files_have_a_table_each_and_one_sentence(expose: str, refsim) -> None:
    found = refsim(f"{expose} --chunk 3 --json").json
    names = ["m.1.pte", "m.2.pte"]
    assert [row["file"] for row in found["files"]] == names and found["left_out"] == {}
    assert found["manifests"] == [json.loads(Path(f"{name}.json").read_text()) for name in names]
    lines = refsim(f"{expose} --chunk 3").out.splitlines()
    assert [line for line in lines if line.startswith("m.") and line.endswith(".pte:")] == [
        f"{name}:" for name in names
    ]
    assert sum(line.startswith("output ") for line in lines) == len(names)
    assert " ".join(lines).count("refsim run does not take it") == 1
    assert "run each with ExecuTorch's runtime" in " ".join(" ".join(lines).split())


# --- no verb runs one ------------------------------------------------------------------------------------

ON = {
    "run": "", "repeat": "-n 2 -x cpu", "compare": "-x cpu -x numpy", "bisect": "-x numpy", "extract": "-n 0:1 -o case",
}  # fmt: skip
ELSEWHERE = "ExecuTorch's runtime: only it runs what expose, extract --pte and golden export write"


def _is_shown(refsim, file: str) -> str:
    """`inspect` runs nothing, so it shows such a file, in every form but the plan of a run; the text that it prints."""
    plain = refsim(f"inspect {file}")
    assert plain.status == 0 and "outputs" in plain.out and not plain.err
    assert refsim(f"inspect {file} --html page.html --json").status == 0
    refsim(f"inspect {file} --plan").refused("only")
    return plain.out


@pytest.mark.parametrize("way", ["", "--share", "--as values"])
def test_an_exposed_file_runs_nowhere_here(refsim, expose: str, way: str) -> None:
    told = refsim(f"{expose} {way}")
    assert "with ExecuTorch's runtime on the device (refsim run does not take it)" in told.out
    for verb, more in ON.items():
        refsim(f"{verb} m.pte --random 0 {more}").refused(
            "m.pte: is exposed: only ExecuTorch's runtime on the device runs it, and refsim triage judges its "
            "outputs; need linear_head.pte"
        )
    assert not Path("case").exists()
    _is_shown(refsim, "m.pte")


@pytest.mark.parametrize("way", ["words", "constants"])
@pytest.mark.parametrize("node", ["0:0", "0:1"])  # of float inputs, and of packed ones
def test_an_extracted_call_runs_nowhere_here(refsim, expose: str, models: Path, node: str, way: str) -> None:
    told = refsim(f"extract {models}/linear_head.pte -n {node} --random 0 -o c --pte {way}")
    assert told.status == 0 and "with ExecuTorch's runtime on the device" in told.out
    refsim("run c/program.pte --random 0").refused(ELSEWHERE)
    assert ("no inputs" in _is_shown(refsim, "c/program.pte")) is (way == "constants")


@pytest.mark.long
def test_exported_cases_run_nowhere_here(refsim, expose: str) -> None:
    assert refsim("golden export q8ta_relu --size small --pte c").status == 0
    refsim("run c/q8ta_relu.pte --random 0").refused(ELSEWHERE)
    with pytest.raises(GraphError, match="only it runs"):
        load("c/q8ta_relu.pte")
    _is_shown(refsim, "c/q8ta_relu.pte")


# --- collect ---------------------------------------------------------------------------------------------


def test_collect_makes_a_dump_for_the_other_verbs(refsim, head: str, tmp_path: Path) -> None:
    given = f"{DEVICE}/linear_head.raw.pte {DEVICE}/linear_head.raw.npz"
    done = refsim(f"collect {given} -o {tmp_path}/dump --json")
    assert [row["value"] for row in done.json["values"]] == [*VALUES, "delegate0_v31"]
    assert refsim(f"bisect {head} --actual {tmp_path}/dump").status == 0
    assert "0 bytes differ" in refsim(f"run {head} --golden {tmp_path}/dump").out
    assert "5 values in" in refsim(f"collect {given} -o {tmp_path}/again").out
    refsim(f"collect {given} -o {tmp_path}/dump").refused("already exists")
    for words, said in {
        f"{DEVICE}/linear_head.raw.pte {DEVICE}/linear_head_gemv.raw.npz": "out0: does not fit",
        f"{given} --more {given}": "collected twice",
    }.items():
        refsim(f"collect {words} -o {tmp_path}/x").refused(said)
        assert not (tmp_path / "x").exists()

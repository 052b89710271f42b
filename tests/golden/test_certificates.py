"""The verbs that export programs and judge their outputs, and what is bad about files and outputs."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from device.on_double import run
from exporting import FEW, document, written

from refsim.cli.kit.program import main
from refsim.core.errors import FormatError, RefsimError
from refsim.golden import certify, programs
from refsim.golden.rules import case
from refsim.golden.telling import choose


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few exported cases of two operators, and the outputs of the double, under ``pte`` and ``out``."""
    root = tmp_path_factory.mktemp("exported")
    rows = [one for op in ("q8ta_relu", "q8ta_dequantize") for one in list(choose([op]))[:FEW]]
    run(written(root / "pte", rows), root / "out")
    return root


def checking(exported: Path, outputs: Path) -> str:
    return f"golden check --pte {exported}/pte --outputs {outputs}"


def told(found: certify.Certificate, op: str) -> dict[str, int]:
    """The verdicts on the cases of an operator, without those that none got."""
    return {name: count for name, count in found.operators[op].items() if count}


def test_a_runtime_that_cannot_load_the_programs_is_refused(exported: Path, capsys) -> None:
    line = checking(exported, exported / "out").split()
    assert main([*line, "--runtime", "webgpu"]) == 2
    assert "does not load what golden export writes" in capsys.readouterr().err
    assert main([*line, "--runtime", "main"]) == 0


def test_the_verbs(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, facts = document(capsys, f"golden export q8ta_relu --layout 4C --pte {tmp_path}/pte")
    assert status == 0 and facts["cases"] == len(list(choose(["q8ta_relu"], ["4C"])))
    line, page = checking(exported, exported / "out"), tmp_path / "certificate"
    files = f"--certificate {page}.json --certificate {page}.html"
    status, facts = document(capsys, f"{line} --device <b> {files}")
    assert status == 0 and facts["right"] and facts["cases"] == 2 * FEW
    stored = json.loads(Path(f"{page}.json").read_text())
    assert stored["about"]["device"] == "<b>" and stored["about"]["runtime"].startswith("2026-08: ")
    assert stored["operators"] == facts["operators"]
    text = Path(f"{page}.html").read_text()
    assert "&lt;b&gt;" in text and f"{2 * FEW} cases, all right" in text
    assert main(line.split()) == 0 and "q8ta_relu" in capsys.readouterr().out


def test_runners_of_all_kinds(exported: Path, tmp_path: Path) -> None:
    """Outputs as BASE-N.bin, as a folder of .npy; a program without outputs is missing, and not right."""
    files = certify.read(exported / "pte")
    with np.load(exported / "out" / "q8ta_relu.npz") as arrays:
        for number, name in enumerate(arrays.files):
            (tmp_path / f"q8ta_relu-{number}.bin").write_bytes(arrays[name].tobytes())
    found = certify.check(files, tmp_path, {})
    assert not found.right
    assert told(found, "q8ta_relu") == {certify.SAME: FEW}
    assert told(found, "q8ta_dequantize") == {certify.MISSING: FEW}
    (tmp_path / "q8ta_dequantize").mkdir()
    with np.load(exported / "out" / "q8ta_dequantize.npz") as arrays:
        for number, name in enumerate(arrays.files):
            np.save(tmp_path / "q8ta_dequantize" / f"out{number}.npy", arrays[name])
    assert certify.check(files, tmp_path, {}).right


@pytest.mark.parametrize("left", [Path.mkdir, Path.touch], ids=["folder", "file"])
def test_what_a_run_left_empty_is_missing(
    left: Callable[[Path], object], exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(exported / "out" / "q8ta_relu.npz", tmp_path)
    left(tmp_path / ("q8ta_dequantize" if left is Path.mkdir else "q8ta_dequantize.npz"))
    status, facts = document(capsys, checking(exported, tmp_path))
    assert (status, facts["right"]) == (1, False)
    assert facts["operators"]["q8ta_relu"][certify.SAME] == FEW
    assert facts["operators"]["q8ta_dequantize"][certify.MISSING] == FEW


def test_outputs_of_another_program_are_refused(exported: Path, tmp_path: Path) -> None:
    files = certify.read(exported / "pte")
    with pytest.raises(FormatError, match="no outputs"):
        certify.check(files, tmp_path, {})
    shutil.copy(exported / "out" / "q8ta_dequantize.npz", tmp_path / "q8ta_relu.npz")
    with pytest.raises(RefsimError, match=re.escape("q8ta_relu.npz")):
        certify.check(files, tmp_path, {})
    with pytest.raises(FormatError, match="not a folder"):
        certify.check(files, tmp_path / "nothing", {})


def test_a_program_with_another_number_of_outputs_stops_no_other(exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    shutil.copy(exported / "out" / "q8ta_dequantize.npz", out)
    arrays = dict(np.load(exported / "out" / "q8ta_relu.npz"))
    del arrays["out1"]
    np.savez(out / "q8ta_relu.npz", **arrays)
    found = certify.check(certify.read(exported / "pte"), out, {})
    assert told(found, "q8ta_dequantize") == {certify.SAME: FEW}
    assert told(found, "q8ta_relu") == {certify.WRONG: FEW}
    said = {row.unfit for row in found.verdicts if row.op == "q8ta_relu"}
    assert len(said) == 1 and "another number of outputs" in said.pop()


def test_one_output_of_another_size_is_one_failure_among_the_cases(exported, tmp_path: Path, capsys) -> None:
    out, names = tmp_path / "out", ("q8ta_relu", "q8ta_dequantize")
    out.mkdir()
    arrays = {name: dict(np.load(exported / "out" / f"{name}.npz")) for name in names}
    for held in arrays.values():
        held["out1"] = held["out1"].reshape(-1)[:-1]
    np.savez(out / "q8ta_relu.npz", **arrays["q8ta_relu"])
    for number in range(FEW):
        (out / f"q8ta_dequantize-{number}.bin").write_bytes(arrays[names[1]][f"out{number}"].tobytes())
    found = certify.check(certify.read(exported / "pte"), out, {})
    wrong = {row.op: row.unfit for row in found.verdicts if row.verdict == certify.WRONG}
    assert not found.right
    assert all(told(found, name) == {certify.SAME: FEW - 1, certify.WRONG: 1} for name in names)
    assert wrong["q8ta_relu"].startswith(f"{out / 'q8ta_relu.npz'}: out1: does not fit; got int32 [")
    size = f"{out / 'q8ta_dequantize-1.bin'}: not the size of this output"
    assert wrong["q8ta_dequantize"].startswith(size)
    line = checking(exported, out)
    status, facts = document(capsys, f"{line} --certificate {tmp_path}/page.html")
    assert status == 1 and {row["unfit"] for row in facts["deviations"]} == set(wrong.values())
    text = (tmp_path / "page.html").read_text()
    assert main(line.split()) == 1
    printed = capsys.readouterr().out
    for said in wrong.values():
        assert said in printed and said.partition(";")[0] in text


def test_a_slip_in_the_outputs_of_programs_is_asked_back(exported: Path, tmp_path: Path) -> None:
    files = certify.read(exported / "pte")
    shutil.copytree(exported / "out", tmp_path / "out")
    with pytest.raises(FormatError, match=re.escape(f"did you mean {tmp_path / 'out'}?")):
        certify.check(files, tmp_path / "outt", {})
    for name in ("q8ta_relu", "q8ta_dequantize"):
        (tmp_path / "out" / f"{name}.npz").rename(tmp_path / "out" / f"{name}s.npz")
    slip = re.escape("did you mean q8ta_relus.npz to be q8ta_relu.npz?")
    with pytest.raises(FormatError, match=slip):
        certify.check(files, tmp_path / "out", {})


def test_another_meaning_is_refused(exported: Path) -> None:
    files = certify.read(exported / "pte")
    changed = replace(files[0], cases=(replace(files[0].cases[0], sha256="0" * 64), *files[0].cases[1:]))
    with pytest.raises(FormatError, match="another meaning"):
        certify.check([changed], exported / "out", {})


def test_a_case_is_the_same_as_in_the_corpus(exported: Path) -> None:
    for file in certify.read(exported / "pte"):
        for entry in file.cases:
            assert entry.case == case(entry.case.op, entry.number)


def _damage(text: str) -> Iterator[str]:
    yield from ("", "[]", "{}", "nonsense", text[: len(text) // 2], text.replace('"files"', '"fils"'))
    yield from (text.replace("q8ta_relu.pte", "../relu.pte"), text.replace('"line"', '"lime"'))
    yield text.replace('"schema": 1', '"schema": 2')


def test_damaged_manifests(exported: Path, tmp_path: Path) -> None:
    text = (exported / "pte" / programs.MANIFEST).read_text()
    for damaged in _damage(text):
        (tmp_path / programs.MANIFEST).write_text(damaged)
        with pytest.raises(FormatError):
            certify.read(tmp_path)

"""The corpus as programs: what is chosen, what is written, and what is said of the outputs of a device."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device.on_double import run
from device.simulated import Runtime
from mutants.seeded import ALL
from mutants.tree import CHECKOUT, copy, environment

from refsim.check.finding import Level
from refsim.check.run import check_bytes
from refsim.check.runtime import runtime
from refsim.cli.kit.program import main
from refsim.core.errors import FormatError, LimitError, ParameterError, RefsimError
from refsim.core.plain import plain
from refsim.core.qmath import PROFILES
from refsim.formats.pte.read import read_pte
from refsim.golden import certify, known, programs
from refsim.golden.chosen import NumberedCase, Size, choose, exportable
from refsim.golden.rules import case
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.defect import Defect
from refsim.ops.base.registry import OPS

MUTANTS = CHECKOUT / "tests" / "mutants" / "seeded.jsonl"
FEW = 12


@pytest.fixture(scope="module")
def chosen() -> dict[str, list[NumberedCase]]:
    return {op: list(choose([op])) for op in exportable()}


def written(folder: Path, cases: list[NumberedCase], most: int = programs.MAX_BYTES) -> Path:
    files = list(programs.programs(cases, most))
    folder.mkdir()
    for file in files:
        (folder / file.file).write_bytes(file.data)
    (folder / programs.MANIFEST).write_bytes(programs.manifest(files, "test"))
    return folder


# --- what is chosen --------------------------------------------------------------------------------------


def test_every_operator_with_packed_tensors_that_a_graph_can_name() -> None:
    packed = {
        op.name
        for op in OPS.values()
        if op.serialized
        and not op.siblings
        and any(
            r.packed_int8 and not a.plain
            for a in op.args
            if a.kind in (Kind.INPUT, Kind.OUTPUT)
            for r in a.layouts
        )
    }
    assert set(exportable()) == packed
    assert len(packed) >= 14


def test_all_layouts_styles_sizes_and_epilogues(chosen: dict[str, list[NumberedCase]]) -> None:
    assert sum(map(len, chosen.values())) >= 2000
    for op, rows in chosen.items():
        layouts = {(*(r for _, r in one.case.inputs.values()), one.case.out_layout) for one in rows}
        assert len(layouts) == len(OPS[op].layouts), op
        assert len({one.case.style for one in rows}) == 5, op
        assert {one.case.poison for one in rows} == {True, False}, op
        for key in ("activation", "bias"):
            values = {one.case.params.get(key, one.case.features.get(key)) for one in rows}
            assert len(values) == (2 if key in {**rows[0].case.params, **rows[0].case.features} else 1), (
                op,
                key,
            )


def test_the_cases_that_show_seeded_bugs_are_among_them(chosen: dict[str, list[NumberedCase]]) -> None:
    names = {one.name for rows in chosen.values() for one in rows}
    for line in MUTANTS.read_text().splitlines():
        row = json.loads(line)
        op, _, number = row["case"].partition("/")
        if op in chosen and number.isdecimal() and ALL[row["id"]].executor == "cpu:emulated":
            assert row["case"] in names, row["id"]


def test_the_page_says_how_many(chosen: dict[str, list[NumberedCase]]) -> None:
    found = Counter(
        (row.name, op) for op, rows in chosen.items() for one in rows for row in bind(one.case).call.defects
    )
    known = sum(bool(bind(one.case).call.defects) for rows in chosen.values() for one in rows)
    page = (CHECKOUT / "docs" / "certify.md").read_text()
    assert f"{known} of the {sum(map(len, chosen.values())) - 76} cases" in page
    for name in ("first-batch", "alpha", "groups", "first-plane"):
        total = sum(count for (defect, _), count in found.items() if defect == name)
        assert re.search(rf"^\| {name}: [^|]*\| {total} \|", page, re.M)


def test_filters() -> None:
    small = list(choose(["q8ta_add"], ["4W"], Size.SMALL))
    large = list(choose(["q8ta_add"], ["4W"], Size.LARGE))
    both = list(choose(["q8ta_add"], ["4W"]))
    assert small and large and len(small) + len(large) == len(both)
    assert all("4W" in {one.case.out_layout, *(r for _, r in one.case.inputs.values())} for one in both)
    with pytest.raises(ParameterError, match="q8ta_im2col"):
        list(choose(["q8ta_im2col"]))


# --- what is written -------------------------------------------------------------------------------------


def test_files_are_small_alike_every_time_and_have_no_inputs(tmp_path: Path) -> None:
    rows = list(choose(["q8ta_relu"]))
    first, again = (list(programs.programs(rows, 60_000)) for _ in range(2))
    assert first == again and len(first) > 2
    assert [case["case"] for file in first for case in file.cases] == [one.name for one in rows]
    for file in first:
        assert len(file.data) <= 60_000
        plan = read_pte(file.data, file.file).plan()
        assert not plan.inputs and len(plan.outputs) == len(file.cases)
    with pytest.raises(LimitError, match="q8ta_relu/"):
        list(programs.programs(rows, 2_000))


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("op", "rule", "count"),
    [("q8ta_pixel_shuffle", "pixel-shuffle", 66), ("q8ta_quantize", "prepack-rank", 10)],
)
def test_cases_that_the_runtime_does_not_load_are_left_out(
    op: str, rule: str, count: int, chosen: dict[str, list[NumberedCase]]
) -> None:
    taken, refused = programs.loadable(chosen[op])
    assert {row.error.rule for row in refused} == {rule} and len(refused) == count
    assert {one.name for one in taken} | {row.case for row in refused} == {one.name for one in chosen[op]}
    files = list(programs.programs(taken))
    assert [case["case"] for file in files for case in file.cases] == [one.name for one in taken]
    assert all(Level.ERROR not in {found.level for found in check_bytes(file.data)} for file in files)
    stored = json.loads(programs.manifest(files, "test", refused))
    assert stored["not exported"] == plain(refused)


def test_cases_of_another_runtime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A described runtime decides; WebGPU's takes no words."""
    given = ["golden", "export", "q8ta_relu", "--layout", "4C", "--size", "small", "--pte"]
    assert main([*given, str(tmp_path / "a"), "--runtime", "main"]) == 0
    assert f"golden check --pte {tmp_path / 'a'} --outputs OUTPUTS --runtime main" in capsys.readouterr().out
    assert main([*given, str(tmp_path / "b"), "--runtime", "webgpu"]) == 2 and not (tmp_path / "b").exists()
    assert "the runtime loads none of" in capsys.readouterr().err


def test_the_verb_counts_what_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("golden", "export", "q8ta_pixel_shuffle", "--layout", "4C", "--size", "large")
    status, facts = _json(capsys, *given, "--pte", str(tmp_path / "a"))
    left_out = {row["case"] for row in facts["not_exported"]}
    cases = {one.name for one in choose(["q8ta_pixel_shuffle"], ["4C"], Size.LARGE)}
    (file,) = certify.read(tmp_path / "a")
    assert status == 0 and left_out and {entry.name for entry in file.cases} == cases - left_out
    assert main([*given, "--pte", str(tmp_path / "b")]) == 0
    assert f"not exported: {len(left_out)} cases, pixel-shuffle" in capsys.readouterr().out


@pytest.mark.parametrize("op", exportable())
def test_the_double_gives_every_byte(op: str, chosen: dict[str, list[NumberedCase]], tmp_path: Path) -> None:
    rows = chosen[op][:: -(-len(chosen[op]) // (4 * FEW))]
    folder = written(tmp_path / "pte", rows)
    for path in folder.glob("*.pte"):
        double = Runtime(path.read_bytes())
        double.run([])
        assert not double.hazards()
    run(folder, tmp_path / "out")
    found = certify.check(certify.read(folder), tmp_path / "out", {})
    assert found.right and {row.verdict for row in found.verdicts} == {certify.SAME}


# --- what is said of a device ----------------------------------------------------------------------------


def outputs_of(bounds: list[BoundCase], change: Callable[[BoundCase, np.ndarray], None]) -> list[np.ndarray]:
    """The right outputs of cases, changed as a device might."""
    arrays = []
    for bound in bounds:
        buffer = bound.call.expected(bound.inputs)
        change(bound, buffer.raw)
        arrays.append(buffer.raw.view(np.int32).copy())
    return arrays


def judged(
    tmp_path: Path, rows: list[NumberedCase], change: Callable[[BoundCase, np.ndarray], None]
) -> certify.Certificate:
    folder = written(tmp_path / "pte", rows)
    arrays = outputs_of([bind(one.case) for one in rows], change)
    (tmp_path / "out").mkdir()
    np.savez(tmp_path / "out" / f"{rows[0].case.op}.npz", **{f"out{n}": a for n, a in enumerate(arrays)})
    return certify.check(certify.read(folder), tmp_path / "out", {"device": "made up"})


def numbered(op: str, fits: Callable[[BoundCase], bool], count: int) -> list[NumberedCase]:
    return [one for one in choose([op]) if fits(bind(one.case))][:count]


def _as(name: str) -> Callable[[BoundCase, np.ndarray], None]:
    """What a device of a profile writes."""

    def change(bound: BoundCase, raw: np.ndarray) -> None:
        target = replace(bound.call.target, profile=PROFILES[name])
        raw[:] = replace(bound.call, target=target).expected(bound.inputs).raw

    return change


def test_a_device_that_fuses_is_legal_under_its_profile(tmp_path: Path) -> None:
    found = judged(tmp_path, list(choose(["q8ta_conv2d_pw"]))[:60], _as("nvidia"))
    assert found.right and found.profile == "nvidia"
    assert found.counts()["q8ta_conv2d_pw"][certify.LEGAL] > 0


def _both(bound: BoundCase) -> list[np.ndarray]:
    """The output by definition, and that of a device that fuses."""
    return [outputs_of([bound], change)[0] for change in (lambda bound, raw: None, _as("nvidia"))]


def test_a_single_case_of_another_profile_is_told_apart(tmp_path: Path) -> None:
    rows = list(choose(["q8ta_conv2d_pw"]))[:60]
    fused = _as("nvidia")
    telling = next(one for one in rows if not np.array_equal(*_both(bind(one.case))))
    found = judged(tmp_path, rows, lambda b, raw: fused(b, raw) if b.case == telling.case else None)
    row = next(row for row in found.verdicts if row.case == telling.name)
    assert (
        found.profile == "canonical" and row.verdict == certify.LEGAL and "canonical" in row.detail.otherwise
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("op", "defect"),
    [
        ("q8ta_add", "alpha"),
        ("q8ta_conv2d_pw", "first-batch"),
        ("q8ta_conv2d_pw", "groups"),
        ("q8ta_conv2d_dw", "first-batch"),
        ("q8ta_linear", "first-plane"),
    ],
)
def test_defects_of_every_device_are_known(op: str, defect: str, tmp_path: Path) -> None:
    def listed(bound: BoundCase) -> list[Defect]:
        return [row for row in bound.call.defects if row.name == defect]

    def change(bound: BoundCase, raw: np.ndarray) -> None:
        found = known.expected(bound, *listed(bound), programs.FILL)
        assert found is not None
        buffer, certain = found
        raw[:] = np.where(certain, buffer.raw, 0)  # padding is what it may be

    found = judged(tmp_path, numbered(op, lambda b: bool(listed(b)), FEW), change)
    assert found.right and {row.defect for row in found.verdicts if row.defect} == {defect}
    assert all(case.defect == defect for case in found.deviations)
    later = runtime("main").behaviour
    again = certify.check(certify.read(tmp_path / "pte"), tmp_path / "out", {}, runtime=later)
    assert again.right == (f"{defect}:{op}" not in later.ended)


def test_an_exchange_of_bytes_is_wrong_and_has_a_cause(tmp_path: Path) -> None:
    def change(bound: BoundCase, raw: np.ndarray) -> None:
        raw[:] = raw.reshape(-1, 4)[:, ::-1].reshape(-1)

    found = judged(tmp_path, numbered("q8ta_relu", lambda b: b.case.style == "position", 6), change)
    wrong = [row for row in found.verdicts if row.verdict == certify.WRONG]
    assert not found.right and len(wrong) >= 3
    assert all(row.detail.causes[0].name == "byte order" for row in wrong)
    assert wrong[0].detail.first


def test_nothing_written_is_said_so(tmp_path: Path) -> None:
    found = judged(tmp_path, list(choose(["q8ta_relu"]))[:3], lambda bound, raw: raw.fill(programs.FILL))
    assert [row.detail.pattern for row in found.verdicts] == [["nothing was written"]] * 3


#: A seeded bug of each of these kinds runs on the double in a copy of the sources.
SEEDED = ("cpu-N5-relu", "cpu-I1-q8ta_linear")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SEEDED)
def test_a_seeded_bug_shows(name: str, chosen: dict[str, list[NumberedCase]], tmp_path: Path) -> None:
    mutant = ALL[name]
    killer = next(json.loads(line) for line in MUTANTS.read_text().splitlines() if f'"{name}"' in line)[
        "case"
    ]
    rows = [one for one in chosen[mutant.subject] if one.name == killer]
    folder = written(tmp_path / "pte", rows)
    root = tmp_path / "sources"
    root.mkdir()
    copy(mutant, root)
    command = [sys.executable, "-m", "device.on_double", str(folder), str(tmp_path / "out")]
    subprocess.run(command, cwd=tmp_path, env=environment(root), check=True, timeout=300)
    found = certify.check(certify.read(folder), tmp_path / "out", {})
    assert [row.verdict for row in found.verdicts] != [certify.SAME]


# --- the verbs, and bad input ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few exported cases of two operators, and the outputs of the double, under ``pte`` and ``out``."""
    root = tmp_path_factory.mktemp("exported")
    rows = [one for op in ("q8ta_relu", "q8ta_dequantize") for one in list(choose([op]))[:FEW]]
    run(written(root / "pte", rows), root / "out")
    return root


def _json(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, dict[str, Any]]:
    status = main([*command, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_runtime_that_cannot_load_the_programs_is_refused(
    exported: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("golden", "check", "--pte", str(exported / "pte"), "--outputs", str(exported / "out"))
    assert main([*given, "--runtime", "webgpu"]) == 2
    assert "does not load what golden export writes" in capsys.readouterr().err
    assert main([*given, "--runtime", "main"]) == 0


def test_the_verbs(exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, facts = _json(
        capsys, "golden", "export", "q8ta_relu", "--layout", "4C", "--pte", str(tmp_path / "pte")
    )
    assert status == 0 and facts["cases"] == len(list(choose(["q8ta_relu"], ["4C"])))
    given = ("golden", "check", "--pte", str(exported / "pte"), "--outputs", str(exported / "out"))
    files = [str(tmp_path / name) for name in ("certificate.json", "certificate.html")]
    status, facts = _json(
        capsys, *given, "--device", "<b>", "--certificate", files[0], "--certificate", files[1]
    )
    assert status == 0 and facts["right"] and facts["cases"] == 2 * FEW
    stored = json.loads(Path(files[0]).read_text())
    assert stored["about"]["device"] == "<b>" and stored["about"]["runtime"].startswith("2026-08: ")
    assert stored["operators"] == facts["operators"]
    text = Path(files[1]).read_text()
    assert "&lt;b&gt;" in text and f"{2 * FEW} cases, all right" in text
    assert main([*given]) == 0
    assert "q8ta_relu" in capsys.readouterr().out


def test_runners_of_all_kinds(exported: Path, tmp_path: Path) -> None:
    """Outputs as BASE-N.bin, as a folder of .npy; a program without outputs is missing, and not right."""
    files = certify.read(exported / "pte")
    with np.load(exported / "out" / "q8ta_relu.npz") as arrays:
        for number, name in enumerate(arrays.files):
            (tmp_path / f"q8ta_relu-{number}.bin").write_bytes(arrays[name].tobytes())
    found = certify.check(files, tmp_path, {})
    assert not found.right
    assert found.counts()["q8ta_relu"] == {certify.SAME: FEW}
    assert found.counts()["q8ta_dequantize"] == {certify.MISSING: FEW}
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
    given = ("golden", "check", "--pte", str(exported / "pte"), "--outputs", str(tmp_path))
    status, facts = _json(capsys, *given)
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
    assert found.counts()["q8ta_dequantize"] == {certify.SAME: FEW}
    assert found.counts()["q8ta_relu"] == {certify.WRONG: FEW}
    said = {row.detail.unfit for row in found.verdicts if row.op == "q8ta_relu"}
    assert len(said) == 1 and "another number of outputs" in said.pop()


def test_one_output_of_another_size_is_one_failure_among_the_cases(
    exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Among arrays and among raw files: the case is named with the reason, and the others are judged."""
    out, names = tmp_path / "out", ("q8ta_relu", "q8ta_dequantize")
    out.mkdir()
    arrays = {name: dict(np.load(exported / "out" / f"{name}.npz")) for name in names}
    for held in arrays.values():
        held["out1"] = held["out1"].reshape(-1)[:-1]
    np.savez(out / "q8ta_relu.npz", **arrays["q8ta_relu"])
    for number in range(FEW):
        (out / f"q8ta_dequantize-{number}.bin").write_bytes(arrays[names[1]][f"out{number}"].tobytes())
    found = certify.check(certify.read(exported / "pte"), out, {})
    wrong = {row.op: row.detail.unfit for row in found.verdicts if row.verdict == certify.WRONG}
    assert not found.right and all(
        found.counts()[name] == {certify.SAME: FEW - 1, certify.WRONG: 1} for name in names
    )
    assert wrong["q8ta_relu"].startswith(f"{out / 'q8ta_relu.npz'}: out1: does not fit; got int32 [")
    assert wrong["q8ta_dequantize"].startswith(
        f"{out / 'q8ta_dequantize-1.bin'}: not the size of this output"
    )
    given = ("golden", "check", "--pte", str(exported / "pte"), "--outputs", str(out))
    status, facts = _json(capsys, *given, "--certificate", str(tmp_path / "page.html"))
    assert status == 1 and {row["unfit"] for row in facts["deviations"]} == set(wrong.values())
    text = (tmp_path / "page.html").read_text()
    assert main([*given]) == 1
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


def test_another_meaning_is_refused(exported: Path, tmp_path: Path) -> None:
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

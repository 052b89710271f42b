"""The corpus as programs: what is chosen, what is written, and what is said of the outputs of a device."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from device.on_double import run
from device.simulated import Runtime
from exporting import FEW, document, written
from mutants.seeded import ALL
from mutants.tree import CHECKOUT, copy, environment
from saved import arrays as save

from refsim.check.finding import Level
from refsim.check.run import check_bytes
from refsim.check.runtime import runtime
from refsim.cli.kit.program import main
from refsim.core.errors import LimitError, ParameterError
from refsim.core.plain import plain
from refsim.core.qmath import PROFILES
from refsim.formats.pte.read import read_pte
from refsim.golden import certify, judge, programs
from refsim.golden.store import DigestEntry
from refsim.golden.telling import Size, choose, exportable
from refsim.ops.base.arg import Kind
from refsim.ops.base.binding import BoundCase, bind
from refsim.ops.base.defect import Defect
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import OpSpec

MUTANTS = CHECKOUT / "tests" / "mutants" / "seeded.jsonl"


@pytest.fixture(scope="module")
def chosen() -> dict[str, list[DigestEntry]]:
    return {op: list(choose([op])) for op in exportable()}


# --- what is chosen --------------------------------------------------------------------------------------


def test_every_operator_with_packed_tensors_that_a_graph_can_name() -> None:
    def packs(op: OpSpec) -> bool:
        args = [arg for arg in op.args if arg.kind in (Kind.INPUT, Kind.OUTPUT) and not arg.plain]
        return any(row.packed_int8 for arg in args for row in arg.layouts)

    packed = {op.name for op in OPS.values() if op.serialized and not op.siblings and packs(op)}
    assert set(exportable()) == packed and len(packed) >= 14


def test_all_layouts_styles_sizes_and_epilogues(chosen: dict[str, list[DigestEntry]]) -> None:
    assert sum(map(len, chosen.values())) >= 2000
    for op, rows in chosen.items():
        layouts = {(*(r for _, r in one.case.inputs.values()), one.case.out_layout) for one in rows}
        assert len(layouts) == len(OPS[op].layouts), op
        assert len({one.case.style for one in rows}) == 5, op
        assert {one.case.poison for one in rows} == {True, False}, op
        for key in ("activation", "bias"):
            values = {one.case.params.get(key, one.case.features.get(key)) for one in rows}
            has = key in {**rows[0].case.params, **rows[0].case.features}
            assert len(values) == 1 + has, (op, key)


def test_the_cases_that_show_seeded_bugs_are_among_them(chosen: dict[str, list[DigestEntry]]) -> None:
    names = {one.name for rows in chosen.values() for one in rows}
    for line in MUTANTS.read_text().splitlines():
        row = json.loads(line)
        op, _, number = row["case"].partition("/")
        if op in chosen and number.isdecimal() and ALL[row["id"]].executor == "cpu:emulated":
            assert row["case"] in names, row["id"]


@pytest.mark.long
def test_the_page_says_how_many(chosen: dict[str, list[DigestEntry]]) -> None:
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


@pytest.mark.long
def test_files_are_small_alike_every_time_and_have_no_inputs() -> None:
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("op", "rule", "count"),
    [("q8ta_pixel_shuffle", "pixel-shuffle", 66), ("q8ta_quantize", "prepack-rank", 10)],
)
def test_cases_that_the_runtime_does_not_load_are_left_out(
    op: str, rule: str, count: int, chosen: dict[str, list[DigestEntry]]
) -> None:
    taken, refused = programs.loadable(chosen[op])
    assert {row.error.rule for row in refused} == {rule} and len(refused) == count
    assert {one.name for one in taken} | {row.case for row in refused} == {one.name for one in chosen[op]}
    files = list(programs.programs(taken))
    assert [case["case"] for file in files for case in file.cases] == [one.name for one in taken]
    assert all(Level.ERROR not in {found.level for found in check_bytes(file.data)} for file in files)
    stored = json.loads(programs.manifest(files, "test", refused))
    assert stored["not exported"] == plain(refused)


@pytest.mark.long
def test_cases_of_another_runtime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A described runtime decides; WebGPU's takes no words."""
    line = f"golden export q8ta_relu --layout 4C --size small --pte {tmp_path}"
    assert main(f"{line}/a --runtime main".split()) == 0
    assert f"golden check --pte {tmp_path}/a --outputs OUTPUTS --runtime main" in capsys.readouterr().out
    assert main(f"{line}/b --runtime webgpu".split()) == 2 and not (tmp_path / "b").exists()
    assert "the runtime loads none of" in capsys.readouterr().err


def test_the_verb_counts_what_it_leaves_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"golden export q8ta_pixel_shuffle --layout 4C --size large --pte {tmp_path}"
    status, facts = document(capsys, f"{line}/a")
    left_out = {row["case"] for row in facts["not_exported"]}
    cases = {one.name for one in choose(["q8ta_pixel_shuffle"], ["4C"], Size.LARGE)}
    (file,) = certify.read(tmp_path / "a")
    assert status == 0 and left_out and {entry.name for entry in file.cases} == cases - left_out
    assert main(f"{line}/b".split()) == 0
    assert f"not exported: {len(left_out)} cases, pixel-shuffle" in capsys.readouterr().out


@pytest.mark.few(5)
@pytest.mark.parametrize("op", exportable())
def test_the_double_gives_every_byte(op: str, chosen: dict[str, list[DigestEntry]], tmp_path: Path) -> None:
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
    tmp_path: Path, rows: list[DigestEntry], change: Callable[[BoundCase, np.ndarray], None]
) -> certify.Certificate:
    folder = written(tmp_path / "pte", rows)
    arrays = outputs_of([bind(one.case) for one in rows], change)
    (tmp_path / "out").mkdir()
    save(tmp_path / "out" / f"{rows[0].case.op}.npz", arrays)
    return certify.check(certify.read(folder), tmp_path / "out", {"device": "made up"})


def numbered(op: str, fits: Callable[[BoundCase], bool], count: int) -> list[DigestEntry]:
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
    assert found.operators["q8ta_conv2d_pw"][certify.LEGAL] > 0


def _both(bound: BoundCase) -> list[np.ndarray]:
    """The output by definition, and that of a device that fuses."""
    return [outputs_of([bound], change)[0] for change in (lambda bound, raw: None, _as("nvidia"))]


def test_a_single_case_of_another_profile_is_told_apart(tmp_path: Path) -> None:
    rows = list(choose(["q8ta_conv2d_pw"]))[:60]
    fused = _as("nvidia")
    telling = next(one for one in rows if not np.array_equal(*_both(bind(one.case))))
    found = judged(tmp_path, rows, lambda b, raw: fused(b, raw) if b.case == telling.case else None)
    row = next(row for row in found.verdicts if row.case == telling.name)
    assert found.profile == "canonical" and row.verdict == certify.LEGAL
    assert "canonical" in row.otherwise


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
        found = judge.defective(bound, *listed(bound), programs.FILL)
        assert found is not None
        buffer, certain = found
        raw[:] = np.where(certain, buffer.raw, 0)  # padding is what it may be

    found = judged(tmp_path, numbered(op, lambda b: bool(listed(b)), FEW), change)
    assert found.right and {row.judged.defect for row in found.verdicts} - {None} == {defect}
    assert all(case.judged.defect == defect for case in found.deviations)
    later = runtime("main").behaviour
    again = certify.check(certify.read(tmp_path / "pte"), tmp_path / "out", {}, runtime=later)
    assert again.right == (f"{defect}:{op}" not in later.ended)


def test_an_exchange_of_bytes_is_wrong_and_has_a_cause(tmp_path: Path) -> None:
    def change(bound: BoundCase, raw: np.ndarray) -> None:
        raw[:] = raw.reshape(-1, 4)[:, ::-1].reshape(-1)

    found = judged(tmp_path, numbered("q8ta_relu", lambda b: b.case.style == "position", 6), change)
    wrong = [row for row in found.verdicts if row.verdict == certify.WRONG]
    assert not found.right and len(wrong) >= 3
    assert all(row.causes[0].name == "byte order" for row in wrong)
    assert wrong[0].first


def test_nothing_written_is_said_so(tmp_path: Path) -> None:
    found = judged(tmp_path, list(choose(["q8ta_relu"]))[:3], lambda bound, raw: raw.fill(programs.FILL))
    assert [row.pattern for row in found.verdicts] == [["nothing was written"]] * 3


#: A seeded bug of each of these kinds runs on the double in a copy of the sources.
SEEDED = ("cpu-N5-relu", "cpu-I1-q8ta_linear")


@pytest.mark.long
@pytest.mark.parametrize("name", SEEDED)
def test_a_seeded_bug_shows(name: str, chosen: dict[str, list[DigestEntry]], tmp_path: Path) -> None:
    mutant = ALL[name]
    killer = next(json.loads(line) for line in MUTANTS.read_text().splitlines() if f'"{name}"' in line)
    rows = [one for one in chosen[mutant.subject] if one.name == killer["case"]]
    folder = written(tmp_path / "pte", rows)
    root = tmp_path / "sources"
    root.mkdir()
    copy(mutant, root)
    command = [sys.executable, "-m", "device.on_double", str(folder), str(tmp_path / "out")]
    subprocess.run(command, cwd=tmp_path, env=environment(root), check=True, timeout=300)
    found = certify.check(certify.read(folder), tmp_path / "out", {})
    assert [row.verdict for row in found.verdicts] != [certify.SAME]

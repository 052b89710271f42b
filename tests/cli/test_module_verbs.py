"""Verbs on the executor spv:DIR: whose kernels ran, known defects, profiles, and what is wrong with a folder."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from graph.delegates import Builder

from refsim.exec.factory import executors
from refsim.formats.literals import Double
from refsim.golden.store import Corpus, default_root

MODULES = Path(__file__).parents[1] / "modules" / "spirv"
SPV = f"spv:{MODULES}"

pytestmark = pytest.mark.skipif(
    not any(e.name == "spv:DIR" and e.available for e in executors()), reason="no Vulkan device, or no kp"
)


@pytest.fixture
def doubled(tmp_path: Path) -> str:
    """x + 2 * x, then a relu: upstream's kernel of q8ta_add knows no alpha, and the relu gets what it wrote."""
    b, shape = Builder(), (1, 8, 4, 6)
    x = b.activation(shape)
    q = b.quantize(x, shape, "4W4C", 0.05, 3)
    scales = (*b.quantization(0.05, 3), *b.quantization(0.05, 3), *b.quantization(0.1, -2))
    total = b.call("et_vk.q8ta_add.default", q, q, *scales, b.add(Double(2.0)), b.activation(shape, "4W4C"))
    rest = (*b.quantization(0.1, -2), *b.quantization(0.1, -2))
    relu = b.call("et_vk.q8ta_relu.default", total, *rest, b.activation(shape, "4W4C"))
    path = tmp_path / "doubled.blob"
    path.write_bytes(b.blob((x,), b.dequantize(relu, shape, 0.1, -2)))
    return f"{path} --random 3"


@pytest.mark.long
def test_run_says_whose_kernels_ran(mixed: str, models: Path, tmp_path: Path, refsim) -> None:
    done = refsim(f"run {mixed} -x cpu,{SPV} --golden {models}/mixed_ops.dump.zip")
    assert done.status == 0, done.out
    assert f"{SPV}: 14 of 14 operators ran on your kernels" in done.out
    assert "yours: q8ta_im2col, q8ta_conv2d_pw_float" in done.out
    (tmp_path / "few").mkdir()
    shutil.copy(MODULES / "q8ta_relu_buffer.spv", tmp_path / "few")
    few = f"spv:{tmp_path}/few"
    done = refsim(f"run {mixed} -x {few}")
    assert done.status == 0
    assert f"{few}: 1 of 14 operators ran on your kernels" in done.out
    assert "ours: q8ta_conv2d_dw" in done.out
    assert f"{few}: ours for q8ta_add: no module computes it: q8ta_add_buffer" in done.out
    rows = refsim(f"run {mixed} -x {few} --json").json["nodes"]
    (relu,) = (row for row in rows if row["operator"] == "q8ta_relu")
    assert relu["sources"] == {few: {"whose": "yours", "kernels": ["q8ta_relu_buffer"], "why": ""}}


@pytest.mark.long
def test_a_known_defect_is_no_difference(doubled: str, refsim) -> None:
    done = refsim(f"compare {doubled} -x cpu -x {SPV}")
    assert done.status == 0, done.out
    assert "known defect of upstream: alpha" in done.out
    assert "4 buffers on cpu and" in done.out and "3 differ, 3 of them by known defects" in done.out
    found = refsim(f"compare {doubled} -x cpu -x {SPV} --json").json["buffers"]
    add, relu = ({row["operator"]: row for row in found}[name] for name in ("q8ta_add", "q8ta_relu"))
    assert (add["judged"]["verdict"], add["judged"]["defect"]) == ("known", "alpha")
    assert add["source"]["whose"] == "yours"
    assert relu["judged"]["verdict"] == "same" and relu["excused"]
    assert refsim(f"compare {doubled} -x cpu -x cpu:emulated").status == 0
    done = refsim(f"run {doubled} -x cpu,{SPV}")
    assert f"{SPV}: node 1 q8ta_add: known defect of upstream: alpha" in done.out
    assert done.status == 1, "the outputs differ"
    done = refsim(f"bisect {doubled} -x {SPV}")
    assert "cause: upstream's kernel ignores alpha" in done.out and "wrong: node 1 q8ta_add" in done.out
    assert "wrong: node 2" not in done.out


@pytest.mark.long
def test_a_wrong_module_is_a_difference(mixed: str, tmp_path: Path, refsim) -> None:
    wrong = tmp_path / "wrong"
    shutil.copytree(MODULES, wrong)
    shutil.copy(MODULES.parent / "example" / "q8ta_conv2d_float.spv", wrong)
    done = refsim(f"compare {mixed} -x cpu -x spv:{wrong} --json")
    assert done.status == 1
    first, *after = (row for row in done.json["buffers"] if row["different"])
    assert first["value"] == done.json["first"] and first["operator"] == "q8ta_conv2d"
    assert first["judged"]["verdict"] == "wrong"
    assert {row["judged"]["verdict"] for row in after if row["judged"]} <= {"same", "wrong"}
    done = refsim(f"bisect {mixed} -x spv:{wrong}")
    assert done.status == 1 and "wrong: node 1 q8ta_conv2d" in done.out and "wrong: node 4" not in done.out


@pytest.mark.long
def test_golden_verify_counts_what_is_known(refsim) -> None:
    entries = list(Corpus(default_root()).entries("q8ta_add"))[:40]
    line = f"golden verify {' '.join(entry.name for entry in entries[::8])} -x {SPV} --workers 1"
    facts = refsim(f"{line} --json").json
    assert facts["same"], facts["failures"]
    assert facts["known"] == {"known defect of upstream: alpha": facts["executors"][SPV]["known"]}
    done = refsim(line)
    assert "cases: known defect of upstream: alpha" in done.out and done.status == 0
    case = next(entry for entry in entries if entry.case.params.get("alpha", 1) != 1)
    done = refsim(f"replay {case.name} -x {SPV}")
    assert done.status == 0 and "known defect of upstream: alpha" in done.out
    assert "yours: q8ta_add_buffer" in done.out


def test_every_verb_takes_a_profile(head: str, refsim) -> None:
    assert refsim(f"run {head} -x cpu,{SPV} --profile lavapipe").status == 0
    assert refsim(f"compare {head} -x cpu,{SPV} --profile lavapipe").status == 0
    assert refsim(f"repeat {head} -x {SPV} -n 2 --profile nvidia").status == 0
    refsim(f"run {head} -x cpu,{SPV} --profile nonesuch").refused("numerics profile: unknown")


def test_bad_folders_are_bad_input(mixed: str, tmp_path: Path, refsim) -> None:
    (tmp_path / "q8ta_add_buffer.spv").write_bytes(b"nothing of the kind")
    for name, said in (
        ("/nonesuch", "not a folder of modules"), ("", "q8ta_add_buffer.spv"), ("@nonesuch", "unknown option"),
    ):  # fmt: skip
        refsim(f"run {mixed} -x spv:{tmp_path}{name}").refused(said)


def test_the_pytest_plugin_runs_kernels(tmp_path: Path) -> None:
    checks = "".join(f"    g.check_kernel('{name}/0003', {SPV!r})\n" for name in ("q8ta_relu", "q8ta_clone"))
    code = f"def test_right(packed_golden):\n    g = packed_golden\n{checks}"
    (tmp_path / "test_mine.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_results_of_other_modules_are_not_continued(tmp_path: Path, refsim) -> None:
    folder = tmp_path / "modules"
    shutil.copytree(MODULES, folder)
    verify = f"golden verify q8ta_relu/1 -x spv:{folder} --workers 1 --results {tmp_path}/r.jsonl"
    swept = f"sweep q8ta_relu -n 2 --workers 0 -x spv:{folder} --db {tmp_path}/s.db"
    for command in (verify, swept):
        assert refsim(command).status == 0
        assert refsim(f"{command} --resume").status == 0
    module = folder / "q8ta_relu_buffer.spv"
    module.write_bytes(module.read_bytes() + bytes(0))
    assert refsim(f"{verify} --resume").status == 0, "the same bytes, saved again"
    shutil.copy(MODULES / "q8ta_add_buffer.spv", folder / "q8ta_other_buffer.spv")
    other = refsim(f"{verify} --resume")
    other.refused("got other modules or packages of an executor, need the same, or another file")
    other = refsim(f"{swept} --resume")
    other.refused(f"other modules, or another package, of executor spv:{folder}")

"""Verbs on the executor spv:DIR: whose kernels ran, known defects, profiles, and what is wrong with a folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from graph.delegates import Builder

from refsim.exec.factory import executors
from refsim.formats.literals import Double

MODULES = Path(__file__).parents[1] / "modules" / "spirv"
SPV = f"spv:{MODULES}"

pytestmark = pytest.mark.skipif(
    not any(e.name == "spv:DIR" and e.available for e in executors()), reason="no Vulkan device, or no kp"
)


@pytest.fixture
def doubled(tmp_path: Path) -> Path:
    """x + 2 * x, then a relu: upstream's kernel of q8ta_add knows no alpha, and the relu gets what it wrote."""
    b, shape = Builder(), (1, 8, 4, 6)
    x = b.activation(shape)
    q = b.quantize(x, shape, "4W4C", 0.05, 3)
    scales = (*b.quantization(0.05, 3), *b.quantization(0.05, 3), *b.quantization(0.1, -2))
    total = b.call("et_vk.q8ta_add.default", q, q, *scales, b.add(Double(2.0)), b.activation(shape, "4W4C"))
    rest = (*b.quantization(0.1, -2), *b.quantization(0.1, -2))
    relu = b.call("et_vk.q8ta_relu.default", total, *rest, b.activation(shape, "4W4C"))
    out = b.dequantize(relu, shape, 0.1, -2)
    path = tmp_path / "doubled.blob"
    path.write_bytes(b.blob((x,), out))
    return path


@pytest.fixture
def mixed(models: Path) -> list[object]:
    return [models / "mixed_ops.pte", "-i", models / "mixed_ops.io.npz"]


@pytest.mark.long
def test_run_says_whose_kernels_ran(mixed, models: Path, tmp_path: Path, refsim) -> None:
    done = refsim("run", *mixed, "-x", f"cpu,{SPV}", "--golden", models / "mixed_ops.dump.zip")
    assert done.status == 0, done.out
    assert f"{SPV}: 14 of 14 operators ran on your kernels" in done.out
    assert "yours: q8ta_im2col, q8ta_conv2d_pw_float" in done.out
    few = tmp_path / "few"
    few.mkdir()
    shutil.copy(MODULES / "q8ta_relu_buffer.spv", few)
    done = refsim("run", *mixed, "-x", f"spv:{few}")
    assert done.status == 0
    assert f"spv:{few}: 1 of 14 operators ran on your kernels" in done.out
    assert "ours: q8ta_conv2d_dw" in done.out
    assert f"spv:{few}: ours for q8ta_add: no module computes it: q8ta_add_buffer" in done.out
    rows = refsim("run", *mixed, "-x", f"spv:{few}", "--json").json["nodes"]
    (relu,) = (row for row in rows if row["operator"] == "q8ta_relu")
    assert relu["sources"] == {f"spv:{few}": {"whose": "yours", "kernels": ["q8ta_relu_buffer"], "why": ""}}


@pytest.mark.long
def test_a_known_defect_is_no_difference(doubled: Path, refsim) -> None:
    given = [doubled, "--random", 3]
    done = refsim("compare", *given, "-x", "cpu", "-x", SPV)
    assert done.status == 0, done.out
    assert "known defect of upstream: alpha" in done.out
    assert "4 buffers on cpu and" in done.out and "3 differ, 3 of them by known defects" in done.out
    rows = {
        row["operator"]: row
        for row in refsim("compare", *given, "-x", "cpu", "-x", SPV, "--json").json["buffers"]
    }
    known = rows["q8ta_add"]["judged"]
    assert (known["verdict"], known["defect"]) == ("known", "alpha") and rows["q8ta_add"]["source"][
        "whose"
    ] == "yours"
    assert rows["q8ta_relu"]["judged"]["verdict"] == "same" and rows["q8ta_relu"]["excused"]
    assert refsim("compare", *given, "-x", "cpu", "-x", "cpu:emulated").status == 0
    done = refsim("run", *given, "-x", f"cpu,{SPV}")
    assert f"{SPV}: node 1 q8ta_add: known defect of upstream: alpha" in done.out
    assert done.status == 1, "the outputs differ"
    done = refsim("bisect", *given, "-x", SPV)
    assert "cause: upstream's kernel ignores alpha" in done.out and "wrong: node 1 q8ta_add" in done.out
    assert "wrong: node 2" not in done.out


@pytest.mark.long
def test_a_wrong_module_is_a_difference(mixed, tmp_path: Path, refsim) -> None:
    wrong = tmp_path / "wrong"
    shutil.copytree(MODULES, wrong)
    shutil.copy(MODULES.parent / "example" / "q8ta_conv2d_float.spv", wrong)
    done = refsim("compare", *mixed, "-x", "cpu", "-x", f"spv:{wrong}", "--json")
    assert done.status == 1
    rows = {row["value"]: row for row in done.json["buffers"]}
    assert rows[done.json["first"]]["operator"] == "q8ta_conv2d"
    assert rows[done.json["first"]]["judged"]["verdict"] == "wrong"
    after = [row for row in done.json["buffers"] if row["different"]]
    assert {row["judged"]["verdict"] for row in after[1:] if row["judged"]} <= {"same", "wrong"}
    done = refsim("bisect", *mixed, "-x", f"spv:{wrong}")
    assert done.status == 1 and "wrong: node 1 q8ta_conv2d" in done.out and "wrong: node 4" not in done.out


@pytest.mark.long
def test_golden_verify_counts_what_is_known(refsim) -> None:
    from refsim.golden.store import Corpus, default_root

    entries = list(Corpus(default_root()).entries("q8ta_add"))[:40]
    cases = [entry.name for entry in entries[::8]]
    facts = refsim("golden", "verify", *cases, "-x", SPV, "--workers", "1", "--json").json
    assert facts["same"], facts["failures"]
    assert facts["known"] == {"known defect of upstream: alpha": facts["executors"][SPV]["known"]}
    done = refsim("golden", "verify", *cases, "-x", SPV, "--workers", "1")
    assert "cases: known defect of upstream: alpha" in done.out and done.status == 0
    case = next(entry for entry in entries if entry.case.params.get("alpha", 1) != 1)
    done = refsim("replay", case.name, "-x", SPV)
    assert done.status == 0 and "known defect of upstream: alpha" in done.out
    assert "yours: q8ta_add_buffer" in done.out


def test_every_verb_takes_a_profile(models: Path, refsim) -> None:
    given = [models / "linear_head.pte", "-i", models / "linear_head.io.npz"]
    assert refsim("run", *given, "-x", f"cpu,{SPV}", "--profile", "lavapipe").status == 0
    assert refsim("compare", *given, "-x", f"cpu,{SPV}", "--profile", "lavapipe").status == 0
    assert refsim("repeat", *given, "-x", SPV, "-n", "2", "--profile", "nvidia").status == 0
    refsim("run", *given, "--profile", "nonesuch").refused("numerics profile: unknown")


def test_bad_folders_are_bad_input(mixed, tmp_path: Path, refsim) -> None:
    refsim("run", *mixed, "-x", f"spv:{tmp_path}/nonesuch").refused("not a folder of modules")
    (tmp_path / "q8ta_add_buffer.spv").write_bytes(b"nothing of the kind")
    refsim("run", *mixed, "-x", f"spv:{tmp_path}").refused("q8ta_add_buffer.spv")
    refsim("run", *mixed, "-x", f"spv:{tmp_path}@nonesuch").refused("unknown option")
    refsim("bisect", *mixed).refused("give the buffers with --actual")


def test_the_pytest_plugin_runs_kernels(tmp_path: Path) -> None:
    import subprocess
    import sys

    (tmp_path / "test_mine.py").write_text(
        f"""
def test_right(packed_golden):
    packed_golden.check_kernel("q8ta_relu/0003", {SPV!r})
    packed_golden.check_kernel("q8ta_clone/0003", {SPV!r})
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
def test_results_of_other_modules_are_not_continued(tmp_path: Path, refsim) -> None:
    """`golden verify --results` and `sweep --db` know the modules by their bytes, not by the name of the folder."""
    folder = tmp_path / "modules"
    shutil.copytree(MODULES, folder)
    verify = (
        "golden",
        "verify",
        "q8ta_relu/1",
        "-x",
        f"spv:{folder}",
        "--workers",
        1,
        "--results",
        tmp_path / "r.jsonl",
    )
    swept = ("sweep", "q8ta_relu", "-n", 2, "--workers", 0, "-x", f"spv:{folder}", "--db", tmp_path / "s.db")
    for command in (verify, swept):
        assert refsim(*command).status == 0
        assert refsim(*command, "--resume").status == 0
    module = folder / "q8ta_relu_buffer.spv"
    module.write_bytes(module.read_bytes() + bytes(0))
    assert refsim(*verify, "--resume").status == 0, "the same bytes, saved again"
    shutil.copy(MODULES / "q8ta_add_buffer.spv", folder / "q8ta_other_buffer.spv")
    refsim(*verify, "--resume").refused(
        "got other modules or packages of an executor, need the same, or another file"
    )
    refsim(*swept, "--resume").refused(f"other modules, or another package, of executor spv:{folder}")

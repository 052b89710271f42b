"""Verbs with WGSL kernels: graphs of the WebGPU runtime on `wgsl:DIR`, and `refsim shaders` on a folder of them."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from cli.test_shader_watch import Watching
from modules.wgsl_kernels import BUGS, INDEX, RIGHT
from needed import needs_device

from refsim.exec.factory import executor_named
from refsim.golden.check import ACCEPTED, run
from refsim.golden.rules import case
from refsim.ops.base.binding import bind

DATA = Path(__file__).parents[1] / "data"
NAME = f"wgsl:{RIGHT}@{INDEX}"
WEBGPU = "--random 0 --runtime webgpu"


@pytest.fixture(scope="module", autouse=True)
def _device() -> None:
    with needs_device():
        executor_named(NAME).close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The sum of two quantized tensors, as ExecuTorch exports it."""
    with zipfile.ZipFile(DATA / "webgpu" / "recordings.zip") as held:
        (tmp_path / "x_add.pte").write_bytes(held.read("x_add/x_add.pte"))
    return tmp_path / "x_add.pte"


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    """An executor whose sum takes the scale of a for b."""
    (bug,) = (bug for bug in BUGS if bug.id == "add-scale")
    return f"wgsl:{bug.seeded(tmp_path / 'kernels')}@{INDEX}"


@pytest.mark.long
def test_run_says_which_kernels_ran_in_one_step(file: Path, refsim) -> None:
    found = refsim(f"run {file} {WEBGPU} -x {NAME} --json").json
    assert {row["sources"][NAME]["whose"] for row in found["nodes"]} == {"yours"}
    assert len({tuple(row["steps"][NAME]) for row in found["nodes"]}) == 1


@pytest.mark.long
def test_verbs_name_operator_and_cause(file: Path, wrong: str, refsim) -> None:
    for line in ("compare {} {} -x cpu -x {}", "bisect {} {} -x {}"):
        done = refsim(line.format(file, WEBGPU, wrong))
        assert done.status == 1 and "1. another tensor's quantization: " in done.out
    assert "q8ta_add" in next(line for line in done.out.splitlines() if line.startswith("wrong:"))
    assert refsim(f"compare {file} {WEBGPU} -x cpu -x {NAME}").status == 0


@pytest.mark.few(1)
@pytest.mark.parametrize("op", ["q8ta_add", "q8ta_quantize", "q8ta_conv2d_dw"])
def test_the_corpus_asks_for_the_bits_of_flat_kernels(op: str) -> None:
    """They are other ones than those of packed kernels, for some ties."""
    with executor_named(NAME) as executor:
        for number in range(40):
            bound = bind(case(op, number))
            expected = bound.call.expected(bound.inputs)
            assert run(str(number), executor.name, executor, bound, expected).status in ACCEPTED


@pytest.mark.long
def test_replay_asks_for_them_too(wrong: str, refsim) -> None:
    assert refsim(f"replay q8ta_add/0003 -x wgsl:{RIGHT}@{INDEX}").status == 0
    done = refsim(f"replay q8ta_add/0003 -x {wrong}")
    assert done.status == 1 and "another tensor's quantization" in done.out


@pytest.mark.long
def test_shaders_takes_the_runtime_of_the_kernels(tmp_path: Path, refsim) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"of": "webgpu", "title": "own", "measured": False, "source": "a test"}))
    assert refsim(f"shaders {RIGHT} q8ta_relu --count 4 --runtime {own}").status == 0
    refsim(f"shaders {RIGHT} q8ta_relu --runtime main").refused("need .spv")
    refsim(f"shaders {RIGHT} --runtime none").refused("unknown")


@pytest.mark.long
def test_shaders_refuses_what_is_for_spirv(refsim) -> None:
    for options in (("--sanitize",), ("--images",), ("--variant", "fallback")):
        refsim(f"shaders {RIGHT} q8ta_relu", *options, "--device", INDEX).refused("options for SPIR-V")


@pytest.mark.long
def test_a_case_runs_again_by_its_name(tmp_path: Path, refsim) -> None:
    """The case was changed until the kernel took it; the name stands for the same change."""
    (bug,) = (bug for bug in BUGS if bug.id == "convolution-left-edge")
    folder = bug.seeded(tmp_path / "kernels")
    found = refsim(f"shaders {folder} {bug.op} --count 4 --device {INDEX} --json").json
    (name,) = (row["case"] for row in found["wrong"])
    again = refsim(f"shaders {folder} {bug.op} --case {name} --device {INDEX} --json").json
    assert again["wrong"][0]["report"]["differing"] == found["wrong"][0]["report"]["differing"]


@pytest.mark.long
@pytest.mark.search(2)
def test_watch_tells_of_each_save(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(RIGHT, tmp_path / "kernels"))
    (bug,) = (bug for bug in BUGS if bug.id == "relu-clamps-the-byte")
    source = folder / bug.file
    right = source.read_text()
    with Watching(folder, bug.op, "--device", INDEX, "--count", 6) as watching:
        watching.until("right, ")
        put(source, right.replace(bug.anchor, bug.replacement))
        watching.until("rectified changed")
        assert "relu dropped or added" in watching.until("wrong in q8ta_relu/")
        put(source, right)
        watching.until("rectified changed")
        watching.until("right, ")
        watching.end()


def put(path: Path, text: str) -> None:
    """Replace a file at once."""
    (path.parent / "new").write_text(text)
    os.replace(path.parent / "new", path)

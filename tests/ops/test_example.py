"""Adding an operator, as docs/adding-an-operator.md says: the worked example, in a copy of the sources."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from examples import UNARY
from mutants.bugs import GPU
from mutants.run import missing

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).parent / "example"
NAME = "q8ta_leaky_relu"
#: What a copy holds: what an operator's author touches, and what looks at operators.
PARTS = ("refsim", "gpu", "shaders", "bench", "tests/ops", "tests/core", "docs/numerics.md", "setup.cfg")

#: Everything that must follow from the operator's own file, told as JSON.
FOLLOWS = f"""
import json, sys
sys.path.insert(0, "tests/ops")
import numpy as np
from bench.operators import CASES
from laws import check_case, sampled
from refsim import diff
from refsim.core.rng import Rng
from refsim.exec.factory import executor_named
from refsim.golden.coverage import FEATURES
from refsim.golden.rules import case
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS
from refsim.ops.base.target import Target
op, native = OPS["{NAME}"], executor_named("cpu")
cases = [sampled("{NAME}", seed) for seed in range(10)] + [case("{NAME}", number) for number in range(30)]
for one in cases:
    expected = check_case(one, Target(), "", poison=1)
    bound = bind(one)
    assert native.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)
bound = bind(case("{NAME}", 11))
good = bound.call.expected(bound.inputs).raw
reversed_bytes = good.reshape(-1, 4)[:, ::-1].reshape(-1)
report = diff(good, reversed_bytes, call=bound)
print(json.dumps({{
    "bench": [row.op for row in CASES].count("{NAME}"),
    "features": sum(feature.applies(op) for feature in FEATURES),
    "as relu": sum(feature.applies(OPS["{UNARY.name}"]) for feature in FEATURES),
    "cause": report.causes[0].name,
    "writer": report.differences[0].writer is not None,
    "words": [name for name in op.kernel.push.at if name == "SLOPE"],
}}))
"""

#: Builds the shader and runs it; says how many cases came out right.
ON_DEVICE = f"""
import tempfile
from pathlib import Path
from refsim.exec.factory import executor_named
from refsim.golden.rules import case
from refsim.ops.base.binding import bind
from refsim_gpu import build_shaders
with tempfile.TemporaryDirectory() as scratch:
    for source, binary, options in build_shaders.variants():
        if source.stem == "{NAME}":
            binary.write_bytes(build_shaders.compile_one(source, options, Path(scratch)))
gpu, right = executor_named("gpu"), 0
for number in range(24):
    bound = bind(case("{NAME}", number))
    right += gpu.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs)
print(right)
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(
                ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "*.zip")
            )
        else:
            (tmp_path / part).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / part, tmp_path / part)
    (tmp_path / "gpu").rename(tmp_path / "refsim_gpu")
    return tmp_path


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in the copy, whose modules come first."""
    environment = {**os.environ, "PYTHONPATH": str(copy), "XDG_CACHE_HOME": str(copy / "cache")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)


def lines(done: subprocess.CompletedProcess[str]) -> dict[str, bool]:
    """The checklist: what it asks for, without the advice, and whether it is there."""
    marks = [(line[4:].partition(":")[0], line[1] == "x") for line in done.stdout.splitlines()]
    assert marks, done.stderr
    return dict(marks)


@pytest.mark.long
def test_a_copy_of_an_operator_runs_from_the_start(copy: Path) -> None:
    done = run(copy, "-m", "refsim.ops", "new", NAME)
    assert done.returncode == 0, done.stderr
    assert (copy / f"refsim/ops/{NAME}.py").is_file() and (copy / f"shaders/{NAME}.comp").is_file()
    law = run(copy, "tests/ops/laws.py", NAME, "3")
    assert law.returncode == 0, law.stdout + law.stderr
    found = run(copy, "-m", "refsim.ops", "check", NAME, "--no-tests")
    assert found.returncode == 1
    assert lines(found) == {
        "meaning and source are written": False,
        "shader": True,
        "its push and specialization words": False,
        "its SPIR-V": False,
        "golden cases": False,
        "row in docs/numerics.md": False,
        "graphs can hold it": False,
    }
    again = run(copy, "-m", "refsim.ops", "new", NAME)
    assert again.returncode == 2 and "there is such a file" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("new", "Leaky-ReLU"), "this is no name"),
        (("new", UNARY.name), "there is such a file"),
        (("new", "q8ta_x", "--like", "q8ta_y"), "unknown"),
        (("check", "q8ta_y"), "unknown"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], words: str) -> None:
    done = run(ROOT, "-m", "refsim.ops", *arguments)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
    assert not (ROOT / "refsim/ops/q8ta_x.py").exists()


@pytest.mark.long
def test_the_rest_follows_from_the_file(copy: Path) -> None:
    """Kernel, cases, golden rule, coverage, causes, bench row and words of an operator that nobody names."""
    shutil.copy(EXAMPLE / f"{NAME}.py", copy / "refsim/ops")
    shutil.copy(EXAMPLE / f"{NAME}.comp", copy / "shaders")
    assert run(copy, "-m", "refsim_gpu.build_push").returncode == 0
    assert "SLOPE" in (copy / f"shaders/include/push/{NAME}.glsl").read_text()
    marks = lines(run(copy, "-m", "refsim.ops", "check", NAME, "--no-tests"))
    assert marks["meaning and source are written"] and marks["its push and specialization words"]
    done = run(copy, "-c", FOLLOWS)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["bench"] == 1 and facts["words"] == ["SLOPE"] and facts["writer"]
    assert facts["features"] == facts["as relu"] > 20
    assert facts["cause"] == "byte order"


@pytest.mark.long
@pytest.mark.skipif(missing(GPU) is not None, reason=str(missing(GPU)))
def test_its_shader_writes_the_same_bytes(copy: Path) -> None:
    shutil.copy(EXAMPLE / f"{NAME}.py", copy / "refsim/ops")
    shutil.copy(EXAMPLE / f"{NAME}.comp", copy / "shaders")
    assert run(copy, "-m", "refsim_gpu.build_push").returncode == 0
    done = run(copy, "-c", ON_DEVICE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "24"

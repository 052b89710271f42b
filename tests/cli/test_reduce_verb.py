"""`refsim reduce`: a command in a process of its own, the file at each step, and how a search ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from refsim.exec.model import load

#: A command that fails while a program adds: it ends with the status 7 then.
ADDS = (
    sys.executable, "-c",
    "import sys; from refsim.exec.model import load;"
    "sys.exit(7 * any(n.operator == 'q8ta_add' for _, n in load(sys.argv[1]).nodes()))",
)  # fmt: skip


@pytest.mark.long
def test_the_smallest_program_that_fails_is_written(refsim, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.pte"
    done = refsim(f"reduce {models}/mixed_ops.pte -o {out} --json --", *ADDS)
    assert done.status == 0
    left = [node.operator for _, node in load(out).nodes()]
    assert left == ["q8ta_quantize", "q8ta_add", "q8ta_dequantize"]
    found = done.json
    assert (found["command_status"], found["operators_before"], found["operators"]) == (7, 15, 3)
    assert found["ended"] and not found["shares"]
    assert found["bytes"] == out.stat().st_size < found["bytes_before"]
    assert refsim(f"run {out} --random 0").status == 0


def test_braces_stand_for_the_path_anywhere_in_a_word(refsim, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.pte"
    command = ("sh", "-c", "grep -q pixel_shuffle '{}' && exit 3; exit 0")
    done = refsim(f"reduce {models}/mixed_ops.pte -o {out} --", *command)
    assert done.status == 0 and str(out) in done.out.splitlines()[-1]
    assert "q8ta_pixel_shuffle" in [node.operator for _, node in load(out).nodes()]


def test_nothing_is_written_where_no_smaller_program_fails(refsim, models: Path, tmp_path: Path) -> None:
    out, size = tmp_path / "small.pte", (models / "linear_head.pte").stat().st_size
    command = ("sh", "-c", f"test $(wc -c < {{}}) != {size}")
    assert refsim(f"reduce {models}/linear_head.pte -o {out} --", *command).status == 2
    assert not out.exists()


@pytest.mark.long
def test_another_failure_is_not_the_one(refsim, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.pte"
    other = (*ADDS[:2], ADDS[2].replace("sys.exit(7 *", "sys.exit(9 - 2 *"))
    assert refsim(f"reduce {models}/mixed_ops.pte -o {out} --", *other).status == 0
    assert "q8ta_add" in [node.operator for _, node in load(out).nodes()]


@pytest.mark.long
def test_interrupted_it_keeps_the_smallest_so_far(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "small.pte"
    line = f"reduce {models}/refine_seg.pte -o {out} --"
    words = [sys.executable, "-m", "refsim.cli", *line.split(), *ADDS]
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 100
    while not out.exists() and time.monotonic() < end and run.poll() is None:
        time.sleep(0.05)
    os.kill(run.pid, signal.SIGINT)
    text, _ = run.communicate(timeout=60)
    assert run.returncode == 0 and str(out) in text
    assert "q8ta_add" in [node.operator for _, node in load(out).nodes()]
    assert [path.name for path in tmp_path.iterdir()] == ["small.pte"]

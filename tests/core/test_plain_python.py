"""The emulated kernels are Python: without Numba's compiler they write the same bytes, and a debugger can step in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from refsim.golden import rules
from refsim.ops.base.binding import bind
from refsim.ops.base.registry import OPS


def uncompiled(*arguments: str) -> None:
    """A command on the emulated kernels, whose arithmetic must not even warn."""
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "error::RuntimeWarning"}
    command = [sys.executable, "-m", "refsim.cli", *arguments, "-x", "cpu:emulated"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_kernels_run_uncompiled() -> None:
    """A small case of each operator."""

    def words(op: str, number: int) -> int:
        return bind(rules.case(op, number)).call.out.words

    smallest = ((op, min(range(12), key=lambda number, op=op: words(op, number))) for op in OPS)
    uncompiled("golden", "verify", *(f"{op}/{number:04d}" for op, number in smallest))


def test_a_whole_model_runs_uncompiled() -> None:
    model = Path(__file__).parents[1] / "data" / "models" / "linear_head"
    recorded = ["--golden", f"{model}.dump.zip", "--expect", f"{model}.io.npz"]
    uncompiled("run", f"{model}.pte", "-i", f"{model}.io.npz", *recorded)

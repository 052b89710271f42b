"""The emulated kernels are Python: without Numba's compiler they write the same bytes, and a debugger can step in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS

CODE = """
import sys, warnings
warnings.simplefilter("error")
from refsim.exec.emulated import EmulatedExecutor
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
import numba
assert numba.config.DISABLE_JIT
executor = EmulatedExecutor()
for name in sys.argv[1:]:
    case = next(case for case in OPS[name].cases if isinstance(case, Case))
    bound = bind(case)
    assert executor.run_call(bound.call, bound.inputs) == bound.call.expected(bound.inputs), str(case)
    print(name)
"""


def test_kernels_run_uncompiled() -> None:
    names = [name for name, op in OPS.items() if any(isinstance(case, Case) for case in op.cases)]
    assert names == list(OPS)
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-c", CODE, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == names, done.stderr


def test_a_whole_model_runs_uncompiled() -> None:
    model = Path(__file__).parents[1] / "data" / "models" / "linear_head"
    command = [
        sys.executable,
        "-m",
        "refsim.cli",
        "run",
        f"{model}.pte",
        "-i",
        f"{model}.io.npz",
        "-x",
        "cpu:emulated",
    ]
    command += ["--golden", f"{model}.dump.zip", "--expect", f"{model}.io.npz"]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

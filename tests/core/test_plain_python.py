"""The emulated kernels are Python: without Numba's compiler they write the same bytes, and a debugger can step in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from refsim.ops.base.registry import OPS

CODE = """
import sys, traceback, warnings
warnings.simplefilter("error")
from refsim.bytediff import diff
from refsim.exec.emulated import EmulatedExecutor
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
import numba
assert numba.config.DISABLE_JIT
executor = EmulatedExecutor()
for name in sys.argv[1:]:
    case = OPS[name].cases.example
    bound = bind(case)
    expected = bound.call.expected(bound.inputs)
    try:
        found = executor.run_call(bound.call, bound.inputs)
    except Exception as error:
        traceback.print_exc()
        sys.exit(f"{name}: {case}")
    if found != expected:
        sys.exit(f"{name}: {diff(expected, found, call=bound, limit=1)}; {case}")
    print(name)
"""


def test_kernels_run_uncompiled() -> None:
    names = list(OPS)
    done = uncompiled(*names)
    assert done.stdout.split() == names, done.stderr


def uncompiled(*names: str) -> subprocess.CompletedProcess[str]:
    """Run a case of each operator."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path}
    command = [sys.executable, "-c", CODE, *names]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_whole_model_runs_uncompiled() -> None:
    model = Path(__file__).parents[1] / "data" / "models" / "linear_head"
    command = [sys.executable, "-m", "refsim.cli", "run", f"{model}.pte", "-i", f"{model}.io.npz"]
    command += ["-x", "cpu:emulated", "--golden", f"{model}.dump.zip", "--expect", f"{model}.io.npz"]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

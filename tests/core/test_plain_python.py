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
from refsim.exec.emulated import EmulatedExecutor
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS
import numba
assert numba.config.DISABLE_JIT
executor = EmulatedExecutor()
for name in sys.argv[1:]:
    case = OPS[name].example
    bound = bind(case)
    expected = bound.call.expected(bound.inputs)
    try:
        found = executor.run_call(bound.call, bound.inputs)
    except Exception as error:
        places = [frame for frame in traceback.extract_tb(error.__traceback__) if "/refsim/" in frame.filename]
        inner = [f"refsim/{at.filename.rpartition('/refsim/')[2]}: {at.name}" for at in reversed(places[-3:])]
        sys.exit(f"{name}: {error!r}; asked of {', '.join(inner)}; {case}")
    if found != expected:
        import told
        sys.exit(f"refsim/ops/{name}.py: {told.buffers(expected, found, bound)}; {case}")
    print(name)
"""


def test_kernels_run_uncompiled() -> None:
    names = list(OPS)
    done = uncompiled(*names)
    assert done.stdout.split() == names, done.stderr


def uncompiled(*names: str, first: str = "") -> subprocess.CompletedProcess[str]:
    """Run a case of each operator; ``first``: what is executed before."""
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path}
    command = [sys.executable, "-c", first + CODE, *names]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_what_fails_says_where_it_was_computed() -> None:
    """An error with the functions that it came through, the innermost first; wrong bytes with the causes."""
    first = "from refsim.core import index\nindex.word_idx = None\n"
    done = uncompiled("q8ta_relu", first=first)
    assert done.returncode and "q8ta_relu: TypeError(" in done.stderr
    assert (
        "; asked of refsim/ops/q8ta_relu.py: " in done.stderr or "; asked of refsim/ops/base/" in done.stderr
    )
    first = "from refsim.core.buffer import PackedBuffer\nPackedBuffer.__eq__ = lambda a, b: False\n"
    done = uncompiled("q8ta_relu", first=first)
    assert done.stderr.startswith("refsim/ops/q8ta_relu.py: 0 of ") and "bytes differ" in done.stderr


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

"""Make the dumps that docs/debugging.md examines: runs of bundled models on a "device" whose kernels have a bug.

python docs/seeded_bugs.py [NAME...]   writes out/debugging/NAME/: every buffer of that run

The device is the CPU executor in a copy of the sources that has one of the seeded bugs of tests/mutants.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "out" / "debugging"
#: Name of the dumps -> the seeded bug, and the bundled model that is run.
RUNS = {
    "frame": ("cpu-N2-q8ta_conv2d_general", "mixed_ops"),
    "grid": ("cpu-I1-q8ta_linear", "mobilenet_v2_035_96"),
    "steps": ("cpu-N1-up", "refine_seg"),
}


def make(name: str) -> None:
    """Write the dumps of one run anew."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from mutants.seeded import ALL
    from mutants.tree import copy

    bug, model = RUNS[name]
    mutant = ALL[bug]
    shutil.rmtree(TARGET / name, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        copy(mutant, Path(scratch) / "device")
        models = ROOT / "tests" / "data" / "models"
        options = ["-i", models / f"{model}.io.npz", "-x", mutant.executor, "--dump", ".", TARGET / name]
        command = [sys.executable, "-m", "refsim.cli", "run", models / f"{model}.pte", *options]
        environment = os.environ | {"PYTHONPATH": str(Path(scratch) / "device")}
        subprocess.run(command, cwd=scratch, env=environment, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    for each in sys.argv[1:] or RUNS:
        make(each)

"""Make what docs/debugging.md and docs/first-hour.md examine: runs of bundled models on a "device" with a bug.

python docs/seeded_bugs.py [NAME...]   writes out/debugging/NAME/: every buffer of that run
python docs/seeded_bugs.py phone       writes out/first-hour/phone.npz and fixed.npz: all outputs of an exposed file

The device is the CPU executor in a copy of the sources that has one of the seeded bugs of tests/mutants.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "out" / "debugging"
PHONE = ROOT / "out" / "first-hour"
#: Name of the dumps -> the seeded bug, and the bundled model that is run.
RUNS = {
    "frame": ("cpu-N2-q8ta_conv2d_general", "mixed_ops"),
    "grid": ("cpu-I1-q8ta_linear", "mobilenet_v2_035_96"),
    "steps": ("cpu-N1-up", "refine_seg"),
}
MODELS = ROOT / "tests" / "data" / "models"


def make(name: str) -> None:
    """Write the dumps of one run anew."""
    shutil.rmtree(TARGET / name, ignore_errors=True)
    dump(*RUNS[name], TARGET / name)


def dump(bug: str, model: str, target: Path, **variables: str) -> None:
    """Run a bundled model in a copy of the sources that has the bug, and save its buffers."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from mutants.seeded import ALL
    from mutants.tree import copy

    mutant = ALL[bug]
    with tempfile.TemporaryDirectory() as scratch:
        copy(mutant, Path(scratch) / "device")
        environment = os.environ | {"PYTHONPATH": str(Path(scratch) / "device")} | variables
        refsim("run", model, "-x", mutant.executor, "--dump", ".", target, cwd=scratch, env=environment)


def refsim(verb: str, model: str, *options: str | Path, **more: Any) -> None:
    given = ["-i", MODELS / f"{model}.io.npz"] if verb == "run" else []
    command = [sys.executable, "-m", "refsim.cli", verb, MODELS / f"{model}.pte", *given, *options]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, **({"cwd": ROOT} | more))


def phone(model: str = "linear_head") -> None:
    """The outputs of the exposed model, as a phone would save them: with a loop that ends too early, and without."""
    import numpy as np

    PHONE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        refsim("expose", model, "-o", folder / "exposed.pte")
        # the model is so small that plain Python runs it faster than the kernels are compiled
        dump("cpu-S2-linear", model, folder / "phone", NUMBA_DISABLE_JIT="1")
        refsim("run", model, "--dump", ".", folder / "fixed")
        outputs = json.loads((folder / "exposed.pte.json").read_text())["outputs"]
        for name in ("phone", "fixed"):
            arrays = {
                row["output"]: np.fromfile(folder / name / f"{row['value']}.bin", row["dtype"]).reshape(
                    row["shape"]
                )
                for row in outputs
            }
            np.savez(PHONE / f"{name}.npz", **arrays)


if __name__ == "__main__":
    for each in sys.argv[1:] or (*RUNS, "phone"):
        phone() if each == "phone" else make(each)

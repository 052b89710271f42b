"""Make what docs/debugging.md and docs/first-hour.md examine: runs of bundled models on a "device" with a bug.

python docs/seeded_bugs.py [NAME...]   writes out/debugging/NAME/: every buffer of that run
python docs/seeded_bugs.py phone       writes out/first-hour/phone.npz and fixed.npz: all outputs of an exposed file

It takes a minute or two, and the lines on stderr are of the runs that it makes.

The device is a copy of the sources that has one of the seeded bugs of tests/mutants. Its emulated kernels run there.
Or, where that gives the same bytes and spares compiling every kernel anew: only the one that has the bug, and native
ones for the rest; or the definitions, if the bug is in arithmetic that they share with kernels.
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
ALL_KERNELS, DEFINITIONS, THE_BUGS = "all kernels", "definitions", "the bug's"
#: Name of the dumps -> the seeded bug, the bundled model that is run, the kernel that is emulated.
RUNS = {
    "frame": ("cpu-N2-q8ta_conv2d_general", "mixed_ops", THE_BUGS),
    "grid": ("cpu-I1-q8ta_linear", "mobilenet_v2_035_96", ALL_KERNELS),
    "steps": ("cpu-N1-up", "refine_seg", DEFINITIONS),
}
MODELS = ROOT / "tests" / "data" / "models"
ON_THE_DEVICE = "--on-the-device"


def make(name: str) -> Path:
    """Write the dumps of one run anew; returns their folder."""
    bug, model, kernel = RUNS[name]
    shutil.rmtree(TARGET / name, ignore_errors=True)
    dump(bug, model, TARGET / name, bug.rpartition("-")[2] if kernel == THE_BUGS else kernel)
    return TARGET / name


def dump(bug: str, model: str, target: Path, kernel: str = ALL_KERNELS, **variables: str) -> None:
    """Run a bundled model in a copy of the sources that has the bug, and save its buffers."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    from mutants.seeded import ALL
    from mutants.tree import copy

    with tempfile.TemporaryDirectory() as scratch:
        copy(ALL[bug], Path(scratch) / "device")
        environment = os.environ | {"PYTHONPATH": str(Path(scratch) / "device")} | variables
        command = [sys.executable, __file__, ON_THE_DEVICE, model, kernel, str(target)]
        subprocess.run(command, cwd=scratch, env=environment, check=True)


def run(model_name: str, kernel: str, target: str) -> None:
    """Run a model and save its buffers; ``refsim`` is the copy that has the bug."""
    from collections.abc import Mapping

    from refsim import load
    from refsim.core.buffer import PackedBuffer
    from refsim.core.folder_write import writing
    from refsim.exec.cpu import NativeExecutor
    from refsim.exec.emulated import EmulatedExecutor
    from refsim.exec.trace import Traced, trace
    from refsim.formats import dumps, npz
    from refsim.formats.run_identity import identity
    from refsim.ops.base.prepared import Prepared

    emulated = EmulatedExecutor()

    class Device(NativeExecutor):
        def run_prepared(self, prepared: Prepared, inputs: Mapping[str, PackedBuffer]) -> PackedBuffer:
            if kernel == DEFINITIONS:
                return prepared.call.expected(inputs)
            if kernel in (ALL_KERNELS, *(step.launch.shader for step in prepared.dispatches)):
                return emulated.run_prepared(prepared, inputs)
            return super().run_prepared(prepared, inputs)

    model = load(MODELS / f"{model_name}.pte")
    inputs = npz.read_arrays(str(MODELS / f"{model_name}.io.npz"), ("in",), model.input_shapes())
    whose = identity(model.path, inputs)
    with writing(target) as writer:

        def visit(traced: Traced) -> None:
            params = traced.node.call.params if traced.node.call else None
            for value, held in traced.outputs.items():
                info = dumps.sidecar(value, held, traced.node.name, traced.node.number, params, whose)
                dumps.write(writer, info, held)

        trace(model, inputs, Device(), visit)


def refsim(verb: str, model: str, *options: str | Path, **more: Any) -> None:
    given = ["-i", MODELS / f"{model}.io.npz"] if verb == "run" else []
    command = [sys.executable, "-m", "refsim.cli", verb, MODELS / f"{model}.pte", *given, *options]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, **({"cwd": ROOT} | more))


def phone(model: str = "linear_head") -> Path:
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
    return PHONE


if __name__ == "__main__":
    if ON_THE_DEVICE in sys.argv:
        run(*sys.argv[2:])
        sys.exit()
    unknown = [each for each in sys.argv[1:] if each not in (*RUNS, "phone")]
    if unknown:
        sys.exit(f"seeded_bugs.py: no such run: {unknown[0]}; need {', '.join(RUNS)} or phone")
    for each in sys.argv[1:] or (*RUNS, "phone"):
        where = phone() if each == "phone" else make(each)
        names = (
            ["phone.npz", "fixed.npz"] if each == "phone" else sorted(path.name for path in where.iterdir())
        )
        shown = names if each == "phone" else [*names[:2], "..."]
        print(f"{where.relative_to(ROOT)}: {', '.join(shown)}")

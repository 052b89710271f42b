"""Process time of `refsim run` on the demo model in fresh processes: caches warm, and caches empty.

python -m bench.startup
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.harness import OUT, ROOT, Timing, write
from refsim.cli.kit.text import print_table

MODELS = ROOT / "tests" / "data" / "models"
NUMPY = (sys.executable, "-c", "import numpy")
#: name -> command, whether caches are empty, and the most that it may take: seconds beyond importing NumPy, or in all
ROWS = {
    "import numpy": (NUMPY, False, None),
    "import refsim": ((sys.executable, "-c", "import refsim"), False, None),
    "refsim run, warm": ("run", False, 1.0),
    "refsim run, cold": ("run", True, 6.0),
}


def process_seconds(command: tuple[str, ...], cache: Path) -> float:
    """User and system time of one process and its children."""
    caches = {"XDG_CACHE_HOME": str(cache), "NUMBA_CACHE_DIR": str(cache / "numba")}
    before = os.times()
    subprocess.run(command, env={**os.environ, **caches}, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def run_command(model: str) -> tuple[str, ...]:
    inputs = MODELS / f"{model}.io.npz"
    program = "from refsim.cli import main; main()"  # what the console script does
    return (sys.executable, "-c", program, "run", str(MODELS / f"{model}.pte"), "-i", str(inputs))


def measure(model: str, rounds: int) -> dict[str, Timing]:
    """Seconds by row, in alternation; a cold run has a cache folder of its own."""
    samples: dict[str, list[float]] = {name: [] for name in ROWS}
    with tempfile.TemporaryDirectory() as shared:
        process_seconds(run_command(model), Path(shared))
        for _ in range(rounds):
            for name, (command, cold, _) in ROWS.items():
                words = run_command(model) if command == "run" else command
                with tempfile.TemporaryDirectory() as own:
                    samples[name].append(process_seconds(words, Path(own if cold else shared)))  # type: ignore
    return {name: Timing.of(values) for name, values in samples.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.startup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="processes of each kind (9)")
    parser.add_argument("--model", default="mixed_ops", help="a bundled model (mixed_ops, the demo's)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the JSON file (out/bench)")
    options = parser.parse_args()
    timings = measure(options.model, options.rounds)
    base = timings["import numpy"].median
    rows = []
    for name, (_, cold, limit) in ROWS.items():
        seconds = timings[name]
        counted = seconds.median if cold else seconds.median - base
        verdict = (
            "" if limit is None else f"{counted:.2f} of {limit:g}: {'met' if counted <= limit else 'missed'}"
        )
        rows.append([name, seconds.median, seconds.low, seconds.high, seconds.median - base, verdict])
    print(f"start-up, {options.model}")
    print_table(["process", "s", "low", "high", "beyond numpy", "target"], rows)
    seconds = {name: vars(timing) for name, timing in timings.items()}
    path = write("startup", options.out, {"model": options.model, "seconds": seconds})
    print(f"process time, user and system; written to {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

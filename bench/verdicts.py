"""How long `refsim shaders` takes: to its first verdict, and with --watch from the save of a module to the verdict.

python -m bench.verdicts

The modules are those of tests/modules, in a folder of their own. The newest is a wrong convolution, which each save
replaces by the right one or back, by a rename. The clock stops when a line comes out of the pipe.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.harness import OUT, ROOT, Timing, write
from refsim.cli.kit.text import print_table

MODULES = ROOT / "tests" / "modules"
NAME = "q8ta_conv2d_float.spv"
RIGHT, WRONG = MODULES / "spirv" / NAME, MODULES / "example" / NAME
PROGRAM = "from refsim.cli import main; main()"  # what the console script does
#: What the lines hold that the clock waits for.
SO_FAR, BAD, CAUSE = "right so far", " is wrong: byte ", ": wrong in "

#: By name: seconds, one for each round.
Samples = dict[str, list[float]]


def put(folder: Path, module: Path) -> None:
    """As a compiler does it: under another name first."""
    shutil.copyfile(module, folder / "new")
    os.replace(folder / "new", folder / NAME)


@contextmanager
def verb(folder: Path, cache: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`refsim shaders` with a driver's cache of its own; it is ended as by Ctrl-C."""
    command = (sys.executable, "-c", PROGRAM, "shaders", str(folder), *arguments)
    environment = {**os.environ, "MESA_SHADER_CACHE_DIR": str(cache)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT, env=environment
    ) as process:
        yield process
        process.send_signal(signal.SIGINT)
        process.communicate()


def until(process: subprocess.Popen[str], words: str, begin: float) -> float:
    """Seconds from ``begin`` to the next line with these words."""
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return time.perf_counter() - begin
    raise RuntimeError(f"refsim shaders ended without a line that has {words!r}")


def first(folder: Path, cache: Path, module: Path, samples: Samples, row: str) -> None:
    """The first verdict of a process, and the processor's time until it ends, which is right after."""
    put(folder, module)
    before, begin = os.times(), time.perf_counter()
    with verb(folder, cache, "--watch") as process:
        samples[row].append(until(process, BAD if module is WRONG else SO_FAR, begin))
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    samples[f"{row}, process time"].append(spent)


def saves(folder: Path, cache: Path, rounds: int, samples: Samples) -> None:
    """From each save to the verdict, in one process, once it has looked at everything."""
    put(folder, RIGHT)
    with verb(folder, cache, "q8ta_conv2d_general", "--watch", "--count", "8") as process:
        until(process, ": right, ", 0.0)
        for _ in range(rounds):
            put(folder, WRONG)
            begin = time.perf_counter()
            samples["saved wrong: the byte"].append(until(process, BAD, begin))
            samples["saved wrong: the cause"].append(until(process, CAUSE, begin))
            put(folder, RIGHT)
            begin = time.perf_counter()
            samples["saved right: so far"].append(until(process, SO_FAR, begin))
            until(process, ": right, ", begin)


def measure(rounds: int) -> dict[str, Timing]:
    samples: Samples = defaultdict(list)
    with tempfile.TemporaryDirectory() as scratch:
        folder, warm = Path(scratch) / "modules", Path(scratch) / "warm"
        shutil.copytree(MODULES / "spirv", folder)
        for path in folder.iterdir():
            os.utime(path, (0, 0))
        saves(folder, warm, rounds, samples)
        for number in range(rounds):
            first(folder, warm, WRONG, samples, "first verdict, wrong")
            first(folder, warm, RIGHT, samples, "first verdict, right")
            first(
                folder,
                Path(scratch) / f"cold{number}",
                RIGHT,
                samples,
                "first verdict, right, nothing cached",
            )
    return {name: Timing.of(seconds) for name, seconds in samples.items()}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.verdicts", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="processes of each kind, and saves (9)")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the JSON file (out/bench)")
    options = parser.parse_args()
    timings = measure(options.rounds)
    print_table(
        ["refsim shaders", "s", "low", "high"],
        [[name, timing.median, timing.low, timing.high] for name, timing in timings.items()],
    )
    path = write(
        "verdicts", options.out, {"seconds": {name: vars(timing) for name, timing in timings.items()}}
    )
    print(f"medians and quartiles; written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

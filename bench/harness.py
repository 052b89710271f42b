"""Time a subject against its peers: interleaved samples, medians with their spread, ratios, JSON and a table.

Samples of all contenders of a benchmark alternate, in an order that rotates, so that a machine that gets slower
or faster meanwhile does so for all of them. A ratio is the median of the ratios of the single rounds.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from refsim.cli.kit.text import print_table
from refsim.core import atomic_write

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "out" / "bench"
SAMPLE_SECONDS = 0.01  # a sample repeats its contender until it lasts about so long
VERSIONS = ("refsim", "numpy", "numba", "llvmlite", "torch", "executorch", "onnxruntime", "kp")


@dataclass(frozen=True)
class Bench:
    """One piece of work.

    ``setup()`` makes the data once; ``run(data)`` is the subject, ``peers`` do the same work by other means.
    ``work`` says how much of what a run does: bytes, multiply-adds (``macs``). It may be a function of the data.
    """

    name: str
    setup: Callable[[], Any]
    run: Callable[[Any], object]
    peers: Mapping[str, Callable[[Any], object]]
    work: Mapping[str, float] | Callable[[Any], Mapping[str, float]] = field(default_factory=dict)
    subject: str = "refsim"


@dataclass(frozen=True)
class Timing:
    """Seconds per call: median, quartiles and least of all samples."""

    median: float
    low: float
    high: float
    least: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Timing:
        low, median, high = quartiles(samples)
        return cls(median, low, high, min(samples))


@dataclass(frozen=True)
class Outcome:
    """What came of one benchmark. ``ratios``: peer's time / subject's time, so above 1 the subject is faster."""

    name: str
    subject: str
    timings: dict[str, Timing]
    ratios: dict[str, Timing]
    work: dict[str, float]
    rounds: int

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "subject": self.subject,
            "rounds": self.rounds,
            "work": self.work,
            "seconds": {name: vars(timing) for name, timing in self.timings.items()},
            "ratios": {name: vars(ratio) for name, ratio in self.ratios.items()},
        }


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(samples) < 2:
        return samples[0], samples[0], samples[0]
    low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, median, high


def measure(bench: Bench, rounds: int, clock: Callable[[], float] = time.perf_counter) -> Outcome:
    """Run one benchmark. Everything runs once before, so that nothing is compiled or paged in while timed."""
    data = bench.setup()
    contenders = {bench.subject: bench.run, **bench.peers}
    calls = {name: _calibrate(run, data, clock) for name, run in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    enabled = gc.isenabled()
    gc.disable()
    try:
        for number in range(rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                run, count = contenders[name], calls[name]
                begin = clock()
                for _ in range(count):
                    run(data)
                samples[name].append((clock() - begin) / count)
    finally:
        if enabled:
            gc.enable()
    own = samples[bench.subject]
    ratios = {
        name: Timing.of([peer / mine for peer, mine in zip(samples[name], own, strict=True)])
        for name in bench.peers
    }
    timings = {name: Timing.of(seconds) for name, seconds in samples.items()}
    work = bench.work(data) if callable(bench.work) else bench.work
    return Outcome(bench.name, bench.subject, timings, ratios, dict(work), rounds)


def _calibrate(run: Callable[[Any], object], data: Any, clock: Callable[[], float]) -> int:
    """Calls per sample, after a first call that may compile."""
    run(data)
    begin = clock()
    run(data)
    return max(1, round(SAMPLE_SECONDS / max(clock() - begin, 1e-9)))


def machine() -> dict[str, Any]:
    """Where and with what this runs."""
    return {
        "cpu": _cpu_name(),
        "cpus": os.cpu_count(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: found for name in VERSIONS if (found := _version(name))},
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None


def report(title: str, outcomes: Sequence[Outcome], out: Path = OUT) -> Path:
    """Print the table of one suite and write ``TITLE.json``; returns its path."""
    peers = list(dict.fromkeys(name for outcome in outcomes for name in outcome.ratios))
    rates = [key for key in ("GB/s", "GMAC/s") if any(_rates(o)[key] is not None for o in outcomes)]
    columns = ["benchmark", "ms", "spread", *rates, *(f"{peer} ratio" for peer in peers)]
    print(title)
    print_table(columns, [_row(outcome, rates, peers) for outcome in outcomes])
    return write(title, out, {"results": [o.as_json() for o in outcomes]})


def write(suite: str, out: Path, content: dict[str, Any]) -> Path:
    """Write ``SUITE.json`` with the machine and what was measured; returns its path."""
    path = atomic_write.make_folder(out) / f"{suite}.json"
    content = {"schema": 1, "suite": suite, "machine": machine()} | content
    atomic_write.write(path, (json.dumps(content, indent=1) + "\n").encode())
    return path


def _rates(outcome: Outcome) -> dict[str, float | None]:
    seconds = outcome.timings[outcome.subject].median
    return {
        name: outcome.work[key] / seconds / 1e9 if key in outcome.work else None
        for name, key in (("GB/s", "bytes"), ("GMAC/s", "macs"))
    }


def _row(outcome: Outcome, rates: Sequence[str], peers: Sequence[str]) -> list[object]:
    own = outcome.timings[outcome.subject]
    cells: list[object] = [outcome.name, own.median * 1e3, _spread(own)]
    cells += [_rates(outcome)[rate] for rate in rates]
    for peer in peers:
        ratio = outcome.ratios.get(peer)
        cells.append("" if ratio is None else f"{ratio.median:.3f} {_spread(ratio)}")
    return cells


def _spread(timing: Timing) -> str:
    """Half the distance of the quartiles, in per cent of the median."""
    return f"+-{50 * (timing.high - timing.low) / timing.median:.0f}%"


def main(title: str, benches: Sequence[Bench], arguments: Sequence[str] | None = None) -> int:
    """The command of one suite: measure, print, write. ``--rounds N``, ``--only REGEX``, ``--out DIR``."""
    import argparse
    import re

    parser = argparse.ArgumentParser(prog=f"python -m bench.{title}")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each contender (15)")
    parser.add_argument(
        "--only", default="", help="only benchmarks whose name matches this regular expression"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the JSON file (out/bench)")
    options = parser.parse_args(arguments)
    chosen = [bench for bench in benches if re.search(options.only, bench.name)]
    if not chosen or options.rounds < 1:
        parser.error(f"nothing to measure; benchmarks are {', '.join(bench.name for bench in benches)}")
    outcomes = []
    for bench in chosen:
        print(f"  {bench.name}", file=sys.stderr, flush=True)
        outcomes.append(measure(bench, options.rounds))
    path = report(title, outcomes, options.out)
    print(f"ratio: the peer's time / ours, above 1 we are faster; written to {path}\n")
    return 0

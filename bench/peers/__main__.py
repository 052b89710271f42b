"""The CPU executor against XNNPACK, ONNX Runtime and torch, layer by layer and on whole networks.

python -m bench.peers, in an environment with the `peers` extra. Every engine runs in a process of its own, stopped
while another is timed; samples alternate. A ratio is the median of the rounds' ratios, the peer's time / ours.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import OUT, Timing, write
from bench.limits import limits
from bench.peers.engines import ENGINES, FILES, FP32, MODEL, REFSIM, S8S8
from bench.peers.net import U8S8, XNN, Net, Work, works
from bench.peers.worker import Contender
from refsim.cli.kit.text import print_table, say
from refsim.exec.cpu.amx import tiles
from refsim.exec.cpu.isa import cpu

PEERS = (XNN, U8S8, S8S8, FP32)


#: An engine and its number of threads.
Key = tuple[str, int]
Samples = dict[Key, list[float]]


def measure(workers: Sequence[Contender], work: Work, folder: Path, rounds: int) -> tuple[Samples, int]:
    """Seconds of one repetition, per contender and round; and how many samples other programs disturbed."""
    from bench.peers.build import build  # needs torch

    one = str(build(work.one, folder))
    many = str(build(work.many, folder)) if work.many else None
    workers = [worker for worker in workers if (Path(one) / FILES[worker.engine]).exists()]
    for worker in workers:
        worker.ask("unload")
        for path in filter(None, (one, many)):
            worker.ask("load", path)
    samples: Samples = {worker.key: [] for worker in workers}
    disturbed = 0
    for number in range(rounds):
        turn = number % len(workers)
        for worker in (*workers[turn:], *workers[:turn]):
            seconds, calm = worker.sample(one)
            if many is not None:
                all_seconds, calm_too = worker.sample(many)
                seconds, calm = (all_seconds - seconds) / work.repeats, calm and calm_too
            samples[worker.key].append(seconds)
            disturbed += not calm
    return samples, disturbed


def exactness(workers: Sequence[Contender], net: Net, folder: Path) -> dict[str, dict[str, float]]:
    """Of every engine: how many outputs differ from the emulated kernels', and by how many steps at most."""
    import pickle

    from bench.peers.build import build

    path = build(net, folder)
    scale = pickle.loads((path / "net.pickle").read_bytes()).values[-1][0]
    outputs = {}
    for worker in workers:
        to = path / "output.npy"
        worker.ask("output", str(path), str(to))
        outputs[worker.engine] = np.load(to)
    want = outputs.pop(MODEL)
    found = {}
    for engine, got in outputs.items():
        steps = np.abs(np.rint((got - want) / scale))
        found[engine] = {
            "differ": float(np.mean(steps != 0)),
            "steps": float(steps.max()),
            "same_bits": bool(got.tobytes() == want.tobytes()),
        }
    return found


def summarize(work: Work, samples: Samples) -> dict[str, Any]:
    """Medians and spreads of a work, ratios for each number of threads, and our own gain from more than one."""
    found: dict[str, Any] = {
        "macs": work.macs,
        "reads": work.reads,
        "targets": dict(work.targets),
        "threads": {},
        "scaling": {},
    }
    for threads in sorted({threads for _, threads in samples}):
        own = samples[REFSIM, threads]
        of = {engine: values for (engine, count), values in samples.items() if count == threads}
        found["threads"][str(threads)] = {
            "seconds": {engine: vars(Timing.of(values)) for engine, values in of.items()},
            "ratios": {engine: ratio(values, own) for engine, values in of.items() if engine != REFSIM},
        }
        if threads > 1 and (REFSIM, 1) in samples:
            found["scaling"][str(threads)] = {
                engine: ratio(samples[engine, 1], values)
                for engine, values in of.items()
                if (engine, 1) in samples
            }
    return found


def ratio(values: Sequence[float], own: Sequence[float]) -> dict[str, float]:
    """Of the rounds' ratios."""
    return vars(Timing.of([a / b for a, b in zip(values, own, strict=True)]))


def run(chosen: Sequence[Work], keys: Sequence[Key], folder: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """Every work with all contenders."""
    workers = [Contender(engine, threads) for engine, threads in keys]
    found: dict[str, dict[str, Any]] = {}
    medians: dict[str, dict[Key, float]] = {}
    try:
        for work in chosen:
            samples, disturbed = measure(workers, work, folder, rounds)
            for name in work.less:
                samples = {c: [s - medians[name][c] for s in values] for c, values in samples.items()}
            medians[work.name] = {c: statistics.median(values) for c, values in samples.items()}
            found[work.name] = {**summarize(work, samples), "rounds": rounds, "disturbed": disturbed}
            print(f"  {work.name}: {disturbed} samples disturbed", file=sys.stderr, flush=True)
    finally:
        for worker in workers:
            worker.end()
    return found


#: Limits of `bench.limits` that products are compared with: the first that this processor has. And where weights lie
#: that are read once.
PRODUCTS, READS = ("tdpbssd GMAC/s", "int8 GMAC/s", "int16 GMAC/s"), "read L3 GB/s"


def table(results: Mapping[str, dict[str, Any]], threads: str, found: Mapping[str, float]) -> None:
    """Print one number of threads; ``found``: the limits of one core."""
    products = next(name for name in PRODUCTS if name in found)
    head = [
        "work",
        "us",
        "spread",
        "GMAC/s",
        "of limit",
        *(f"{p} us" for p in PEERS),
        *(f"/ {p}" for p in PEERS),
    ]
    rows = []
    for name, result in results.items():
        if threads not in result["threads"]:
            continue
        seconds, ratios = (result["threads"][threads][key] for key in ("seconds", "ratios"))
        own = seconds[REFSIM]
        cells: list[object] = [name, f"{own['median'] * 1e6:.0f}", _spread(own)]
        speed, limit = result["macs"] / own["median"] / 1e9, READS if result["reads"] else products
        part = f"{speed / found[limit] / int(threads):.0%} {limit.rsplit(' ', 1)[0]}"
        cells += [f"{speed:.0f}", part] if speed else ["", ""]
        cells += [f"{seconds[p]['median'] * 1e6:.0f}" if p in seconds else "" for p in PEERS]
        cells += [f"{ratios[p]['median']:.2f} {_spread(ratios[p])}" if p in ratios else "" for p in PEERS]
        if threads == "1":
            goals = result["targets"].items()
            cells.append(", ".join(_verdict(ratios[p]["median"], goal) for p, goal in goals if p in ratios))
        else:
            gain = result["scaling"].get(threads, {}).get(REFSIM)
            cells.append("" if gain is None else f"{gain['median']:.2f} {_spread(gain)}")
        rows.append(cells)
    last = "targets" if threads == "1" else "of 1 thread"
    say(f"{threads} thread(s)")
    print_table([*head, last], rows)


def _verdict(value: float, goal: float) -> str:
    return f"{goal:g} {'met' if value >= goal else 'missed'}"


def _spread(timing: dict[str, float]) -> str:
    return f"+-{50 * (timing['high'] - timing['low']) / timing['median']:.0f}%"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11, help="samples of each engine (11)")
    parser.add_argument("--only", default="", help="only works whose name matches this regular expression")
    parser.add_argument("--threads", default="1,2", help="thread counts (1,2)")
    parser.add_argument("--engines", default=",".join((REFSIM, *PEERS)), help="with commas between them")
    parser.add_argument("--exact", action="store_true", help="compare the outputs instead of timing")
    parser.add_argument("--build", action="store_true", help="only make the networks' files")
    parser.add_argument("--name", default="peers", help="of the JSON file (peers)")
    parser.add_argument(
        "--out", type=Path, default=OUT, help="folder for the JSON file and the networks (out/bench)"
    )
    options = parser.parse_args()
    if find_spec("torch") is None:
        parser.error("networks are built with torch, which is not installed (pip install 'refsim[peers]')")
    every = works(tiles.why_not(cpu().isa) is None)
    chosen = [w for w in every if re.search(options.only, w.name)]
    names = {name for work in chosen for name in work.less}
    chosen = [w for w in every if w.name in names and w not in chosen] + chosen
    chosen.sort(key=lambda work: bool(work.less))
    folder = options.out / "networks"
    if options.build:
        from bench.peers.build import build

        for work in chosen:
            for net in filter(None, (work.one, work.many)):
                print(net.name, build(net, folder))
        return 0
    engines = options.engines.split(",")
    if unknown := set(engines) - set(ENGINES):
        parser.error(f"no engine {', '.join(sorted(unknown))}; engines are {', '.join(ENGINES)}")
    results: dict[str, Any] = {"suite": "peers"}
    if options.exact:
        workers = [Contender(engine, 1) for engine in (*engines, MODEL)]
        try:
            results["exactness"] = {
                w.name: exactness(workers, w.one, folder) for w in chosen if isinstance(w.one, Net)
            }
        finally:
            for worker in workers:
                worker.end()
        rows = [
            [
                name,
                *(
                    "same bits" if e["same_bits"] else f"{e['differ']:.2%}, <= {e['steps']:.0f}"
                    for e in of.values()
                ),
            ]
            for name, of in results["exactness"].items()
        ]
        say("outputs that differ from the emulated kernels', and by how many steps")
        print_table(["work", *engines], rows)
    else:
        results["limits"] = limits()
        print(", ".join(f"{name} {value:.1f}" for name, value in results["limits"].items()))
        threads = [int(count) for count in options.threads.split(",")]
        contenders = [(engine, count) for count in threads for engine in engines]
        results["works"] = run(chosen, contenders, folder, options.rounds)
        for count in threads:
            table(results["works"], str(count), results["limits"])
    path = write(f"{options.name}{'-exact' if options.exact else ''}", options.out, results)
    print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

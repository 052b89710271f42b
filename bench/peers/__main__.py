"""The CPU executor against XNNPACK, ONNX Runtime and torch, layer by layer and on whole networks.

python -m bench.peers, in an environment with the `peers` extra. Every engine runs in a process of its own, stopped
while another is timed; samples alternate. A ratio is the median of the rounds' ratios, the peer's time / ours.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.harness import OUT, ROOT, Timing, machine
from bench.peers.build import build
from bench.peers.engines import FP32, MODEL, REFSIM, S8S8
from bench.peers.net import U8S8, XNN, Net, Work, works
from bench.peers.worker import Worker
from refsim import atomic
from refsim.cli._output import print_table

PEERS = (XNN, U8S8, S8S8, FP32)


def measure(workers: Sequence[Worker], work: Work, folder: Path, rounds: int) -> dict[str, list[float]]:
    """Seconds of one repetition, per engine and round."""
    one = str(build(work.one, folder))
    many = str(build(work.many, folder)) if work.many else None
    for worker in workers:
        worker.ask(do="unload")
        for path in filter(None, (one, many)):
            worker.ask(do="load", folder=path)
    samples: dict[str, list[float]] = {worker.engine: [] for worker in workers}
    for number in range(rounds):
        turn = number % len(workers)
        for worker in (*workers[turn:], *workers[:turn]):
            alone = worker.ask(do="sample", folder=one)
            if many is not None:
                alone = (worker.ask(do="sample", folder=many) - alone) / work.repeats
            samples[worker.engine].append(alone)
    return samples


def exactness(workers: Sequence[Worker], net: Net, folder: Path) -> dict[str, dict[str, float]]:
    """Of every engine: how many outputs differ from the model kernels', and by how many steps at most."""
    import pickle

    path = build(net, folder)
    scale = pickle.loads((path / "net.pickle").read_bytes()).values[-1][0]
    outputs = {}
    for worker in workers:
        to = path / "output.npy"
        worker.ask(do="output", folder=str(path), to=str(to))
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


def summarize(work: Work, samples: dict[str, list[float]], ratios_of: Sequence[str]) -> dict[str, Any]:
    own = samples[REFSIM]
    ratios = {
        name: vars(Timing.of([a / b for a, b in zip(samples[name], own, strict=True)]))
        for name in ratios_of
        if name in samples
    }
    seconds = {name: vars(Timing.of(values)) for name, values in samples.items()}
    return {
        "name": work.name,
        "macs": work.macs,
        "seconds": seconds,
        "ratios": ratios,
        "targets": dict(work.targets),
    }


def run(
    chosen: Sequence[Work], threads: int, folder: Path, rounds: int, engines: Sequence[str]
) -> list[dict[str, Any]]:
    workers = [Worker(engine, threads, ROOT) for engine in engines]
    found: dict[str, dict[str, Any]] = {}
    medians: dict[str, dict[str, float]] = {}
    try:
        for work in chosen:
            print(f"  {work.name}, {threads} thread(s)", file=sys.stderr, flush=True)
            samples = measure(workers, work, folder, rounds)
            for name in work.less:
                samples = {e: [s - medians[name][e] for s in values] for e, values in samples.items()}
            medians[work.name] = {e: statistics.median(values) for e, values in samples.items()}
            found[work.name] = {**summarize(work, samples, PEERS), "threads": threads}
    finally:
        for worker in workers:
            worker.end()
    return list(found.values())


def table(results: Sequence[dict[str, Any]], threads: int) -> None:
    columns = [
        "work",
        "us",
        "spread",
        "GMAC/s",
        *(f"{p} us" for p in PEERS),
        *(f"/ {p}" for p in PEERS),
        "targets",
    ]
    rows = []
    for result in (r for r in results if r["threads"] == threads):
        own = result["seconds"][REFSIM]
        cells: list[object] = [result["name"], f"{own['median'] * 1e6:.0f}", _spread(own)]
        cells.append(f"{result['macs'] / own['median'] / 1e9:.0f}" if result["macs"] else "")
        cells += [
            f"{result['seconds'][p]['median'] * 1e6:.0f}" if p in result["seconds"] else "" for p in PEERS
        ]
        for peer in PEERS:
            ratio = result["ratios"].get(peer)
            cells.append("" if ratio is None else f"{ratio['median']:.2f} {_spread(ratio)}")
        wanted = result["targets"] if threads == 1 else {}
        cells.append(
            ", ".join(
                f"{goal:g} {'met' if result['ratios'][p]['median'] >= goal else 'missed'}"
                for p, goal in wanted.items()
                if p in result["ratios"]
            )
        )
        rows.append(cells)
    print_table(columns, rows, title=f"{threads} thread(s)")


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
    parser.add_argument(
        "--out", type=Path, default=OUT, help="folder for the JSON file and the networks (out/bench)"
    )
    options = parser.parse_args()
    chosen = [w for w in works() if re.search(options.only, w.name)]
    names = {name for work in chosen for name in work.less}
    chosen = [w for w in works() if w.name in names and w not in chosen] + chosen
    chosen.sort(key=lambda work: bool(work.less))
    folder = options.out / "networks"
    if options.build:
        for work in chosen:
            for net in filter(None, (work.one, work.many)):
                print(net.name, build(net, folder))
        return 0
    engines = options.engines.split(",")
    results: dict[str, Any] = {"schema": 1, "suite": "peers", "machine": machine()}
    if options.exact:
        workers = [Worker(engine, 1, ROOT) for engine in (*engines, MODEL)]
        try:
            results["exactness"] = {w.name: exactness(workers, w.one, folder) for w in chosen}
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
        print_table(
            ["work", *engines],
            rows,
            title="outputs that differ from the model kernels', and by how many steps",
        )
    else:
        results["results"] = []
        for threads in map(int, options.threads.split(",")):
            results["results"] += run(chosen, threads, folder, options.rounds, engines)
            table(results["results"], threads)
    path = atomic.make_folder(options.out) / f"peers{'-exact' if options.exact else ''}.json"
    atomic.write(path, (json.dumps(results, indent=1) + "\n").encode())
    print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What more threads give, step by step, beside what a loop that shares nothing gains: python -m bench.threads.

Three tables: loops that each thread runs for itself, whose gain is the limit of any network (threads of one core share
its units); what a step costs that does nothing; and each step of a network on each number of threads.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import limits
from bench.harness import OUT, write
from bench.networks import MODELS
from refsim.cli.kit.text import print_table, say
from refsim.exec.cpu import NativeExecutor, compiled
from refsim.exec.cpu.amx import tiles
from refsim.exec.cpu.args import KERNEL_PARAMS
from refsim.exec.cpu.ir import ModuleText
from refsim.exec.cpu.isa import cpu
from refsim.exec.cpu.job import Arguments
from refsim.exec.cpu.step import PlanStep
from refsim.exec.cpu.thread_pool import JobList
from refsim.exec.model import Model
from refsim.graph.interpreter import Event, Observer

#: Seconds that a loop runs on each thread, and jobs in a list of those that do nothing.
LOOP_SECONDS, EMPTY_JOBS = 0.02, 400
Loop = Callable[[], Callable[[], int]]


# --- loops that share nothing ------------------------------------------------------------------------------


def _tdpbssd() -> Callable[[], int]:
    run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(compiled.address(limits.tile_loop))
    size = (2 * tiles.ROWS + 32) * (limits.TILE_K + tiles.ROW_BYTES)
    memory, config = np.zeros(size + 64 + tiles.TILE_BYTES, np.uint8), tiles.Shapes(2, 2).config
    aligned = -(-memory.ctypes.data // 64) * 64
    work = limits.TILE_STEPS * 4 * tiles.TILE_BYTES * tiles.ROWS

    def once(_kept: Any = (memory, config)) -> int:
        run(config.ctypes.data, aligned, aligned + size)
        return work

    return once


def _vpdpbusd() -> Callable[[], int]:
    lanes, count = cpu().isa.lanes, 1 << 16
    kind = "int8" if cpu().isa.dpbusd else "int16"
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(
        compiled.address(limits.dot_loop, kind=kind, lanes=lanes)
    )
    memory = np.zeros(lanes * (3 + limits.CHAINS), np.int32)
    aligned = -(-memory.ctypes.data // 64) * 64

    def once(_kept: Any = memory) -> int:
        run(count, aligned)
        return count * limits.CHAINS * lanes * limits.MACS[kind]

    return once


def _reads(nbytes: int, shared: np.ndarray | None = None) -> Callable[[], int]:
    lanes = cpu().isa.lanes
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
        compiled.address(limits.read_loop, lanes=lanes)
    )
    source = np.ones(nbytes, np.uint8) if shared is None else shared
    out, times = np.zeros(limits.READS * lanes, np.int32), max(1, (8 << 20) // nbytes)

    def once(_kept: Any = (source, out)) -> int:
        run(source.ctypes.data, nbytes, times, out.ctypes.data)
        return nbytes * times

    return once


def loops() -> dict[str, Loop]:
    """What each thread runs, by name: makes the data of a thread, gives what does some work and says how much."""
    same = np.ones(24 << 20, np.uint8)
    found: dict[str, Loop] = {"dot products": _vpdpbusd}
    if tiles.why_not(cpu().isa) is None:
        found["tdpbssd"] = _tdpbssd
    found["read own 512 KB"] = lambda: _reads(512 << 10)
    found["read own 4 MB"] = lambda: _reads(4 << 20)
    found["read the same 24 MB"] = lambda: _reads(24 << 20, same)
    return found


def rate(loop: Loop, threads: int) -> float:
    """Work in a second of so many threads that begin together: the sum of their rates, the best of three."""
    return max(_rate(loop, threads) for _ in range(3))


def _rate(loop: Loop, threads: int) -> float:
    together, rates = threading.Barrier(threads), [0.0] * threads

    def one(number: int) -> None:
        once = loop()
        once()
        together.wait()
        begin, done = time.perf_counter(), 0
        while (spent := time.perf_counter() - begin) < LOOP_SECONDS:
            done += once()
        rates[number] = done / spent

    made = [threading.Thread(target=one, args=(number,)) for number in range(threads)]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    return sum(rates)


# --- a step that does nothing ------------------------------------------------------------------------------


def nothing(module: ModuleText, name: str) -> None:
    """Write a kernel whose tasks do nothing."""
    with module.function(name, KERNEL_PARAMS):
        pass


def empty_step(threads: int, per_thread: int, rounds: int = 25) -> float:
    """Seconds of a step whose tasks do nothing, so many for each thread: the median of lists of `EMPTY_JOBS`."""
    args = Arguments()
    block = np.zeros(1, np.int64)
    job = args.job("nothing", compiled.address(nothing), block, threads * per_thread)
    jobs = JobList([job] * EMPTY_JOBS, threads)
    return _median(jobs.run, rounds) / EMPTY_JOBS


def _median(run: Callable[[], object], rounds: int) -> float:
    run()
    samples = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples)


# --- the steps of a network --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """Seconds, medians: ``whole`` runs and their ``least`` by threads, and of each step by its text and threads."""

    name: str
    whole: dict[int, float]
    least: dict[int, float]
    steps: list[tuple[str, dict[int, float]]]


def measure(name: str, threads: Sequence[int], rounds: int) -> Network:
    model = MODELS[name]()
    inputs = model.random_inputs(3)
    executors = {count: NativeExecutor(count) for count in threads}
    whole: dict[int, list[float]] = {count: [] for count in threads}
    spent: dict[int, list[list[float]]] = {count: [] for count in threads}
    texts: list[str] = []
    ready = {count: model.prepare(executor) for count, executor in executors.items()}
    expected = [out.tobytes() for out in ready[threads[0]].run(inputs)]
    for number in range(rounds):
        for count in threads:
            ready[count].run(inputs)
            for _ in range(3):
                begin = time.perf_counter()
                found = ready[count].run(inputs)
                whole[count].append(time.perf_counter() - begin)
            if [out.tobytes() for out in found] != expected:
                raise SystemExit(f"{name}: other bytes on {count} threads")
            spent[count].append(_steps(model, inputs, executors[count]))
            if not number and count == threads[-1]:
                texts = [_text(step) for _, step in _plan(model, executors[count])]
    medians = {
        count: [statistics.median(column) for column in zip(*rows, strict=True)]
        for count, rows in spent.items()
    }
    return Network(
        name,
        {count: statistics.median(samples) for count, samples in whole.items()},
        {count: min(samples) for count, samples in whole.items()},
        [(text, {count: medians[count][at] for count in threads}) for at, text in enumerate(texts)],
    )


def _plan(model: Model, executor: NativeExecutor) -> list[tuple[int, PlanStep]]:
    return [
        (number, step) for number, graph in model.graphs.items() for step in executor.session(graph).steps
    ]


def _steps(model: Model, inputs: list[np.ndarray], executor: NativeExecutor) -> list[float]:
    """Seconds of each step of one run."""
    found: list[float] = []

    def tell(event: Event) -> None:
        found.append(event.seconds)

    model.run(inputs, executor, Observer(tell, lambda *_: False))
    return found


def _text(step: PlanStep) -> str:
    call = step.nodes[-1].call
    shape = "x".join(map(str, call.out.shape)) if call is not None else ""
    tasks = "+".join(str(job.tasks) for job in step.jobs)
    names = step.nodes[0].name if len(step.nodes) == 1 else f"{len(step.nodes)} nodes"
    return f"{names.removeprefix('et_vk.').removesuffix('.default')} {shape} {step.route} {tasks} tasks"


def summary(network: Network, empty: dict[int, float]) -> list[str]:
    """Where the time of the most threads goes, on paper: an even share, empty steps, and what gains little."""
    counts = sorted(network.whole)
    first, most = counts[0], counts[-1]
    whole, least, steps = network.whole, network.least, [of for _, of in network.steps]
    times = ", ".join(f"{c}: {whole[c] * 1e6:.0f} (least {least[c] * 1e6:.0f})" for c in counts)
    share, cost = sum(of[first] for of in steps) / most, empty[most] * len(steps)
    alone = sum(of[most] - of[first] / most for of in steps if of[first] < 1.5 * of[most])
    return [
        f"{network.name}: us by threads {times}",
        f"  gain {whole[first] / whole[most]:.2f} on {most} threads (of least times {least[first] / least[most]:.2f});"
        f" an even share of all steps {share * 1e6:.0f} us, {len(steps)} empty steps {cost * 1e6:.0f} us,"
        f" steps that gain less than 1.5 {alone * 1e6:.0f} us beyond their share",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.threads", description=__doc__)
    parser.add_argument(
        "--threads", default="", help="numbers of threads (1, 2, 4, ... up to the processors)"
    )
    parser.add_argument(
        "--only", default="whole (ResNet-50|MobileNetV2)", help="networks that match (two of 224 pixels)"
    )
    parser.add_argument("--rounds", type=int, default=15, help="samples of each (15)")
    parser.add_argument("--brief", action="store_true", help="without the table of single steps")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the JSON file (out/bench)")
    options = parser.parse_args()
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = [int(n) for n in options.threads.split(",") if n] or [
        1 << k for k in range(available.bit_length()) if 1 << k <= available
    ]
    say(f"{available} processors, threads of a core: {siblings()}")

    made = loops()
    rates = {name: {count: rate(loop, count) for count in threads} for name, loop in made.items()}
    print_table(
        ["loop", "G/s on 1", *(f"gain {count}" for count in threads)],
        [
            [name, f"{of[threads[0]] / 1e9:.1f}", *(f"{of[c] / of[threads[0]]:.2f}" for c in threads)]
            for name, of in rates.items()
        ],
    )
    empty = {count: empty_step(count, 1) for count in threads}
    more = {count: empty_step(count, 4) for count in threads}
    print_table(
        ["a step that does nothing", *(f"us on {count}" for count in threads)],
        [
            [what, *(f"{of[c] * 1e6:.2f}" for c in threads)]
            for what, of in (("a task for each thread", empty), ("four", more))
        ],
    )
    networks = [measure(name, threads, options.rounds) for name in MODELS if re.search(options.only, name)]
    for network in networks:
        for line in summary(network, empty):
            say(line)
        if not options.brief:
            print_table(
                ["step", *(f"us on {c}" for c in threads), "gain"],
                [
                    [
                        text,
                        *(f"{of[c] * 1e6:.1f}" for c in threads),
                        f"{of[threads[0]] / of[threads[-1]]:.1f}",
                    ]
                    for text, of in network.steps
                ],
            )
    content = {"rates": rates, "empty": empty, "empty4": more, "networks": [vars(n) for n in networks]}
    path = write("threads", options.out, content)
    print(f"written to {path}")
    return 0


def siblings() -> str:
    """Which processors share a core, as the system says; empty where it does not."""
    found = {
        path.read_text().strip()
        for path in Path("/sys/devices/system/cpu").glob("cpu*/topology/thread_siblings_list")
    }
    return " ".join(sorted(found, key=lambda text: int(re.split("[,-]", text)[0])))


if __name__ == "__main__":
    sys.exit(main())

"""Whole models on a GPU: the time of `model.run` on the host, from arrays to arrays, beside the CPU executor's."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from bench.networks import MODELS
from refsim.exec.cpu import NativeExecutor
from refsim.exec.model import Model
from refsim.graph.interpreter import Event, Observer
from refsim_gpu.executor import KomputeExecutor

#: Seconds that each contender is measured, and runs at most.
SECONDS, MOST_RUNS = 1.0, 200
#: First runs after idling.
ASLEEP = 5


@dataclass(frozen=True)
class WholeResult:
    """Medians in ms, of a device that is awake; ``asleep_ms`` is a run after a second of idling.

    ``kernels_ms`` is the sum of the dispatches, timed one by one by the device.
    ``dispatches`` and ``submissions`` are those of a run; ``host_nodes`` run on the host between submissions, in
    ``host_ms`` of a timed run. ``exact``: the outputs are the CPU's, byte for byte.
    """

    name: str
    gpu_ms: float
    spread: float
    asleep_ms: float
    kernels_ms: float
    dispatches: int
    submissions: int
    host_nodes: tuple[str, ...]
    host_ms: float
    cpu_ms: float
    cpu_threads_ms: float
    exact: bool


def names(only: str) -> list[str]:
    """The rows whose name holds one of these words."""
    return [name for name in MODELS if any(word in name for word in only.split(","))]


def measure(executor: KomputeExecutor, name: str, wake: Callable[[], None]) -> WholeResult:
    """``wake`` is work for the device before it is timed: an idle GPU runs at a fraction of its clock."""
    model = MODELS[name]()
    inputs = model.random_inputs(3)
    one, many = NativeExecutor(1), NativeExecutor(os.cpu_count() or 1)
    expected = model.run(inputs, one)
    found = model.run(inputs, executor)
    exact = all(a.tobytes() == b.tobytes() for a, b in zip(found, expected, strict=True))
    first = asleep(lambda: model.run(inputs, executor))
    times = medians([lambda e=e: model.run(inputs, e) for e in (executor, one, many)], wake)  # type: ignore[misc]
    sessions = [executor.session(graph) for graph in model.graphs.values()]
    turns = [turn for session in sessions for turn in session.plan.turns]
    hosts = {
        (number, node.number): node.operator
        for number, graph in model.graphs.items()
        for node in graph.nodes
        if node.number in executor.session(graph).plan.why_host
    }
    kernels, host = device_ms(model, inputs, executor, set(hosts))
    (gpu, spread), (cpu, _), (threads, _) = times
    return WholeResult(
        name, gpu, spread, first, kernels,
        sum(len(turn.jobs) for turn in turns), sum(bool(turn.jobs) for turn in turns),
        tuple(hosts.values()), host, cpu, threads, exact,
    )  # fmt: skip


def asleep(run: Callable[[], Any]) -> float:
    """Median of the first runs after idling, in ms."""
    samples = []
    for _ in range(ASLEEP):
        time.sleep(SECONDS)
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples) * 1e3


def medians(contenders: list[Callable[[], Any]], wake: Callable[[], None]) -> list[tuple[float, float]]:
    """(median in ms, half the distance of the quartiles over it) of each, one after the other."""
    results = []
    for run in contenders:
        run()
        wake()
        samples: list[float] = []
        end = time.perf_counter() + SECONDS
        while len(samples) < 3 or (time.perf_counter() < end and len(samples) < MOST_RUNS):
            begin = time.perf_counter()
            run()
            samples.append(time.perf_counter() - begin)
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        results.append((median * 1e3, (high - low) / 2 / median))
    return results


def device_ms(
    model: Model, inputs: list[np.ndarray], executor: KomputeExecutor, hosts: set[tuple[int, int]]
) -> tuple[float, float]:
    """Medians of the sums of all steps on the device and on the host, in ms; nothing is watched."""
    sums: list[tuple[float, float]] = []
    for _ in range(5):
        spent = [0.0, 0.0]

        def tell(event: Event, spent: list[float] = spent) -> None:
            spent[(event.delegate, event.node.number) in hosts] += event.seconds * 1e3

        model.run(inputs, executor, Observer(tell, lambda *_: False))
        sums.append((spent[0], spent[1]))
    device, host = zip(*sums, strict=True)
    return statistics.median(device), statistics.median(host)


def table(results: list[WholeResult]) -> Table:
    shown = Table(
        "whole model", "gpu ms", "spread", "asleep ms", "kernels ms", "dispatches", "submissions", "on the host",
        "host ms",
        "cpu ms, 1 thread", "cpu ms, all", "exact",
    )  # fmt: skip
    for r in results:
        shown.add_row(
            r.name, f"{r.gpu_ms:.3f}", f"{r.spread:.0%}", f"{r.asleep_ms:.3f}", f"{r.kernels_ms:.3f}",
            str(r.dispatches), str(r.submissions),
            ", ".join(dict.fromkeys(r.host_nodes)), f"{r.host_ms:.3f}" if r.host_nodes else "", f"{r.cpu_ms:.3f}",
            f"{r.cpu_threads_ms:.3f}", str(r.exact),
        )  # fmt: skip
    return shown

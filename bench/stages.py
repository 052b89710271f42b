"""Where the time of a whole model on a GPU goes: `python -m bench.gpu --profile NAME`.

The host's part is split as `refsim_gpu.session` works: bring inputs, submit, wait, take outputs. The device's part is
measured between two timestamps in recordings of their own, before and behind that of the model, while enough work lies
before them that the device is awake and has all three. What a barrier or a copy costs shows where they are left out.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.networks import MODELS
from refsim.exec.model import Model
from refsim_gpu import spirv
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.run_memory import Operation, RunMemory, recorded
from refsim_gpu.session import GraphSession

#: Runs of each row, by the kind of device: a driver for the CPU takes a hundred times as long.
RUNS = {"cpu": 8, "gpu": 100}
#: Rounds of the loop that keeps the device busy before what is timed: 100 to 300 us.
AWAKE = {"cpu": 1, "gpu": 60}
REPEATS = {"cpu": 5, "gpu": 21}


def profile(executor: KomputeExecutor, name: str, console: Console) -> dict[str, Any]:
    """Print and give back what a run of a model consists of, in us (medians)."""
    model = MODELS[name]()
    inputs = model.random_inputs(3)
    model.run(inputs, executor)
    ((_, graph), *more) = model.graphs.items()
    session = executor.session(graph)
    if more or len(session.plan.turns) != 1:
        raise SystemExit(f"{name}: more than one submission; only one can be split")
    memory = _memory(session)
    found: dict[str, Any] = {"host": _host(model, inputs, executor, session)}
    operations = memory._turns[0][0]
    found["device"] = _device(executor, operations)
    found["parts"], each = _parts(executor, session, memory)
    for title, rows in found.items():
        table = Table(title, "us", "", title=name)
        for row, figure in rows.items():
            values = figure if isinstance(figure, tuple) else (figure, "")
            table.add_row(row, f"{values[0]:.1f}", str(values[1]))
        console.print(table)
    return found | {"each": each}


def _memory(session: GraphSession) -> RunMemory:
    """The memory that the next run takes."""
    session.release(memory := session._memory())
    return memory


def kind(executor: KomputeExecutor) -> str:
    return "cpu" if executor.device.info.kind == "cpu" else "gpu"


def median(run: Callable[[], Any], runs: int) -> float:
    samples = []
    for _ in range(runs):
        begin = time.perf_counter()
        run()
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples) * 1e6


# --- the host ---------------------------------------------------------------------------------------------


def _host(
    model: Model, inputs: list[np.ndarray], executor: KomputeExecutor, session: GraphSession
) -> dict[str, Any]:
    runs = RUNS[kind(executor)]
    rows: dict[str, Any] = {"model.run": median(lambda: model.run(inputs, executor), runs)}
    rows["session.run"] = median(lambda: session.run(inputs), runs)
    rows |= _split(session, inputs, runs)
    awake = _awake(executor)
    samples = []
    for _ in range(runs):
        executor.device.run(awake)
        begin = time.perf_counter()
        model.run(inputs, executor)
        samples.append(time.perf_counter() - begin)
    rows["model.run, device awake"] = statistics.median(samples) * 1e6
    for flight in (1, 2, 4, 8):
        many = [inputs] * runs
        list(model.run_many(many[:flight], executor, flight))
        begin = time.perf_counter()
        for _ in model.run_many(many, executor, flight):
            pass
        rows[f"run_many, {flight} in flight, a run"] = (time.perf_counter() - begin) / runs * 1e6
    nothing = recorded(executor.device, [("fill", ((executor.device.memory(256), 0, 256), 0))], False)
    rows["a submission of nothing"] = median(nothing.eval, runs)
    return rows


def _split(session: GraphSession, inputs: list[np.ndarray], runs: int) -> dict[str, float]:
    """The steps of session.run, timed from outside."""
    spent: dict[str, list[float]] = defaultdict(list)
    memory = _memory(session)

    def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            begin = time.perf_counter()
            result = call(*arguments)
            spent[name].append(time.perf_counter() - begin)
            return result

        return run

    start, wait = memory.start, memory.wait
    memory.start, memory.wait = timed("submit", start), timed("wait", wait)
    try:
        for _ in range(runs):
            begin = time.perf_counter()
            run = session.start(inputs)
            began = time.perf_counter()
            run.finish()
            end = time.perf_counter()
            spent["before"].append(began - begin)
            spent["after"].append(end - began)
    finally:
        memory.start, memory.wait = start, wait
    us = {name: statistics.median(samples) * 1e6 for name, samples in spent.items()}
    return {
        "  bring inputs": us["before"] - us["submit"],
        "  submit": us["submit"],
        "  wait": us["wait"],
        "  take outputs": us["after"] - us["wait"],
    }


# --- the device -------------------------------------------------------------------------------------------


def _awake(executor: KomputeExecutor) -> Any:
    """A recording of a loop in registers, with a timestamp behind it."""
    device, kp = executor.device, executor.device.kp
    tensors = [device.tensor(np.zeros(size, np.uint32)) for size in (1024, 132 * 16 * 256)]
    device.run(device.recorded(kp.OpTensorSyncDevice(tensors)))
    rounds = AWAKE[kind(executor)]
    algorithm = device.algorithm(
        spirv.load("probe/dot_rate"), tensors, (132 * 16, 1, 1), (), (rounds,), local=(256, 1, 1)
    )
    return device.recorded(device.dispatch(algorithm), timestamps=True)


def _device(executor: KomputeExecutor, operations: list[Operation]) -> dict[str, Any]:
    """The time on the device of the recording, as it is and without some of it."""
    copies = [o for o in operations if o[0] == "copy"]
    barriers = [o for o in operations if o[0] == "record"]
    dispatches = [o for o in operations if o[0] == "dispatch"]
    variants = {
        "all": operations,
        "without copies": [o for o in operations if o[0] != "copy"],
        "without barriers": [o for o in operations if o[0] != "record"],
        "dispatches alone": dispatches,
        "barriers alone": barriers,
        "copies alone": copies,
    }
    rows: dict[str, Any] = {}
    for name, some in variants.items():
        rows[name] = (sequence_us(executor, some), f"{len(some)} operations")
    return rows


def sequence_us(executor: KomputeExecutor, operations: list[Operation]) -> float:
    """From the end of the work before a recording to its own end."""
    device = executor.device
    before, between = _awake(executor), recorded(device, operations, False)
    samples = []
    for _ in range(REPEATS[kind(executor)]):
        behind = recorded(device, [("record", (device.layer.Barrier(),))], True)
        for recording in (before, between, behind):
            recording.submit()
        for recording in (before, between, behind):
            recording.wait()
        samples.append(behind.get_timestamps()[0] - before.get_timestamps()[-1])
    return statistics.median(samples) * device.info.timestamp_ns / 1000


def _parts(
    executor: KomputeExecutor, session: GraphSession, memory: RunMemory
) -> tuple[dict[str, Any], list[tuple[str, float]]]:
    """us of all operations of a kind, and of each, where a timestamp stands behind each."""
    device = executor.device
    operations, places = memory._turns[0]
    names = {
        place: f"{job.node.operator}: {job.launch.shader}"
        for place, job in zip(places, session.plan.turns[0].jobs, strict=True)
    }
    timed, awake = recorded(device, operations, True), _awake(executor)
    ticks = []
    for _ in range(REPEATS[kind(executor)]):
        awake.submit()
        timed.submit()
        awake.wait()
        timed.wait()
        ticks.append(np.diff(np.array(timed.get_timestamps(), np.float64)))
    took = np.median(ticks, axis=0) * device.info.timestamp_ns / 1000
    names_of = [
        names.get(place, "barrier" if o[0] == "record" else o[0]) for place, o in enumerate(operations)
    ]
    each = [(what, float(us)) for what, us in zip(names_of, took, strict=True)]
    sums: dict[str, list[float]] = defaultdict(list)
    for what, us in each:
        sums[what].append(us)
    order = sorted(sums.items(), key=lambda row: -sum(row[1]))
    return {name: (sum(us), f"{len(us)} of {min(us):.1f} to {max(us):.1f}") for name, us in order}, each

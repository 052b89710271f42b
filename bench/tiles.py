"""Every tile of the kernels on cooperative matrices, on every row of bench.gpu that they can compute.

The rules of refsim/ops/base/coopmat.py follow from this table. A tile is timed if a build for it lies in shaders/spirv,
whole and with K in parts. ``us`` is the step of one dispatch in a row of them, or the sum for two dispatches. Every
output is compared with the one of the packed dot products.
"""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator, Mapping
from math import log2, prod
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from bench.gpu import ROWS, bound, run_timed, wake
from refsim.core.buffer import PackedBuffer
from refsim.core.errors import RefsimError
from refsim.ops.base.coopmat import CoopPlan, CoopPrepared, CoopTile, parts
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.spec import Call
from refsim.ops.base.traits import MatrixProblem
from refsim_gpu import spirv
from refsim_gpu.coop import OFF, problem_of
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.pipelines import guarded_words, output_memory, take_output

TILE = re.compile(r"\.(\d+)x(\d+)x(\d+)\.(\d+)x(\d+)\.(\d+)(\.emulated)?\.spv")
BUSY = (132, 264)  # workgroups that parts of K are to give
MOST_GROUPS = 2500  # more are of too small a tile


def built(shader: str, emulated: bool) -> list[CoopTile]:
    """The tiles that a shader was built for."""
    found = []
    for folder in spirv.FOLDERS:
        for path in sorted((folder / shader).parent.glob(f"{(folder / shader).name}.*.spv")):
            match = TILE.search(path.name)
            if match is not None and (match[7] is not None) == emulated:
                found.append(CoopTile(*(int(match[i]) for i in range(1, 7))))
    return found


def plans(problem: MatrixProblem, emulated: bool, most_shared: int) -> Iterator[CoopPlan]:
    """What is timed for a problem: no tile that is mostly empty or far too small, parts of K where workgroups are few.

    First those that give about as many workgroups as a device computes at a time.
    """

    def groups_of(tile: CoopTile) -> int:
        return prod(tile.grid(problem, 1))

    for tile in sorted(built(problem.shader, emulated), key=lambda t: abs(log2(groups_of(t) / BUSY[1]))):
        wide = tile.m >= 2 * max(problem.positions, 32) or tile.n >= 2 * max(problem.channels, 32)
        groups = groups_of(tile)
        if wide or groups > MOST_GROUPS or tile.shared_bytes > most_shared:
            continue
        few = groups < BUSY[0] // 2
        for splits in sorted({1, *(parts(problem, tile, -(-busy // groups)) for busy in BUSY if few)}):
            yield CoopPlan(tile, splits)


def timed(
    executor: KomputeExecutor,
    prepared: Prepared,
    inputs: Mapping[str, PackedBuffer],
    held: dict[str, Any],
    repeats: int,
) -> tuple[list[float], PackedBuffer]:
    """us of each dispatch, in a row of them, and the output. ``held`` keeps what is on the device."""
    device, kp = executor.device, executor.device.kp
    words = {name: buffer.words for name, buffer in inputs.items()}
    fresh = []
    for name in (*words, *prepared.constants):
        if name not in held:
            held[name] = device.tensor(
                guarded_words(words[name] if name in words else prepared.laid_out(name))
            )
            fresh.append(held[name])
    if fresh:
        device.run(device.recorded(kp.OpTensorSyncDevice(fresh)))
    buffers, times = dict(held), []
    for step in prepared.dispatches:
        out = PackedBuffer(step.launch.out)
        target = device.tensor(output_memory(out))
        device.run(device.recorded(kp.OpTensorSyncDevice([target])))
        algorithm = executor.pipelines.algorithm(step.launch, [*(buffers[n] for n in step.inputs), target])
        wake(executor)  # compiling took long enough for the clock to fall
        ticks = run_timed(executor, step.launch.shader, [device.dispatch(algorithm)] * (repeats + 3))
        times.append(statistics.median(ticks[3:]))
        buffers[step.output] = target
    device.run(device.recorded(kp.OpTensorSyncLocal([target])))
    take_output(out, target.data())
    return times, out


def sweep(
    executor: KomputeExecutor,
    call: Call,
    inputs: Mapping[str, PackedBuffer],
    emulated: bool,
    repeats: int,
    seconds: float,
) -> Iterator[tuple[str, list[float], str, float]]:
    """(plan, us of each dispatch, exact or why not, seconds to make it) of every plan; the dot products first."""
    found = problem_of(call)
    assert found is not None
    held: dict[str, Any] = {}
    times, expected = timed(executor, Prepared(call), inputs, held, repeats)
    yield "dot", times, "", 0.0
    most = int(executor.device.info.limits["maxComputeSharedMemorySize"])  # type: ignore[arg-type]
    start = time.perf_counter()
    for how in plans(found[1], emulated, most):
        began = time.perf_counter()
        if began - start > seconds:
            yield f"{how.tile.name} /{how.splits}", [float("inf")], "not timed", 0.0
            continue
        prepared = CoopPrepared(call, *found, how, ".emulated" if emulated else "")
        try:
            times, out = timed(executor, prepared, inputs, held, repeats)
            out.check_guards(how.tile.name)
            verdict = "" if out == expected else "DIFFERENT"
        except RefsimError as error:
            times, verdict = [float("inf")], str(error)
        yield f"{how.tile.name} /{how.splits}", times, verdict, time.perf_counter() - began


@click.command()
@click.option("--device", default=0, help="Vulkan device index.")
@click.option("--repeats", default=9, help="Timed dispatches of each kernel.")
@click.option("--only", default="", help="Rows whose name holds one of these words.")
@click.option("--best", default=8, help="Rows of the table for each problem.")
@click.option("--seconds", default=60.0, help="For each problem; what does not fit is named only.")
@click.option("--emulated", is_flag=True, help="The builds with emulated instructions.")
def main(device: int, repeats: int, only: str, best: int, seconds: float, emulated: bool) -> None:
    """Time every tile on one device."""
    console = Console(width=150)
    with KomputeExecutor(device, coop=OFF) as executor:
        info = executor.device.info
        console.print(f"{info.name}, {info.driver}: {info.limits['maxComputeSharedMemorySize']} bytes shared")
        for row in ROWS:
            if not any(word in row.name for word in only.split(",")):
                continue
            call, inputs = bound(row)
            if problem_of(call) is None:
                continue
            began = time.perf_counter()
            results = sorted(
                sweep(executor, call, inputs, emulated, repeats, seconds), key=lambda r: sum(r[1])
            )
            took = time.perf_counter() - began
            table = Table("plan", "us", "steps", "TOPS", "verdict", "s", title=f"{row.name} ({took:.1f} s)")
            kept = [r for i, r in enumerate(results) if i < best or r[2] or r[0] == "dot"]
            for plan, times, verdict, made in kept:
                us = sum(times)
                steps = " + ".join(f"{t:.1f}" for t in times)
                tops = f"{2 * row.macs / us / 1e6:.0f}"
                table.add_row(plan, f"{us:.1f}", steps, tops, verdict, f"{made:.1f}")
            console.print(table)


if __name__ == "__main__":
    main()

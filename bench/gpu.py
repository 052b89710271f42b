"""Kernels on a GPU: device timestamps against the limits of the same run and against ET-VK's own kernels.

ET-VK's times are those of its own benchmarks on an H200 (device timestamps); the ratio says something only on
that device. ``us`` is a dispatch alone, between two of an empty one: it includes what it costs to change from one
kernel to another (the row "the floor"). ``in a row`` is the step from one completion to the next when the same
dispatch is recorded over and over; Kompute's barriers keep one from running into the next. Medians over repeats.
Rows of whole models (`bench.whole`) are timed on the host.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from bench import stages, whole
from refsim.core.buffer import PackedBuffer
from refsim.core.rng import Rng
from refsim.core.tensor import TensorDesc
from refsim.ops.base import gemm
from refsim.ops.base.arg import Kind
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Call
from refsim_gpu import spirv
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.pipelines import guarded_words, output_memory, take_output

Q = {"in_scale": 0.02, "in_zp": 5, "out_scale": 0.05, "out_zp": -9}


@dataclass(frozen=True)
class Row:
    """One measurement: an operator at a size; ``macs`` products, and ET-VK's time in us if it is known."""

    name: str
    op: str
    params: Mapping[str, Any]
    shape: tuple[int, ...]
    layout: str
    out_layout: str
    macs: float = 0.0
    peer_us: float | None = None
    out_channels: int = 0
    limit: str = "dot"


def conv(
    name: str, op: str, ic: int, oc: int, size: int, k: int, peer: float, *, out: str = "4W4C",
    layout: str = "4W4C", stride: int = 1, pad: int | None = None, groups: int = 1,
) -> Row:  # fmt: skip
    """A square convolution."""
    pad = (k - 1) // 2 if pad is None else pad
    params = {
        **Q, "kernel_size": (k, k), "stride": (stride, stride), "padding": (pad, pad), "groups": groups,
    }  # fmt: skip
    outer, _ = OPS[op].make_params(params).out_size((size, size))
    taps = k * k / stride**2 if OPS[op].transposed else k * k
    macs = outer * outer * oc * taps * ic / groups
    return Row(name, op, params, (1, ic, size, size), layout, out, macs, peer, oc)


def linear(name: str, op: str, m: int, k: int, n: int, peer: float | None) -> Row:
    (layout,) = map(str, OPS[op].output.layouts)
    return Row(name, op, Q, (m, k), layout, layout, m * k * n, peer, n)


CONV3, CONV7 = "conv 3x3 64->64 128x128", "conv 3x3 512->512 7x7"
ADD = {"a_scale": 0.02, "a_zp": 3, "b_scale": 0.03, "b_zp": -4, "out_scale": 0.05, "out_zp": 7}
SHUFFLE = {"in_scale": 0.02, "in_zp": 3, "out_inv_scale": 25.0, "out_zp": 7, "upscale": 2}
MB64 = (1, 64, 1024, 1024)

ROWS = (
    conv(f"{CONV3} general", "q8ta_conv2d_general", 64, 64, 128, 3, 78),
    conv(f"{CONV3} im2col", "q8ta_conv2d_im2col", 64, 64, 128, 3, 67),
    conv(f"{CONV7} general", "q8ta_conv2d_general", 512, 512, 7, 3, 294),
    conv(f"{CONV7} im2col", "q8ta_conv2d_im2col", 512, 512, 7, 3, 206),
    conv("conv 1x1 s2 1024->2048 14x14 general", "q8ta_conv2d_general", 1024, 2048, 14, 1, 153, stride=2),
    conv("conv 1x1 s2 1024->2048 14x14 im2col", "q8ta_conv2d_im2col", 1024, 2048, 14, 1, 53, stride=2),
    conv(
        "conv 5x5 s2 128->128 g4 256x256 general",
        "q8ta_conv2d_general",
        128,
        128,
        256,
        5,
        176,
        layout="4C",
        out="4C",
        stride=2,
        groups=4,
    ),
    conv(
        "conv 5x5 s2 128->128 g4 256x256 im2col",
        "q8ta_conv2d_im2col",
        128,
        128,
        256,
        5,
        185,
        stride=2,
        groups=4,
    ),
    conv("conv 3x3 3->32 256x256", "q8ta_conv2d_general", 3, 32, 256, 3, 15.1, layout="4C", out="4C"),
    conv("pw 128->128 128x128", "q8ta_conv2d_pw", 128, 128, 128, 1, 44.6, out="4C1W"),
    conv("pw 576->64 128x128", "q8ta_conv2d_pw", 576, 64, 128, 1, 90),
    conv("pw 480->160 8x8", "q8ta_conv2d_pw", 480, 160, 8, 1, 33),
    conv(
        "dw 3x3 128 128x128", "q8ta_conv2d_dw", 128, 128, 128, 3, 12.4, layout="4C1W", out="4C1W", groups=128
    ),
    conv(
        "transposed 4x4 s2 256->128 16x16",
        "q8ta_conv2d_transposed",
        256,
        128,
        16,
        4,
        541,
        layout="4C1W",
        out="4C1W",
        stride=2,
        pad=1,
    ),
    linear("linear 1024x2048x2048", "q8ta_linear", 1024, 2048, 2048, 331),
    linear("linear 4096x4096x4096", "q8ta_linear", 4096, 4096, 4096, None),
    linear("linear 256x2048x2048", "q8ta_linear", 256, 2048, 2048, 142),
    linear("linear 1x2048x2048", "q8ta_linear", 1, 2048, 2048, 134),
    linear("gemv 2048->2048", "q8ta_linear_gemv", 1, 2048, 2048, 6.4),
    linear("linear 1x512x9059", "q8ta_linear", 1, 512, 9059, 37.5),
    linear("gemv 512->9059", "q8ta_linear_gemv", 1, 512, 9059, 6.3),
    Row(
        "pixel_shuffle 96x128x72 r=2",
        "q8ta_pixel_shuffle",
        SHUFFLE,
        (1, 96, 128, 72),
        "4W4C",
        "4W4C",
        0,
        7.3,
        limit="copy",
    ),
    conv("dw 3x3, 64 MB, 4W4C", "q8ta_conv2d_dw", 64, 64, 1024, 3, 0, groups=64),
    conv("dw 3x3, 64 MB, 4C1W", "q8ta_conv2d_dw", 64, 64, 1024, 3, 0, groups=64, layout="4C1W", out="4C1W"),
    Row(
        "pixel_shuffle, 64 MB, 4W4C",
        "q8ta_pixel_shuffle",
        SHUFFLE,
        (1, 64, 1024, 1024),
        "4W4C",
        "4W4C",
        limit="copy",
    ),
    Row(
        "pixel_shuffle, 64 MB, 4C1W",
        "q8ta_pixel_shuffle",
        SHUFFLE,
        (1, 64, 1024, 1024),
        "4C1W",
        "4C1W",
        limit="copy",
    ),
    Row(
        "pixel_shuffle, 64 MB, bytes move",
        "q8ta_pixel_shuffle",
        {**SHUFFLE, "out_inv_scale": 50.0, "out_zp": 3},
        (1, 64, 1024, 1024),
        "4W4C",
        "4W4C",
        limit="copy",
    ),
    Row("add, 64 MB", "q8ta_add", ADD, MB64, "4W4C", "4W4C", limit="copy"),
    Row("add, 64 MB, mixed", "q8ta_add", ADD, MB64, "4W4C", "4C1W", limit="copy"),
    Row("clone, one block: the floor", "q8ta_clone", {}, (1, 4, 1, 4), "4W4C", "4W4C", limit="copy"),
    Row("clone, 64 MB", "q8ta_clone", {}, MB64, "4W4C", "4W4C", limit="copy"),
    Row("clone, 64 MB, to 4C1W", "q8ta_clone", {}, MB64, "4W4C", "4C1W", limit="copy"),
    Row("clone, 64 MB, to 4H4W", "q8ta_clone", {}, MB64, "4W4C", "4H4W", limit="copy"),
    Row("relu, 64 MB", "q8ta_relu", Q, MB64, "4W4C", "4W4C", limit="copy"),
    Row(
        "quantize, 64 MB of int8", "q8ta_quantize", {"scale": 0.05, "zp": 3}, MB64, "W", "4W4C", limit="copy"
    ),
    Row(
        "dequantize, 64 MB of int8",
        "q8ta_dequantize",
        {"scale": 0.05, "zp": 3},
        MB64,
        "4W4C",
        "W",
        limit="copy",
    ),
)


@dataclass(frozen=True)
class Result:
    """What was measured: medians in us, and what limits the row in the same run."""

    name: str
    us: float
    row_us: float
    steps_us: tuple[float, ...]
    spread: float
    tmacs: float
    of_dot: float
    gb_s: float
    of_copy: float
    peer_us: float | None
    of_peer: float | None
    exact: bool | None


def bound(row: Row) -> tuple[Call, dict[str, PackedBuffer]]:
    """The call with random inputs."""
    op = OPS[row.op]
    rng = Rng(7)
    params = op.make_params(row.params)
    shape = row.shape
    names = [a.name for a in op.of_kind(Kind.INPUT)]
    descs = {name: TensorDesc(shape, row.layout) for name in names}  # type: ignore[arg-type]
    features = {"out_channels": row.out_channels, "bias": True}
    consts = (
        op.cases.constants(params, dict.fromkeys(names, shape), features, rng) if op.cases.constants else {}
    )
    inputs = {}
    for name, desc in descs.items():
        inputs[name] = PackedBuffer(desc)
        if desc.is_int8:
            inputs[name].words[:] = rng.raw(-(-desc.words // 2)).view(np.int32)[: desc.words]
        else:
            inputs[name].words.view(np.float32)[:] = rng.uniform(-6.0, 6.0, (desc.words,))
    return op.bind(params, descs, consts, row.out_layout), inputs


def wake(executor: KomputeExecutor) -> None:
    """Some 100 ms of work: an idle GPU runs at a fraction of its clock."""
    device, kp = executor.device, executor.device.kp
    tensors = [device.tensor(np.zeros(size, np.uint32)) for size in (1024, 132 * 16 * 256)]
    rounds = (10,) if device.info.kind == "cpu" else (20000,)
    algorithm = device.algorithm(
        spirv.load("probe/dot_rate"), tensors, (132 * 16, 1, 1), (), rounds, local=(256, 1, 1)
    )
    device.run(device.recorded(kp.OpTensorSyncDevice(tensors), *[device.dispatch(algorithm)] * 3))


def device_times(executor: KomputeExecutor, call: Call, inputs: Mapping[str, PackedBuffer], repeats: int) -> tuple[
    list[list[float]], list[float], PackedBuffer
]:  # fmt: skip
    """us of each step in each repeat, alone; of each step in a row; and the last step's output."""
    device, kp = executor.device, executor.device.kp
    buffers = {n: device.tensor(guarded_words(b.words)) for n, b in inputs.items()}
    prepared = executor.pipelines.chosen(Prepared(call))
    buffers |= {n: device.tensor(guarded_words(prepared.laid_out(n))) for n in prepared.constants}
    device.run(device.recorded(kp.OpTensorSyncDevice(list(buffers.values()))))
    times, row, out = [], [], None
    nothing = empty_dispatch(executor)
    for step in prepared.dispatches:
        out = PackedBuffer(step.launch.out)
        target = device.tensor(output_memory(out))
        device.run(device.recorded(kp.OpTensorSyncDevice([target])))
        algorithm = executor.pipelines.algorithm(step.launch, [*(buffers[n] for n in step.inputs), target])
        device.run(device.recorded(device.dispatch(algorithm)))
        wake(executor)
        apart = [nothing, device.dispatch(algorithm)] * (repeats + 2)
        together = [device.dispatch(algorithm)] * (repeats + 3)
        ticks = run_timed(executor, step.launch.shader, [*apart, nothing])
        times.append(list(ticks[1 : 2 * (repeats + 2) : 2][2:]))
        row.append(statistics.median(run_timed(executor, step.launch.shader, together)[3:]))
        buffers[step.output] = target
        device.run(device.recorded(kp.OpTensorSyncLocal([target])))
        take_output(out, target.data())
        out.check_guards(step.launch.shader)
    assert out is not None
    return times, row, out


def empty_dispatch(executor: KomputeExecutor) -> Any:
    """A dispatch of one workgroup that does next to nothing."""
    device = executor.device
    tensors = [device.tensor(np.zeros(1024, np.uint32)) for _ in range(2)]
    algorithm = device.algorithm(
        spirv.load("probe/dot_rate"), tensors, (1, 1, 1), (), (1,), local=(256, 1, 1), where="empty"
    )
    return device.dispatch(algorithm)


def run_timed(executor: KomputeExecutor, where: str, operations: list[Any]) -> np.ndarray:
    """us of each operation."""
    device = executor.device
    sequence = device.recorded(*operations, timestamps=True)
    device.run(sequence, where=where)
    ticks = np.array(sequence.get_timestamps(), np.float64)
    return np.diff(ticks) * device.info.timestamp_ns / 1000


def peaks(executor: KomputeExecutor, repeats: int) -> tuple[float, float]:
    """TMAC/s of a loop of packed dot products, and bytes/s (read + written) of a copy of 64 MB."""
    device, kp = executor.device, executor.device.kp

    def best(name: str, tensors: list[Any], grid: tuple[int, int, int], push: tuple[int, ...]) -> float:
        algorithm = device.algorithm(spirv.load(name), tensors, grid, (), push, local=(256, 1, 1), where=name)
        small = device.tensor(np.zeros(4, np.uint32))
        operations = []
        for _ in range(repeats + 2):
            operations += [kp.OpTensorSyncLocal([tensors[-1] if tensors[-1].size() < 1 << 22 else small]),
                           device.dispatch(algorithm)]  # fmt: skip
        sequence = device.recorded(*operations, timestamps=True)
        device.run(sequence, where=name)
        ticks = np.array(sequence.get_timestamps(), np.float64) * device.info.timestamp_ns
        return statistics.median(np.diff(ticks)[1 : 2 * (repeats + 2) : 2][2:])

    groups, rounds = 132 * 16, 1000
    seed = device.tensor(np.arange(1024, dtype=np.uint32) * np.uint32(0x9E3779B1))
    device.run(device.recorded(kp.OpTensorSyncDevice([seed])))
    ns = best(
        "probe/dot_rate", [seed, device.tensor(np.zeros(groups * 256, np.uint32))], (groups, 1, 1), (rounds,)
    )
    macs = groups * 256 * rounds * 64 * 4 / ns / 1000
    size = (16 if device.info.kind == "cpu" else 64) << 20  # what the large rows move
    tensors = [device.tensor(np.zeros(size // 4, np.uint32)) for _ in range(2)]
    ns = best("probe/copy", tensors, (size // 16 // 256 // 64, 64, 1), (0,))
    return macs, 2 * size / ns * 1e9


def measure(
    executor: KomputeExecutor, row: Row, dot: float, copy: float, repeats: int, check: bool
) -> Result:
    call, inputs = bound(row)
    times, in_a_row, out = device_times(executor, call, inputs, repeats)
    totals = [sum(step[i] for step in times) for i in range(repeats)]
    us = statistics.median(totals)
    moved = sum(b.desc.nbytes for b in inputs.values()) + call.out.nbytes
    exact = None
    if check:
        from refsim.exec.cpu import EmulatedExecutor

        exact = EmulatedExecutor().run_call(call, inputs) == out
    tmacs, gb_s = row.macs / us / 1e6, moved / us / 1e3
    return Result(
        row.name, us, sum(in_a_row), tuple(statistics.median(step) for step in times), (max(totals) - min(totals)) / us,
        tmacs, tmacs / dot, gb_s, gb_s * 1e9 / copy, row.peer_us or None,
        us / row.peer_us if row.peer_us else None, exact,
    )  # fmt: skip


@click.command()
@click.option("--device", default=0, help="Vulkan device index.")
@click.option("--repeats", default=15, help="Timed dispatches of each kernel.")
@click.option("--only", default="", help="Rows whose name holds this.")
@click.option("--tile-config", default=-1, help="Force this row of TILE_CONFIGS on the matrix-like kernels.")
@click.option("--coop", default="auto", help="Cooperative matrices: auto, off, all or emulated.")
@click.option("--check", is_flag=True, help="Compare each output with the emulated kernels, byte for byte.")
@click.option("--profile", is_flag=True, help="Split the time of whole models instead: host, device, copies.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the results here.")
def main(
    device: int,
    repeats: int,
    only: str,
    tile_config: int,
    coop: str,
    check: bool,
    profile: bool,
    path: Path | None,
) -> None:
    """Time every row on one device."""
    console = Console(width=180)
    if profile:
        with KomputeExecutor(device, coop=coop) as executor:
            found = {name: stages.profile(executor, name, console) for name in whole.names(only)}
        if path is not None:
            path.write_text(json.dumps(found, indent=1))
        return
    if tile_config >= 0:
        gemm.TILE_CONFIGS = (gemm.TILE_CONFIGS[tile_config],)
        console.print(f"tile config {gemm.TILE_CONFIGS[0].name}")
    with KomputeExecutor(device, coop=coop) as executor:
        dot, copy = peaks(executor, repeats)
        info = executor.device.info
        console.print(f"{info.name}, {info.driver}: dot loop {dot:.1f} TMAC/s, copy {copy / 1e12:.2f} TB/s")
        table = Table("row", "us", "in a row", "steps", "spread", "TMAC/s", "of dot", "GB/s", "of copy", "ET-VK us",
                      "of ET-VK", "exact")  # fmt: skip
        results = []
        for row in ROWS:
            if not any(word in row.name for word in only.split(",")):
                continue
            r = measure(executor, row, dot, copy, repeats, check)
            results.append(asdict(r))
            table.add_row(
                r.name, f"{r.us:.1f}", f"{r.row_us:.1f}", " + ".join(f"{s:.1f}" for s in r.steps_us), f"{r.spread:.0%}",
                f"{r.tmacs:.2f}", f"{r.of_dot:.0%}", f"{r.gb_s:.0f}", f"{r.of_copy:.0%}",
                f"{r.peer_us:g}" if r.peer_us else "", f"{r.of_peer:.2f}" if r.of_peer else "", str(r.exact),
            )  # fmt: skip
        if results:
            console.print(table)
        models = [whole.measure(executor, name, lambda: wake(executor)) for name in whole.names(only)]
        if models:
            console.print(whole.table(models))
    if path is not None:
        head = {"device": info.name, "driver": info.driver, "dot_tmacs": dot, "copy_bytes_s": copy}
        rows = {"rows": results, "whole": [asdict(model) for model in models]}
        path.write_text(json.dumps(head | rows, indent=1))


if __name__ == "__main__":
    main()

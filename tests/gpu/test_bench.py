"""bench.gpu: a row is measured and its output is right. Nothing is said about its speed."""

from __future__ import annotations

import pytest
from rich.console import Console

from bench import stages, whole
from bench.gpu import ROWS, device_times
from bench.gpu import bound as bound_row
from bench.tiles import sweep
from refsim.exec.cpu import EmulatedExecutor
from refsim.ops.base.prepared import Prepared
from refsim.ops.base.registry import OPS
from refsim_gpu.executor import KomputeExecutor
from refsim_gpu.kompute import Device

#: The row with the fewest products, and the smallest one that takes two dispatches.
SMALL = [
    min(
        (row for row in ROWS if row.macs and (OPS[row.op].expand is not None) == composite),
        key=lambda r: r.macs,
    )
    for composite in (False, True)
]


@pytest.mark.few(1)
@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
def test_a_row_is_measured_and_right(device: Device, row) -> None:
    call, inputs = bound_row(row)
    with KomputeExecutor(device.info.index) as executor:
        times, in_a_row, out = device_times(executor, call, inputs, 1)
        steps = executor.pipelines.chosen(Prepared(call)).dispatches
    assert len(times) == len(in_a_row) == len(steps) and all(len(step) == 1 for step in times)
    assert EmulatedExecutor().run_call(call, inputs) == out


@pytest.mark.long
def test_every_tile_is_timed_and_compared(device: Device) -> None:
    """With emulated instructions: of the smallest product, whole and with K in parts where that is done."""
    row = min((row for row in ROWS if row.macs and OPS[row.op].matrix is not None), key=lambda row: row.macs)
    call, inputs = bound_row(row)
    with KomputeExecutor(device.info.index) as executor:
        plans, times, verdicts, _ = zip(*sweep(executor, call, inputs, True, 1, 600.0), strict=True)
    assert plans[0] == "dot" and len(plans) > 2, row.name
    assert not any(verdicts) and {len(steps) for steps in times} == {1, 2}


def test_a_whole_model_is_timed_and_right(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole, "SECONDS", 0.01)
    woken: list[int] = []
    with KomputeExecutor(device.info.index) as executor:
        found = whole.measure(executor, "whole mixed_ops", lambda: woken.append(1))
    assert found.exact and len(woken) == 3 and found.submissions == 2
    assert min(found.gpu_ms, found.asleep_ms, found.kernels_ms, found.cpu_ms, found.cpu_threads_ms) > 0


@pytest.mark.long
@pytest.mark.wrong_on_purpose("SYNC-HAZARD", "it also times the work without barriers")
def test_a_run_is_split_into_its_parts(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation of the recording is among the parts, and what a run consists of is not more than the run."""
    monkeypatch.setattr(stages, "RUNS", {"cpu": 2, "gpu": 2})
    with KomputeExecutor(device.info.index) as executor:
        found = stages.profile(executor, "whole mobilenet_v2_035_96", Console(quiet=True))
        (session,) = next(iter(executor._graphs.values()))[2].values()
        jobs = [job for turn in session.plan.turns for job in turn.jobs]
    each = [name for name, _ in found["each"]]
    kinds = {"barrier", "copy"}
    assert [name.split(": ")[1] for name in each if name not in kinds] == [job.launch.shader for job in jobs]
    assert each[0] == each[-1] == "copy" and each.count("barrier") <= len(each) // 2
    assert sum(us for us, _ in found["parts"].values()) == pytest.approx(sum(us for _, us in found["each"]))
    with (
        pytest.raises(SystemExit, match="more than one submission"),
        KomputeExecutor(device.info.index) as other,
    ):
        stages.profile(other, "whole mixed_ops", Console(quiet=True))

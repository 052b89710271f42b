"""bench.gpu: a row is measured and its output is right. Nothing is said about its speed."""

from __future__ import annotations

import pytest

from bench.gpu import ROWS, device_times
from bench.gpu import bound as bound_row
from bench.tiles import sweep
from refsim.exec.cpu import EmulatedExecutor
from refsim.ops.base.registry import OPS
from refsim.ops.base.spec import Prepared
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


@pytest.mark.parametrize("row", SMALL, ids=lambda row: row.name)
def test_a_row_is_measured_and_right(device: Device, row) -> None:
    call, inputs = bound_row(row)
    with KomputeExecutor(device.info.index) as executor:
        times, in_a_row, out = device_times(executor, call, inputs, 1)
        steps = executor.pipelines.chosen(Prepared(call)).dispatches
    assert len(times) == len(in_a_row) == len(steps) and all(len(step) == 1 for step in times)
    assert EmulatedExecutor().run_call(call, inputs) == out


def test_every_tile_is_timed_and_compared(device: Device) -> None:
    """With emulated instructions: of the smallest product, whole and with K in parts where that is done."""
    row = min((row for row in ROWS if row.macs and OPS[row.op].matrix is not None), key=lambda row: row.macs)
    call, inputs = bound_row(row)
    with KomputeExecutor(device.info.index) as executor:
        plans, times, verdicts, _ = zip(*sweep(executor, call, inputs, True, 1, 600.0), strict=True)
    assert plans[0] == "dot" and len(plans) > 2, row.name
    assert not any(verdicts) and {len(steps) for steps in times} == {1, 2}

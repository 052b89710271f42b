"""Nobody changes by accident how native kernels divide their work: no byte would show it, only the clock.

After a change on purpose: ``python tests/exec/cpu/planned.py --write``, and look at what it changed.
"""

from __future__ import annotations

from typing import Any

import planned
import pytest

from refsim.exec.cpu.isa import ISAS

Machine = tuple[str, int]


def written(folder: Any, machine: Machine) -> list[str]:
    lines: list[str] = planned.path(folder, machine).read_text().splitlines()
    return lines


@pytest.mark.parametrize(
    "machine",
    [pytest.param(row, marks=[pytest.mark.long] * (row[0] != "avx2")) for row in planned.MACHINES],
    ids=lambda row: f"{row[0]}-{row[1]}",
)
def test_what_is_chosen_is_what_is_written_down(machine: Machine) -> None:
    assert planned.layers_and_models(machine) == written(planned.FOLDER, machine)


@pytest.mark.few(3)
@pytest.mark.parametrize("machine", planned.MACHINES, ids=lambda row: f"{row[0]}-{row[1]}")
def test_what_is_chosen_for_drawn_sizes_is_what_is_written_down(machine: Machine) -> None:
    assert planned.of_drawn_sizes(machine) == written(planned.FOLDER / "drawn", machine)


def test_the_record_reaches_every_route_and_kernel() -> None:
    lines = {line for machine in planned.MACHINES for line in written(planned.FOLDER, machine)}
    wanted = {
        "amx",
        "winograd4",
        "gemm",
        "gemm8",
        "gemv",
        "depthwise",
        "groups",
        "via_nhwc",
        "repack",
        "transpose",
    }
    assert wanted <= {line.rpartition(": ")[2] for line in lines}
    assert {isa for isa, _ in planned.MACHINES} <= {row.name for row in ISAS}

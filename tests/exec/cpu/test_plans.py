"""Nobody changes by accident how native kernels divide their work: no byte would show it, only the clock.

After a change on purpose: ``python tests/exec/cpu/planned.py --write``, and look at what it changed.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import planned
import pytest
from cases import POINT, conv

from refsim.exec.cpu import NativeExecutor, compiled, routes
from refsim.exec.cpu.isa import ISAS
from refsim.ops.base.binding import bind
from refsim.ops.base.prepared import Prepared

SMALL = bind(conv(POINT, (1, 8, 4, 4), 8, 1))
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


def test_nothing_of_it_stays() -> None:
    """Afterwards kernels are compiled for this machine again."""
    with planned.processor("portable"):
        pass
    prepared = Prepared(SMALL.call)
    assert NativeExecutor().run_prepared(prepared, SMALL.inputs) == SMALL.call.expected(SMALL.inputs)
    (job,) = NativeExecutor().choose(prepared).jobs() or ()
    assert compiled.name_of(job.kernel) == job.variant


def test_a_number_is_no_address_though_a_constant_lies_there() -> None:
    """The bits of a float may be where the system put a constant: the digest would be another one each time."""
    names, array = planned._Names(), SimpleNamespace(ctypes=SimpleNamespace(data=0x3F80_0000), nbytes=1 << 24)
    job: Any = SimpleNamespace(owned=[array])
    assert planned._number(0x3F8E_38E4, False, job, names) == str(0x3F8E_38E4)
    assert planned._number(0x3F80_0004, True, job, names) == "byte 4 of constant 0"
    with planned.processor("portable") as names:
        (job,) = routes.choose(SMALL.call).jobs() or ()
    layout, places = names.layouts[job.block.ctypes.data]
    assert {"weight", "consts"} <= places and "inv" in layout
    assert places.isdisjoint({"inv", "low", "high", "zp"})

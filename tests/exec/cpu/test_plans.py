"""Nobody changes by accident how native kernels divide their work: no byte would show it, only the clock.

After a change on purpose: ``python tests/exec/cpu/planned.py --write``, and look at what it changed.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import planned
import pytest

from refsim.exec.cpu import NativeExecutor, compiled, routes
from refsim.exec.cpu.isa import ISAS
from refsim.ops.base.binding import bind
from refsim.ops.base.prepared import Prepared


@pytest.mark.parametrize(
    ("isa", "threads"),
    [pytest.param(isa, n, marks=[pytest.mark.long] * (isa != "avx2")) for isa, n in planned.MACHINES],
)
def test_what_is_chosen_is_what_is_written_down(isa: str, threads: int) -> None:
    assert planned.lines(isa, threads) == planned.path(isa, threads).read_text().splitlines()


def test_the_record_reaches_every_route_and_kernel() -> None:
    written = [planned.path(*machine).read_text().splitlines() for machine in planned.MACHINES]
    routes = {line.rpartition(": ")[2] for lines in written for line in lines}
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
    assert wanted <= routes, sorted(wanted - routes)
    assert {isa for isa, _ in planned.MACHINES} <= {row.name for row in ISAS}


def test_nothing_of_it_stays() -> None:
    """Afterwards kernels are compiled for this machine again."""
    with planned.processor("portable"):
        pass
    bound = bind(planned.conv("q8ta_conv2d_pw", (1, 8, 4, 4), 8, 1))
    prepared = Prepared(bound.call)
    assert NativeExecutor().run_prepared(prepared, bound.inputs) == bound.call.expected(bound.inputs)
    (job,) = NativeExecutor().choose(prepared).jobs() or ()
    assert compiled.name_of(job.kernel) == job.variant


def test_a_number_is_no_address_though_a_constant_lies_there() -> None:
    """The bits of a float may be where the system put a constant: the digest would be another one each time."""
    names, array = planned._Names(), SimpleNamespace(ctypes=SimpleNamespace(data=0x3F80_0000), nbytes=1 << 24)
    job: Any = SimpleNamespace(owned=[array])
    assert planned._number(0x3F8E_38E4, False, job, names) == str(0x3F8E_38E4)
    assert planned._number(0x3F80_0004, True, job, names) == "byte 4 of constant 0"
    with planned.processor("portable") as names:
        choice = routes.choose(bind(planned.conv("q8ta_conv2d_pw", (1, 8, 4, 4), 8, 1)).call)
        (job,) = choice.jobs() or ()
    layout, places = names.layouts[job.block.ctypes.data]
    assert (
        {"weight", "consts"} <= places and places.isdisjoint({"inv", "low", "high", "zp"}) and "inv" in layout
    )

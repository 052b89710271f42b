"""Nobody changes by accident how native kernels divide their work: no byte would show it, only the clock.

After a change on purpose: ``python tests/exec/cpu/planned.py --write``, and look at what it changed.
"""

from __future__ import annotations

import planned
import pytest
import told

from refsim.exec.cpu import NativeExecutor, compiled
from refsim.exec.cpu.isa import ISAS
from refsim.ops.base.binding import bind
from refsim.ops.base.prepared import Prepared


@pytest.mark.parametrize(("isa", "threads"), planned.MACHINES)
def test_what_is_chosen_is_what_is_written_down(isa: str, threads: int) -> None:
    written = planned.path(isa, threads).read_text().splitlines()
    found = planned.lines(isa, threads)
    other = told.choices(written, found, planned.chosen_in)
    assert not other, other


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

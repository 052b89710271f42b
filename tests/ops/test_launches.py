"""Nobody changes by accident which build of a shader is dispatched, or in what workgroups: no byte would show it.

After a change on purpose: ``python tests/ops/launched.py --write``, and look at what it changed.
"""

from __future__ import annotations

import launched

from refsim.ops.base.registry import OPS


def test_what_is_dispatched_is_what_is_written_down() -> None:
    assert launched.lines() == launched.FILE.read_text().splitlines()


def test_the_record_has_every_operator_and_both_sides_of_a_choice() -> None:
    lines = list(launched.dispatched())
    assert {line.partition(" ")[0] for line in lines} == set(OPS)
    depthwise = [line for line in lines if line.startswith("q8ta_conv2d_dw ")]
    for build in (" plain ", ".r2 ", ".r4 ", "k5x5", "k3x3"):
        assert any(build in line for line in depthwise), build
    gemv = {line.split()[-3] for line in lines if " q8ta_linear_gemv " in line}
    assert {"1x8x8", "1x8x64"} <= gemv, gemv

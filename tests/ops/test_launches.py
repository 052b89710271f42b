"""Nobody changes by accident which build of a shader is dispatched, or in what workgroups: no byte would show it.

After a change on purpose: ``python tests/ops/launched.py --write``, and look at what it changed.
"""

from __future__ import annotations

import launched
import pytest

from refsim.ops.base.registry import OPS


@pytest.fixture(scope="module")
def dispatched() -> list[str]:
    return list(launched.dispatched())


def test_what_is_dispatched_is_what_is_written_down(dispatched: list[str]) -> None:
    found = [*dispatched, *launched.tiles(), *launched.matrices()]
    assert found == launched.FILE.read_text().splitlines()


def test_the_record_has_every_operator_and_both_sides_of_a_choice(dispatched: list[str]) -> None:
    assert {line.partition(" ")[0] for line in dispatched} == set(OPS)
    depthwise = [line for line in dispatched if line.startswith("q8ta_conv2d_dw ")]
    for build in (" plain ", ".r2 ", ".r4 ", "k5x5", "k3x3"):
        assert any(build in line for line in depthwise), build
    gemv = {line.split()[-3] for line in dispatched if " q8ta_linear_gemv " in line}
    assert {"1x8x8", "1x8x64"} <= gemv, gemv

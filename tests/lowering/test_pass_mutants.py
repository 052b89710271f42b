"""Seeded bugs in the passes: what the comparison of the lowered graphs and of their runs says."""

from __future__ import annotations

import pytest

from refsim.mutate import ALL
from refsim.mutate.run import run


@pytest.mark.parametrize("name", ["lower-G1-order", "lower-G4-clone", "lower-G5-add"])
def test_it_is_killed_and_named(name: str) -> None:
    verdict = run(ALL[name])
    assert verdict.killed and verdict.named, verdict

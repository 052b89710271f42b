"""Seeded bugs in the passes: what the comparison of the lowered graphs and of their runs says."""

from __future__ import annotations

import pytest
from mutants.run import run
from mutants.seeded import ALL


@pytest.mark.search(1)
@pytest.mark.parametrize("name", ["lower-G1-order", "lower-G4-clone", "lower-G5-add"])
def test_it_is_killed_and_named(name: str) -> None:
    outcome = run(ALL[name])
    assert outcome.killed and outcome.named, outcome

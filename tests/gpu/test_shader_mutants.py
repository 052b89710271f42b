"""Seeded bugs in shaders and in the recorded sequence, run on the device."""

from __future__ import annotations

import pytest
from mutants.bugs import GPU
from mutants.run import missing, run
from mutants.seeded import ALL

pytestmark = pytest.mark.skipif(missing(GPU) is not None, reason=str(missing(GPU)))


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["gpu-N3-operand", "gpu-I5-add", "gpu-S3-upload"])
def test_it_is_killed_and_named(name: str) -> None:
    outcome = run(ALL[name])
    assert outcome.killed and outcome.named, outcome


@pytest.mark.long
def test_a_build_that_refuses_kills() -> None:
    outcome = run(ALL["gpu-N6-instruction"])
    assert outcome.how == "build" and outcome.named

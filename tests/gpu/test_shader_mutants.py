"""Seeded bugs in shaders and in the recorded sequence, run on the device."""

from __future__ import annotations

import pytest

from refsim.mutate import ALL
from refsim.mutate.bugs import GPU
from refsim.mutate.run import missing, run

pytestmark = pytest.mark.skipif(missing(GPU) is not None, reason=str(missing(GPU)))


@pytest.mark.parametrize("name", ["gpu-N3-operand", "gpu-I5-add", "gpu-S3-upload"])
def test_it_is_killed_and_named(name: str) -> None:
    verdict = run(ALL[name])
    assert verdict.killed and verdict.named, verdict


def test_a_build_that_refuses_kills() -> None:
    verdict = run(ALL["gpu-N6-instruction"])
    assert verdict.how == "build" and verdict.named

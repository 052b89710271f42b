"""Each file of the tests as users run it: watched, watched in part and unwatched, it gives what the definitions say."""

from __future__ import annotations

from pathlib import Path

import pytest

from refsim.exec.cpu import NativeExecutor
from refsim.exec.model import load
from refsim.golden.judge import SAME
from refsim.sweep.models import DrawnModel, compared

DATA = Path(__file__).parents[1] / "data"
FILES = sorted(
    path.relative_to(DATA).as_posix() for path in DATA.rglob("*.pte") if "crashers" not in path.parts
)


@pytest.mark.few(40)
@pytest.mark.parametrize("name", FILES)
def test_what_runs_is_what_is_compared(name: str) -> None:
    model = load(DATA / name)
    drawn = DrawnModel.of(model, model.random_inputs(5), model.random_inputs(6), 5)
    for threads in (1, 2):
        status, why, _ = compared(drawn, NativeExecutor(threads, wake_always=True))
        assert status == SAME, why

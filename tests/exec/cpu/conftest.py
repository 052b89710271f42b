"""Small graphs run on as many threads as a test asks for."""

from __future__ import annotations

import pytest

from refsim.exec.cpu import schedule
from refsim.exec.cpu.amx import tiles


@pytest.fixture(autouse=True)
def threads_are_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "WAKING", 0)


@pytest.fixture
def no_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Routes as on a processor without a matrix unit."""
    monkeypatch.setattr(tiles, "refused", lambda: "not in this test")

"""Small graphs run on as many threads as a test asks for."""

from __future__ import annotations

import pytest

from refsim.exec.cpu import schedule


@pytest.fixture(autouse=True)
def threads_are_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "WAKING", 0)

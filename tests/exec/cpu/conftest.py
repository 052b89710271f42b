"""Small graphs run on as many threads as a test asks for."""

from __future__ import annotations

import pytest

from refsim.exec.cpu import plan


@pytest.fixture(autouse=True)
def threads_are_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "WAKING", 0)

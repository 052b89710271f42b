"""Runs of simulated devices are explained without a long search."""

from __future__ import annotations

import pytest

from refsim.bytediff import search


@pytest.fixture(autouse=True)
def short_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of wrong bytes needs no long search for the change of a kernel that gives them."""
    monkeypatch.setenv(search.VARIABLE, "1")

"""Comparisons with ExecuTorch itself. Without the `interop` extra each file is skipped and says so."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

MISSING = [name for name in ("torch", "torchao", "executorch") if find_spec(name) is None]


class Unavailable(pytest.Module):
    """A file of tests that cannot be imported here."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip(f"not installed: {', '.join(MISSING)} (the `interop` extra)", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return Unavailable.from_parent(parent, path=module_path) if MISSING else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """ExecuTorch takes seconds for each program."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("long")

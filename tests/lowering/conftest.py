"""Tests of what needs torch. Without it each file is skipped and says so."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from refsim.core.extras import TORCH_FIX

MISSING = [name for name in ("torch",) if find_spec(name) is None]


class Unavailable(pytest.Module):
    """A file of tests that cannot be imported here."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip(f"not installed: {', '.join(MISSING)} ({TORCH_FIX})", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    return Unavailable.from_parent(parent, path=module_path) if MISSING else None

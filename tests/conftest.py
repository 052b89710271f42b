"""Of every test: what must be settled before NumPy is imported."""

from __future__ import annotations

import os
from collections import defaultdict

import pytest
from hypothesis import settings

# Nothing is timed: a machine may be busy. A check of a change draws the same examples each time.
settings.register_profile("untimed", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("untimed")

# On cores that others use too, the threads of a small matrix product wait for each other longer than they compute.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

#: Seconds of a usual machine that tests search for an edit, and those that are long.
SEARCH, LONG_SEARCH = 0.2, 1

# readline, which pytest imports, sets these behind Python's back, and child processes would heed them.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
    os.unsetenv(name)


@pytest.fixture(autouse=True)
def seconds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tests need a long search for the edit of a kernel that gives wrong bytes; ``search(seconds)`` marks them."""
    marker = request.node.get_closest_marker("search")
    usual = SEARCH if request.node.get_closest_marker("long") is None else LONG_SEARCH
    monkeypatch.setenv("REFSIM_SEARCH", str(usual if marker is None else marker.args[0]))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but a few cases of a test as long where it says so, before ``-m`` chooses."""
    cases: dict[tuple[object, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (few := item.get_closest_marker("few")) is not None:
            cases[getattr(item, "function", item), few.args[0]].append(item)
    for (_, count), found in cases.items():
        for number, item in enumerate(found):
            if number * count % len(found) >= count:
                item.add_marker("long")


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Two packed buffers that are not equal: how they differ, and where."""
    from refsim.bytediff import diff  # after NumPy's variables are set
    from refsim.core.buffer import PackedBuffer

    if (
        op == "=="
        and isinstance(left, PackedBuffer)
        and isinstance(right, PackedBuffer)
        and left.desc == right.desc
    ):
        return str(diff(right, left, limit=1)).splitlines()
    return None

"""One of something is singular; and no text of the program counts by another rule."""

from __future__ import annotations

import pytest

from refsim.core.counted import counted, form, numbered


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 bytes differ"), (1, "1 byte differs"), (2, "2 bytes differ")]
)
def test_one_is_singular(count: int, shown: str) -> None:
    assert counted(count, "byte", "differ") == shown
    assert counted(count, "wrong case") == f"{count} wrong case" + form(count, "", "s")


def test_numbers_from_0() -> None:
    assert [numbered(n, "device") for n in (0, 1, 4)] == [
        "a device, but there is none", "0, the only device", "0 to 3",
    ]  # fmt: skip

"""One of something is singular; and no text of the program counts by another rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from refsim.core.counted import counted, form, numbered

ROOT = Path(__file__).parents[2]
#: In a text, a value with a noun in the plural beside it, whatever the value is; constants and words are none.
BY_HAND = re.compile(
    r"\{(?!SUFFIX\}|MAX_|fits\[|sizes\})[^{}:!]+\} "
    r"(?:bytes|buffers|cases|operators|elements|files|runs|modules|checks)\b"
)
ROOMS = ("cli", "device", "golden", "formats")


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


def test_no_text_counts_by_hand() -> None:
    found = []
    for path in (path for room in ROOMS for path in (ROOT / "refsim" / room).rglob("*.py")):
        lines = path.read_text().splitlines()
        found += [f"{path.name}: {line.strip()}" for line in lines if 'f"' in line and BY_HAND.search(line)]
    assert not found, "use refsim.core.counted"

"""Pages can be read in the light and in the dark: contrasts as WCAG counts them; and all of them have one frame."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REFSIM = Path(__file__).parents[2] / "refsim"
STYLE = (REFSIM / "core/templates/page.css").read_text()
THEMES = [dict(re.findall(r"--(\w+): (#\w+)", block)) for block in re.findall(r":root \{([^}]*)\}", STYLE)]
TEXT = ("ink", "soft", "link", "good", "bad", "odd")
MARKS = ("off", "offpad")


def luminance(colour: str) -> float:
    digits = "".join(c * 2 for c in colour[1:]) if len(colour) == 4 else colour[1:]
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark"])
def test_contrasts(theme: dict[str, str]) -> None:
    assert len(THEMES) == 2
    for name in (*TEXT, *MARKS):
        assert contrast(theme[name], theme["ground"]) >= 4.5, name
    for name in MARKS:  # a wrong square among right ones
        assert contrast(theme[name], theme["value"]) >= 3, name
    assert contrast(theme["lane"], theme["value"]) >= 1.2, "padding is not seen beside values"
    assert contrast(theme["word"], theme["lane"]) >= 1.2


def test_every_page_extends_the_frame() -> None:
    pages = sorted(REFSIM.glob("*/templates/*.html"))
    frame = REFSIM / "core/templates/page.html"
    assert frame in pages and len(pages) > 4
    for page in pages:
        text = page.read_text()
        assert page == frame or (text.startswith('{% extends "page.html" %}\n') and "<head>" not in text), (
            page
        )

"""The HTML page: self-contained, complete, and the same in a real browser."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from wrong_kernels import CONV, conv

import refsim
from refsim.bytediff.html import MOST_CELLS, render
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.ops.base.binding import bind

BOUND = bind(CONV)
GOOD = BOUND.call.expected(BOUND.inputs)
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


def page(actual: PackedBuffer | np.ndarray, title: str = "") -> tuple[str, refsim.Report]:
    report = refsim.diff(GOOD, actual, call=BOUND, title=title)
    return render(report), report


def bordered() -> np.ndarray:
    wrong = PackedBuffer(GOOD.desc)
    wrong.raw[:] = GOOD.raw
    values = GOOD.kinds() == ByteKind.VALUE
    wrong.raw[values] = PackedBuffer.pack(conv(BOUND, border=0), GOOD.desc.layout).raw[values]
    wrong.raw[np.flatnonzero(~values)[0]] ^= 7
    return wrong.raw


class Rects(HTMLParser):
    """The squares of each drawing: class by cell."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.maps: list[dict[int, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "svg":
            self.maps.append({})
        if tag == "rect":
            found = dict(attrs)
            self.maps[-1][int(found["data-i"] or "")] = found["class"] or ""


def test_it_needs_nothing_from_elsewhere() -> None:
    text, _ = page(bordered())
    assert not re.search(r"(src|href)\s*=|https?://|@import|url\(", text)


def test_both_maps_show_every_difference() -> None:
    text, report = page(bordered())
    physical, logical = Rects(text).maps
    assert sorted(physical) == list(range(GOOD.desc.nbytes))
    differing = set(np.flatnonzero(report.evidence.differing).tolist())
    assert {i for i, name in physical.items() if "d" in name.split()} == differing
    elements = set(np.flatnonzero(GOOD.kinds() == ByteKind.VALUE).tolist())
    assert set(logical) == elements
    assert {i for i, name in logical.items() if "d" in name.split()} == differing & elements


def test_the_causes_and_the_values_are_on_it() -> None:
    text, report = page(bordered())
    assert "border padded with 0" in text and report.pattern[0] in text
    data = json.loads(re.search(r"const data = (.*);\n", text).group(1))  # type: ignore[union-attr]
    at = int(np.flatnonzero(report.evidence.differing)[0])
    assert data["expected"][at] == int(GOOD.data[at]) and data["actual"][at] == int(
        bordered().view(np.int8)[at]
    )
    assert len(data["workgroup"]) == GOOD.desc.nbytes


def test_names_cannot_break_out() -> None:
    text, _ = page(bordered(), title="</title><script>alert(1)</script>")
    assert "<script>alert" not in text


def test_a_large_buffer_is_drawn_around_the_first_difference() -> None:
    values = np.zeros((1, 64, 40, 40), np.int8)
    good = PackedBuffer.pack(values, "4C")
    values[0, 60, 20, 20] = 5
    report = refsim.diff(good, PackedBuffer.pack(values, "4C"))
    text = render(report)
    physical, _ = Rects(text).maps
    assert len(physical) == MOST_CELLS and report.differences[0].place.byte in physical
    assert "around the first difference" in text and len(text) < 3_000_000


def test_equal_and_float_buffers_have_pages_too() -> None:
    assert "the same" in page(GOOD.raw)[0]
    x = np.array([[np.nan, np.inf], [1.0, -0.0]], np.float32)
    text = render(refsim.diff(PackedBuffer.pack(x, "W"), PackedBuffer.pack(-x, "W")))
    assert "NaN" not in re.search(r"const data = (.*);\n", text).group(1)  # type: ignore[union-attr]


@pytest.mark.skipif(BROWSER is None, reason="no chromium to render the page with")
def test_in_a_browser(tmp_path: Path) -> None:
    """The script runs: pointing at a square marks it in both maps and says what it is."""
    text, report = page(bordered())
    at = int(np.flatnonzero(report.evidence.differing)[0])
    point = (
        f"<script>document.querySelector('rect[data-i=\"{at}\"]')"
        ".dispatchEvent(new Event('pointerover', {bubbles: true}))</script></body>"
    )
    (tmp_path / "page.html").write_text(text.replace("</body>", point))
    done = subprocess.run(
        [
            str(BROWSER),
            *FLAGS,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            f"file://{tmp_path}/page.html",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.count("here") == 2 + text.count("here"), done.stderr[-500:]
    expected, actual = int(GOOD.data[at]), int(bordered().view(np.int8)[at])
    assert f"expected {expected}, actual {actual}" in done.stdout

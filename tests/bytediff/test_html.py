"""The HTML page: self-contained, complete, and the same in a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from seeded import CONV, UNBORDERED

import refsim
from refsim.bytediff.html import MOST_CELLS, ROWS_SHOWN, render
from refsim.core.buffer import ByteKind, PackedBuffer
from refsim.ops.base.binding import bind

BOUND = bind(CONV)
GOOD = BOUND.call.expected(BOUND.inputs)
PADDING = GOOD.kinds() != ByteKind.VALUE
FRAMES = Path(__file__).with_name("frames.html")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--virtual-time-budget=10000", "--dump-dom",
)  # fmt: skip


@pytest.fixture(scope="module")
def wrong() -> PackedBuffer:
    """Of a kernel with a bug, and a byte of padding besides."""
    made = UNBORDERED.wrong(BOUND)
    made.raw[PADDING.argmax()] ^= 7
    return made


@pytest.fixture(scope="module")
def report(wrong: PackedBuffer) -> refsim.Report:
    """Its title would end the script."""
    return refsim.diff(GOOD, wrong, call=BOUND, title="</title><script>alert(1)</script>", search=1)


@pytest.fixture(scope="module")
def page(report: refsim.Report) -> str:
    return render(report)


def maps(text: str) -> list[dict[int, list[str]]]:
    """The squares of each drawing: classes by cell."""
    squares = r'<rect (?=[^>]*data-i="(\d+)")(?=[^>]*class="([^"]*)")'
    drawings = re.findall(r"<svg.*?</svg>", text, re.S)
    return [{int(cell): name.split() for cell, name in re.findall(squares, drawn)} for drawn in drawings]


def data(text: str) -> Any:
    """What the script shows of the cells."""
    found = re.search(r"const data = (.*);\n", text)
    assert found is not None and "NaN" not in found.group(1)
    return json.loads(found.group(1))


def test_it_needs_nothing_from_elsewhere_and_names_cannot_break_out(page: str) -> None:
    assert not re.search(r"(src|href)\s*=|https?://|@import|url\(|<script>alert", page)


def test_both_maps_show_every_difference(page: str, report: refsim.Report) -> None:
    differing = report.evidence.differing
    for drawn, shown in zip(maps(page), (np.ones(len(PADDING), bool), ~PADDING), strict=True):
        assert sorted(drawn) == np.flatnonzero(shown).tolist()
        assert sorted(i for i in drawn if "d" in drawn[i]) == np.flatnonzero(differing & shown).tolist()


def test_the_causes_and_the_values_are_on_it(page: str, report: refsim.Report, wrong: PackedBuffer) -> None:
    assert "border padded with 0" in page and report.pattern[0] in page
    held = data(page)
    assert held["expected"] == GOOD.data.tolist() and held["actual"] == wrong.data.tolist()
    assert len(held["workgroup"]) == GOOD.desc.nbytes


def test_a_large_buffer_is_drawn_around_the_first_difference() -> None:
    values = np.zeros((1, 64, 40, 40), np.int8)
    good = PackedBuffer.pack(values, "4C")
    values[0, 60, 20, 20] = 5
    report = refsim.diff(good, PackedBuffer.pack(values, "4C"))
    text = render(report)
    physical, _ = maps(text)
    assert len(physical) == MOST_CELLS and report.differences[0].place.byte in physical
    assert "around the first difference" in text and len(text) < 3_000_000


def test_equal_and_float_buffers_have_pages_too() -> None:
    assert "the same" in render(refsim.diff(GOOD, GOOD))
    x = np.array([[np.nan, np.inf], [1.0, -0.0]], np.float32)
    assert data(render(refsim.diff(PackedBuffer.pack(x, "W"), PackedBuffer.pack(-x, "W"))))


@pytest.mark.long
def test_the_table_is_above_the_maps_and_long_ones_are_folded(page: str, wrong: PackedBuffer) -> None:
    assert page.index("<th scope") < page.index("<svg") and "<details>" not in page
    text = render(refsim.diff(GOOD, wrong, call=BOUND, limit=ROWS_SHOWN + 7))
    assert "7 more" in text and text.index("<details>") < text.index("<svg")
    assert text.count("<tr data-i=") == ROWS_SHOWN + 7


@pytest.mark.skipif(BROWSER is None, reason="no chromium to render the page with")
def test_in_a_browser(page: str, report: refsim.Report, tmp_path: Path) -> None:
    """Pointer and keys mark a square in both maps and say what it is; nothing sticks out at either width."""
    differing = np.flatnonzero(report.evidence.differing).tolist()
    shown = tmp_path / "page.html"
    frames = FRAMES.read_text().replace("FIRST_BYTE", str(differing[0]))
    shown.write_text(frames.replace("WHOLE_PAGE", json.dumps(page).replace("<", "\\u003c")))
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"file://{shown}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    found = re.search("<title>(.*)</title>", done.stdout)
    assert found, done.stderr[-500:]
    narrow, wide = json.loads(html.unescape(found.group(1)))
    assert (narrow["width"], wide["width"]) == (400, 1200)
    assert narrow["over"] <= 0 and wide["over"] <= 0
    ((marked, tip),) = narrow["said"]
    expected, actual = (buffer.data[differing[0]] for buffer in (GOOD, report.evidence.actual))
    assert marked == 2 and f"expected {expected}, actual {actual}" in tip
    *said, visibility = wide["said"]
    named = [int(byte) for _, words in said for byte in re.findall(r"byte (\d+),", words)]
    row, home, right, down, back, following, end, previous, _ = named
    assert row == differing[0] and home == back == 0 and right == 1 and down > right + 1
    assert following == min(i for i in differing if i > 0) and end == GOOD.desc.nbytes - 1
    assert previous == max(i for i in differing if i < end)
    assert visibility == "hidden" and said[-1][0] == 0

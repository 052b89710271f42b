"""The HTML page: self-contained, complete, and the same in a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from seeded import CONV, UNBORDERED

import refsim
from refsim.bytediff.html import MOST_CELLS, ROWS_SHOWN, render
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
    wrong = UNBORDERED.wrong(BOUND)
    wrong.raw[np.flatnonzero(GOOD.kinds() != ByteKind.VALUE)[0]] ^= 7
    return wrong.raw


@pytest.fixture(scope="module")
def drawn() -> tuple[str, refsim.Report]:
    """The page of that buffer, whose title would end the script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REFSIM_SEARCH", "1")
        return page(bordered(), title="</title><script>alert(1)</script>")


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


def test_it_needs_nothing_from_elsewhere(drawn: tuple[str, refsim.Report]) -> None:
    text, _ = drawn
    assert not re.search(r"(src|href)\s*=|https?://|@import|url\(", text)


def test_both_maps_show_every_difference(drawn: tuple[str, refsim.Report]) -> None:
    text, report = drawn
    physical, logical = Rects(text).maps
    assert sorted(physical) == list(range(GOOD.desc.nbytes))
    differing = set(np.flatnonzero(report.evidence.differing).tolist())
    assert {i for i, name in physical.items() if "d" in name.split()} == differing
    elements = set(np.flatnonzero(GOOD.kinds() == ByteKind.VALUE).tolist())
    assert set(logical) == elements
    assert {i for i, name in logical.items() if "d" in name.split()} == differing & elements


def test_the_causes_and_the_values_are_on_it(drawn: tuple[str, refsim.Report]) -> None:
    text, report = drawn
    assert "border padded with 0" in text and report.pattern[0] in text
    data = json.loads(re.search(r"const data = (.*);\n", text).group(1))  # type: ignore[union-attr]
    at = int(np.flatnonzero(report.evidence.differing)[0])
    assert data["expected"][at] == int(GOOD.data[at]) and data["actual"][at] == int(
        bordered().view(np.int8)[at]
    )
    assert len(data["workgroup"]) == GOOD.desc.nbytes


def test_names_cannot_break_out(drawn: tuple[str, refsim.Report]) -> None:
    text, _ = drawn
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


@pytest.mark.long
def test_the_table_is_above_the_maps_and_long_ones_are_folded(drawn: tuple[str, refsim.Report]) -> None:
    short, _ = drawn
    assert short.index("<th scope") < short.index("<svg") and "<details>" not in short
    report = refsim.diff(GOOD, bordered(), call=BOUND, limit=ROWS_SHOWN + 7)
    text = render(report)
    assert "7 more" in text and text.index("<details>") < text.index("<svg")
    assert text.count("<tr data-i=") == len(report.differences) == ROWS_SHOWN + 7


#: Where two of the page's copies stand, in frames of two widths, and what is done there: a pointer in the narrow one,
#: keys in the wide one. What came of it is written into the title as JSON.
FRAMES = """<!doctype html><body><script>
const page = %s, at = %d, done = [];
const widths = [400, 1200];
widths.forEach((width, number) => {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:800px;border:0`;
  frame.onload = () => {
    const doc = frame.contentDocument, root = doc.documentElement;
    const press = (on, key) => on.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    const tell = () => [doc.querySelectorAll("rect.here").length, doc.getElementById("tip").textContent];
    const said = [];
    if (number === 0) {
      doc.querySelector(`rect[data-i="${at}"]`).dispatchEvent(new Event("pointerover", {bubbles: true}));
      said.push(tell());
    } else {
      const map = doc.querySelector("svg"), row = doc.querySelector("tr[data-i]");
      row.dispatchEvent(new FocusEvent("focusin", {bubbles: true}));
      said.push(tell());
      for (const key of ["Home", "ArrowRight", "ArrowDown", "Home", "n", "End", "p", "Escape"]) {
        press(map, key);
        said.push(tell());
      }
      said.push(doc.getElementById("tip").style.visibility);
    }
    done[number] = {width: frame.contentWindow.innerWidth, over: root.scrollWidth - root.clientWidth, said};
    if (done[0] && done[1]) document.title = JSON.stringify(done);
  };
  frame.srcdoc = page;
  document.body.append(frame);
});
</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium to render the page with")
def test_in_a_browser(drawn: tuple[str, refsim.Report], tmp_path: Path) -> None:
    """Pointer and keys mark a square in both maps and say what it is; nothing sticks out at either width."""
    text, report = drawn
    differing = np.flatnonzero(report.evidence.differing).tolist()
    frames = FRAMES % (json.dumps(text).replace("<", "\\u003c"), differing[0])
    (tmp_path / "page.html").write_text(frames)
    done = subprocess.run(
        [
            str(BROWSER),
            *FLAGS,
            f"--user-data-dir={tmp_path / 'profile'}",
            "--virtual-time-budget=10000",
            "--dump-dom",
            f"file://{tmp_path}/page.html",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = re.search("<title>(.*)</title>", done.stdout)
    assert found, done.stderr[-500:]
    narrow, wide = json.loads(html.unescape(found.group(1)))
    assert (narrow["width"], wide["width"]) == (400, 1200)
    assert narrow["over"] <= 0 and wide["over"] <= 0
    expected, actual = int(GOOD.data[differing[0]]), int(bordered().view(np.int8)[differing[0]])
    marked, tip = narrow["said"][0]
    assert marked == 2 and f"expected {expected}, actual {actual}" in tip
    *told, visibility = wide["said"]
    bytes_named = [int(re.search(r"byte (\d+),", words).group(1)) for _, words in told]  # type: ignore[union-attr]
    row, home, right, down, back, following, end, previous, _ = bytes_named
    assert row == differing[0] and home == back == 0 and right == 1 and down > right + 1
    assert following == min(i for i in differing if i > 0) and end == GOOD.desc.nbytes - 1
    assert previous == max(i for i in differing if i < end)
    assert visibility == "hidden" and told[-1][0] == 0

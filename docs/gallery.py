"""Write docs/causes.md: the map of a wrong buffer for causes that a diff can name, and where to look.

python docs/gallery.py          says what no longer shows what the edits write
python docs/gallery.py --write  writes the page and its pictures

The buffers are what right kernels write with one edit each: those of tests/bytediff/seeded.txt.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from refsim.bytediff.facts import summary
from refsim.bytediff.invocations import coordinates
from refsim.core.buffer import ByteKind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "causes.md"
PICTURES = ROOT / "docs" / "img" / "causes"
#: The sections of the page, and for each cause what it is and where to look.
TEXTS = tomllib.loads((ROOT / "docs" / "causes.toml").read_text(encoding="utf-8"))
LOOK: dict[str, str] = TEXTS["look"]

PIXEL, PITCH = 8, 9
COLOURS = {
    "value": "#c9d3de", "lane": "#efe2bd", "word": "#f7f2e4",
    "near": "#f2a9a0", "wrong": "#c9252d", "padding": "#e08600",
}  # fmt: skip


def picture_name(cause: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in cause.lower()) + ".svg"


def classes(evidence: Any) -> np.ndarray:
    """What each cell is: the names of COLOURS. "near" is one quantization step, or a float within a thousandth."""
    names = {ByteKind.VALUE: "value", ByteKind.LANE: "lane", ByteKind.WORD: "word"}
    found = np.array([names[ByteKind(int(kind))] for kind in evidence.kinds], dtype=object)
    want, got = (buffer.data.astype(np.float64) for buffer in (evidence.expected, evidence.actual))
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= (1 if evidence.desc.is_int8 else np.abs(want) * 1e-3)
    values = evidence.kinds == ByteKind.VALUE
    found[evidence.differing & values] = "wrong"
    found[evidence.differing & values & near] = "near"
    found[evidence.differing & ~values] = "padding"
    return found


def squares(xs: np.ndarray, ys: np.ndarray, names: np.ndarray) -> Iterator[str]:
    """One path per class: neighbours in a row become one dashed line."""
    order = np.lexsort((xs, ys))
    runs: dict[str, list[list[int]]] = {}
    for x, y, name in zip(xs[order].tolist(), ys[order].tolist(), names[order].tolist(), strict=True):
        own = runs.setdefault(name, [])
        if own and own[-1][1] == y and own[-1][2] == x - PITCH:
            own[-1][2] = x
        else:
            own.append([x, y, x])
    for name, own in sorted(runs.items()):
        lines = "".join(f"M{x} {y}H{last + PIXEL}" for x, y, last in own)
        yield f'<path stroke="{COLOURS[name]}" d="{lines}"/>'


def label(x: float, y: float, words: str) -> str:
    return f'<text x="{x:g}" y="{y:g}">{words}</text>'


def svg(evidence: Any) -> str:
    """Left the tensor, a plane per channel (or per batch of a matrix); right the memory."""
    names = classes(evidence)
    n, c, h, w = coordinates(evidence.desc)
    sizes = evidence.desc.sizes_whcn
    inside = (w < sizes[0]) & (h < sizes[1]) & (c < sizes[2]) & (n < sizes[3])
    planes = n * sizes[2] + c
    across = max(1, min(sizes[2] * sizes[3], 32 // (sizes[0] + 1)))
    wide, high = (sizes[0] + 1) * PITCH, sizes[1] * PITCH + 16
    xs = planes % across * wide + w * PITCH
    ys = planes // across * high + h * PITCH + 34
    parts = [label(0, 10, "tensor")]
    if sizes[2] * sizes[3] > 1:
        parts += [
            label(at % across * wide, at // across * high + 26, f"n{at // sizes[2]} c{at % sizes[2]}")
            for at in range(sizes[2] * sizes[3])
        ]
    parts += squares(xs[inside], ys[inside] + PIXEL // 2, names[inside])
    left = across * wide + 24
    cells = np.arange(len(names))
    group = 4 if evidence.desc.is_int8 else 1
    per_row = 16 if len(names) < 256 else 32
    columns = cells % per_row
    memory_xs = left + columns * PITCH + columns // group * (4 if group > 1 else 0)
    memory_ys = cells // per_row * PITCH + 34 + PIXEL // 2
    what = f"memory, {per_row // group} words a row"
    parts += [label(left, 10, what), *squares(memory_xs, memory_ys, names)]
    width = int(memory_xs.max()) + PITCH
    height = max(int(ys[inside].max()), int(memory_ys.max())) + PIXEL + 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="DejaVu Sans Mono, Menlo, monospace" font-size="10" fill="#59636e" stroke-width="{PIXEL}" '
        f'stroke-dasharray="{PIXEL} {PITCH - PIXEL}">'
    )
    return "\n".join((head, *parts, "</svg>")) + "\n"


def example(edit: Any) -> Any:
    """A call, and what its kernels leave with the edit."""
    from refsim.bytediff.evidence import Evidence

    bound, actual = edit.shown()
    expected = bound.call.expected(bound.inputs)
    return Evidence(expected, actual, np.ones(len(expected.data), bool), bound)


def entry(name: str, edit: Any, evidence: Any) -> str:
    """A cause: what it is, where to look, an example."""
    differing = int(evidence.differing.sum())
    unit = "bytes" if evidence.desc.is_int8 else "floats"
    found = (
        f"Example: `{edit.op}` with {told(edit)}; {'x'.join(map(str, evidence.desc.shape))} in "
        f"{evidence.desc.layout}, {differing} of {len(evidence.want)} {unit} wrong."
    )
    pattern = summary(evidence)
    if pattern:
        found += f" Pattern: {'; '.join(pattern)}."
    picture = f"![{name}](img/causes/{picture_name(name)})"
    return "\n\n".join((f"### {name}", filled(LOOK[name]), filled(found), picture)) + "\n"


def told(edit: Any) -> str:
    """The edit and its file."""
    if edit.line is None:
        return edit.what
    file = f"{edit.line.module.__name__.replace('.', '/')}.py"
    return f"`{edit.line.wrong}` for `{edit.line.right}`, in `{edit.line.function}` of {file}"


def filled(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


HEAD = """# What each cause looks like

A diff of two buffers can end with a *likely cause*: a known bug that would leave exactly these bytes. A diff searches
for an edit of the right kernel, of its launch or of what it reads that gives these bytes, and names the line. This
page shows what kinds of edits write, and says where to look. A search takes up to ten seconds on a usual machine;
what is computed meanwhile is counted, so that a busy one gives the same answer. `--search SECONDS`, or
`REFSIM_SEARCH` in the environment, says how long to search; where the wrong cases before have no edit, it is shorter.
Where no edit gives all bytes, pairs are tried of which one gives a part: the cause then says *this, and that*. If
`refsim diff --html` gave you a map and no cause, search here for one that looks like it.

Each example is the right kernel with one edit, run on a small tensor. `docs/gallery.py` draws the page from these
runs. Tests see to it that a diff names each of them first, and that the page is what the edited kernels write.

In the pictures, a square is a byte of an int8 tensor or a float of a float tensor:

![Colours](img/causes/colours.svg)

"""


def colours() -> str:
    """The key of the pictures."""
    words = {
        "value": "right", "near": "one step, or 0.1 %, off", "wrong": "wrong",
        "lane": "lane padding", "word": "word padding", "padding": "wrong padding",
    }  # fmt: skip
    parts = []
    for number, (name, text) in enumerate(words.items()):
        x, y = number % 3 * 210, number // 3 * 20
        parts.append(f'<rect x="{x}" y="{y + 2}" width="10" height="10" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{x + 16}" y="{y + 11}">{text}</text>')
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" width="560" height="36" viewBox="0 0 560 36" '
        'font-family="DejaVu Sans Mono, Menlo, monospace" font-size="11" fill="#59636e">'
    )
    return "\n".join((head, *parts, "</svg>")) + "\n"


def files() -> dict[Path, str]:
    """The page and its pictures, as they should be."""
    sys.path[:0] = [
        p for p in map(str, (ROOT / "tests" / "bytediff", ROOT / "tests", ROOT)) if p not in sys.path
    ]
    from seeded import EDITS

    first = {edit.cause: edit for edit in reversed(EDITS)}
    found = {PICTURES / "colours.svg": colours()}
    parts = [HEAD, TEXTS["again"]]
    for section in TEXTS["section"]:
        parts.append(f"## {section['heading']}\n\n{filled(section['words'])}\n\n")
        for name in section["names"]:
            if name not in first:
                parts.append(f"### {name}\n\n{filled(LOOK[name])}\n\n")
                continue
            evidence = example(first[name])
            parts.append(entry(name, first[name], evidence) + "\n")
            found[PICTURES / picture_name(name)] = svg(evidence)
    found[PAGE] = "".join(parts).rstrip() + "\n"
    return found


def main() -> int:
    stale = 0
    for path, content in files().items():
        if "--write" in sys.argv[1:]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        elif not path.exists() or path.read_text() != content:
            stale += 1
            print(f"{path.relative_to(ROOT)}: not what the edits give; fix: python docs/gallery.py --write")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

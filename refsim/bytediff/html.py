"""Findings as one self-contained HTML page: the buffer in physical and in logical order, and the causes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from refsim.bytediff import text
from refsim.bytediff.findings import Findings
from refsim.core.buffer import ByteKind
from refsim.core.counted import counted
from refsim.core.html import rendered

#: How many cells a map draws at most. Of a larger buffer it draws the part around the first difference.
MOST_CELLS = 12_000
CELL = 11  # pixels of a cell, its gap included
ROWS_SHOWN = 20  # differences in the open table; the others are folded
ROW_WORDS = 12  # roughly how many words a row of the physical map has; it holds whole blocks

#: CSS class of a cell by its kind; the template has the colours.
_CLASSES = {ByteKind.VALUE: "v", ByteKind.LANE: "l", ByteKind.WORD: "w"}


@dataclass(frozen=True)
class Map:
    """One drawing: its cells as SVG, its size, and what it shows."""

    svg: str
    width: int
    height: int
    caption: str


def render(findings: Findings, back: tuple[str, str] | None = None, remarks: Sequence[str] = ()) -> str:
    """The page. ``back``: where a link at its head leads, and its text; ``remarks`` stand below the causes.

    MissingDependencyError without jinja2.
    """
    drawn = _drawn(findings)
    return rendered(
        "html report",
        "refsim.bytediff",
        "report.html",
        back=back,
        remarks=remarks,
        report=findings,
        text=text,
        shown=ROWS_SHOWN,
        drawn=drawn,
        physical=_physical(findings, drawn),
        logical=_logical(findings, drawn),
        # "<" would let a string end the script element
        data=json.dumps(_data(findings, drawn), separators=(",", ":")).replace("<", "\\u003c"),
    )


def _drawn(findings: Findings) -> np.ndarray:
    """The cells that are drawn: all, or whole blocks around the first difference."""
    total = len(findings.evidence.want)
    if total <= MOST_CELLS:
        return np.arange(total)
    first = int(findings.evidence.differing.argmax())
    block = findings.desc.layout.block_numel
    begin = max(0, min(first - MOST_CELLS // 4, total - MOST_CELLS)) // block * block
    return np.arange(begin, min(total, begin + MOST_CELLS))


def _cells(findings: Findings, cells: np.ndarray, xs: np.ndarray, ys: np.ndarray) -> Iterator[str]:
    """A square per cell; ``data-i`` is its number, which the script looks up."""
    ev = findings.evidence
    marks = np.where(ev.compared, np.where(ev.differing, " d", ""), " u")
    rows = (cells, ev.kinds[cells], marks[cells], xs, ys)
    for cell, kind, mark, x, y in zip(*(row.tolist() for row in rows), strict=True):
        yield f'<rect x="{x}" y="{y}" class="{_CLASSES[kind]}{mark}" data-i="{cell}"/>'


def _physical(findings: Findings, drawn: np.ndarray) -> Map:
    """Bytes as they lie in memory: words of four lanes, blocks set apart."""
    numel = findings.desc.layout.block_numel
    lanes = 4 // findings.evidence.want.itemsize
    per_row = max(1, ROW_WORDS * 4 // max(numel, lanes)) * max(numel, lanes)
    place = drawn - drawn[0]
    column, row = place % per_row, place // per_row
    gaps = column // lanes * 2 + column // max(numel, lanes) * 4
    xs, ys = column * CELL + gaps, row * (CELL + 3)
    row_of, block_of = counted(per_row // lanes, "word"), counted(numel // lanes or 1, "word")
    caption = f"physical order: {row_of} a row, {block_of} a block"
    squares = "".join(_cells(findings, drawn, xs, ys))
    return Map(squares, int(xs.max()) + CELL, int(ys.max()) + CELL, caption)


def _logical(findings: Findings, drawn: np.ndarray) -> Map:
    """Elements by coordinate: a plane of rows and columns for each channel, batches below each other."""
    w_size, h_size, c_size, _ = findings.desc.sizes_whcn
    cells = drawn[findings.evidence.values[drawn]]
    n, c, h, w = (along[cells] for along in findings.evidence.coordinates)
    used, place = np.unique(n * c_size + c, return_inverse=True)
    across = max(1, min(len(used), 48 // (w_size + 1)))
    xs = (place % across) * (w_size * CELL + CELL) + w * CELL
    ys = (place // across) * (h_size * CELL + 2 * CELL) + h * CELL + CELL
    labels = "".join(
        f'<text x="{i % across * (w_size * CELL + CELL)}" y="{i // across * (h_size * CELL + 2 * CELL) + CELL - 3}">'
        f"n{plane // c_size} c{plane % c_size}</text>"
        for i, plane in enumerate(used.tolist())
    )
    width = across * (w_size * CELL + CELL)
    height = -(-len(used) // across) * (h_size * CELL + 2 * CELL)
    caption = f"logical order: {h_size} x {w_size} planes, one per channel"
    return Map(labels + "".join(_cells(findings, cells, xs, ys)), width, height, caption)


def _data(findings: Findings, drawn: np.ndarray) -> dict[str, Any]:
    """What the script shows of a cell under the pointer; arrays over the drawn cells."""
    ev = findings.evidence
    n, c, h, w = (along[drawn].tolist() for along in ev.coordinates)
    found: dict[str, Any] = {
        "first": int(drawn[0]),
        "mark": int(drawn[ev.differing[drawn].argmax()]),
        "width": ev.want.itemsize,
        "block": findings.desc.layout.block_numel,
        "n": n, "c": c, "h": h, "w": w,
        "expected": _values(ev.expected.data[drawn]),
        "actual": _values(ev.actual.data[drawn]),
        "kind": ev.kinds[drawn].tolist(),
    }  # fmt: skip
    if ev.launch is not None:
        groups, invocations = ev.launch.invocation(list(ev.items[:, drawn]))
        found["workgroup"] = np.stack(groups, 1).tolist()
        found["invocation"] = np.stack(invocations, 1).tolist()
    return found


def _values(array: np.ndarray) -> list[Any]:
    """JSON has no NaN and no infinities."""
    return [value if isfinite(value) else str(value) for value in array.tolist()]

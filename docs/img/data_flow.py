"""Draw the way of the data, from a program file to the cause of a wrong byte: data_flow.svg.

python docs/img/data_flow.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PATH = Path(__file__).with_suffix(".svg")

WIDTH, HEIGHT = 1000, 360
INK, GREY, EDGE = "#1f2328", "#59636e", "#8c959f"
PANEL, PLAIN, RUN, CHECK, WRONG = "#fbfbfa", "#ffffff", "#dbeafe", "#dcf3df", "#ffd9d2"


@dataclass(frozen=True)
class Box:
    """A rounded box: where it stands, its title in monospace or not, and the lines below the title."""

    x: int
    y: int
    width: int
    height: int
    title: str
    lines: tuple[str, ...] = ()
    fill: str = PLAIN

    def at(self, side: str) -> tuple[float, float]:
        """The middle of a side: left, right, top or bottom."""
        across, down = {"left": (0, 0.5), "right": (1, 0.5), "top": (0.5, 0), "bottom": (0.5, 1)}[side]
        return self.x + across * self.width, self.y + down * self.height


BOXES = {
    "export": Box(20, 56, 138, 68, "model.pt2", ("quantized program", "of torch.export")),
    "pte": Box(20, 164, 138, 68, "model.pte", ("compiled for the", "Vulkan backend")),
    "graph": Box(198, 164, 138, 68, "graph", ("operators, layouts,", "kernel launches")),
    "cpu": Box(380, 56, 178, 68, "cpu", ("native vector kernels,", "steps fused"), RUN),
    "emulated": Box(380, 164, 178, 68, "cpu:emulated", ("each GPU kernel,", "one work item at a time"), RUN),
    "gpu": Box(380, 272, 178, 68, "gpu:0", ("the same launches", "on a Vulkan device"), RUN),
    "packed": Box(602, 56, 184, 108, "packed buffers", ("one per operator,", "laid out as in GPU memory"), CHECK),
    "yours": Box(602, 248, 184, 68, "your buffers", ("dumped on a device,", "or golden files")),
    "diff": Box(830, 76, 150, 68, "byte diff", ("every byte,", "no tolerance"), CHECK),
    "cause": Box(830, 232, 150, 84, "cause", ("first wrong operator,", "element, invocation,", "likely bug"), WRONG),
}  # fmt: skip

HEADINGS = ((89, "a program"), (267, "read"), (469, "run on an executor"), (694, "compare"), (905, "explain"))

#: Boxes joined by an arrow, the sides where it begins and ends, and its label.
ARROWS = (
    ("export", "bottom", "pte", "top", "refsim lower"),
    ("pte", "right", "graph", "left", ""),
    ("graph", "right", "cpu", "left", ""),
    ("graph", "right", "emulated", "left", ""),
    ("graph", "right", "gpu", "left", ""),
    ("cpu", "right", "packed", "left", ""),
    ("emulated", "right", "packed", "left", ""),
    ("gpu", "right", "packed", "left", ""),
    ("packed", "right", "diff", "left", ""),
    ("yours", "right", "diff", "left", ""),
    ("diff", "bottom", "cause", "top", ""),
)

#: Some bytes inside the box of the packed buffers, four to a word.
BYTES = ("12", "-7", "0", "93", "4", "81", "-128", "5")
CELL, CELLS_TOP = 20, 130


def text(x: float, y: float, content: str, size: int = 12, fill: str = GREY, extra: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}" text-anchor="middle"{extra}>{content}</text>'


def box(b: Box) -> Iterator[str]:
    yield (
        f'<rect x="{b.x}" y="{b.y}" width="{b.width}" height="{b.height}" rx="6" fill="{b.fill}" '
        f'stroke="{EDGE}"/>'
    )
    middle = b.x + b.width / 2
    top = b.y + (24 if b.lines else 36)
    yield text(middle, top, b.title, 14, INK, ' font-weight="bold"')
    for number, line in enumerate(b.lines, 1):
        yield text(middle, top + 17 * number, line)


def arrow(start: tuple[float, float], end: tuple[float, float], label: str = "") -> Iterator[str]:
    """A straight arrow along an axis, else a step: out, over, and in."""
    (x0, y0), (x1, y1) = start, end
    if y0 == y1 or x0 == x1:
        path = f"M{x0:g} {y0:g}L{x1:g} {y1:g}"
    else:
        turn = (x0 + x1) / 2
        path = f"M{x0:g} {y0:g}L{turn:g} {y0:g}L{turn:g} {y1:g}L{x1:g} {y1:g}"
    yield f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="1.5" marker-end="url(#head)"/>'
    if label:
        yield (
            f'<text x="{x0 + 8:g}" y="{(y0 + y1) / 2 + 4:g}" font-size="12" fill="{GREY}" '
            f'font-family="DejaVu Sans Mono, Menlo, monospace">{label}</text>'
        )


def cells() -> Iterator[str]:
    """The bytes, with a frame around each 32-bit word."""
    packed = BOXES["packed"]
    left = packed.x + (packed.width - CELL * len(BYTES)) / 2
    for number, value in enumerate(BYTES):
        x = left + CELL * number
        yield f'<rect x="{x:g}" y="{CELLS_TOP}" width="{CELL}" height="20" fill="{PLAIN}" stroke="#bbbbbb"/>'
        yield text(x + CELL / 2, CELLS_TOP + 13, value, 8, INK)
    for x in range(0, len(BYTES), 4):
        yield (
            f'<rect x="{left + CELL * x:g}" y="{CELLS_TOP}" width="{4 * CELL}" height="20" fill="none" '
            f'stroke="{INK}" stroke-width="1.5"/>'
        )


def svg() -> str:
    """The whole picture."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10" fill="{PANEL}" '
        f'stroke="{EDGE}"/>',
    ]
    for x, heading in HEADINGS:
        parts.append(text(x, 34, heading, 14, INK))
    for start, from_side, end, to_side, label in ARROWS:
        parts += arrow(BOXES[start].at(from_side), BOXES[end].at(to_side), label)
    for b in BOXES.values():
        parts += box(b)
    return "\n".join([*parts, *cells(), "</svg>"]) + "\n"


if __name__ == "__main__":
    PATH.write_text(svg())

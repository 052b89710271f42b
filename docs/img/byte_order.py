"""Draw the byte order of a packed layout: byte_order.svg, from the layout's own index function.

python docs/img/byte_order.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from refsim.core.buffer import ByteKind
from refsim.core.layout import layout
from refsim.core.locate import Location, at_byte
from refsim.core.tensor import TensorDesc

PATH = Path(__file__).with_suffix(".svg")
DESC = TensorDesc((1, 6, 2, 6), layout("4W4C"))

CELL, GAP, LEFT, TOP = 34, 44, 70, 84
STRIP_LEFT, STRIP_STEP = 470, 78
COLOURS = ("#9ecae1", "#fdd0a2", "#c7e9c0", "#dadaeb", "#6baed6", "#fdae6b", "#a1d99b", "#bcbddc")
FILL = {ByteKind.LANE: "url(#lane)", ByteKind.WORD: "#ffffff"}


def text(x: float, y: float, content: object, size: int = 12, anchor: str = "middle", extra: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{extra}>{content}</text>'


def cell(x: float, y: float, place: Location, label: object) -> str:
    """One byte: its block's colour if it is a value, hatched in a word with values, else white."""
    fill = COLOURS[place.block % len(COLOURS)] if place.kind is ByteKind.VALUE else FILL[place.kind]
    grey = "" if place.kind is ByteKind.VALUE else ' fill="#888888"'
    box = f'<rect x="{x:g}" y="{y:g}" width="{CELL}" height="{CELL}" fill="{fill}" stroke="#bbbbbb"/>'
    return box + text(x + CELL / 2, y + CELL / 2 + 4, label, 11, extra=grey)


def frame(x: float, y: float, width: float, height: float) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {place} fill="none" stroke="#222222" stroke-width="2"/>'


def tensor(places: list[Location]) -> Iterator[str]:
    """Left: the tensor as channels by columns, a plane per row of the image; numbers are bytes."""
    w_blocks, rows, c_blocks, _ = DESC.blocks_whcn
    inner, outer = DESC.layout.inner_block, DESC.layout.outer_block
    side = CELL * outer * w_blocks
    height = CELL * inner * c_blocks
    for h in range(rows):
        top = TOP + h * (height + GAP)
        yield text(LEFT + side / 2, top - 22, f"h = {h}", 13)
        for w in range(outer * w_blocks):
            yield text(LEFT + CELL * (w + 0.5), top - 6, f"w{w}", 11)
        for c in range(inner * c_blocks):
            yield text(LEFT - 8, top + CELL * (c + 0.5) + 4, f"c{c}", 11, "end")
        for place in places:
            _, c, at, w = place.index
            if at == h:
                yield cell(LEFT + CELL * w, top + CELL * c, place, place.byte)
        for i in range(w_blocks):
            for k in range(c_blocks):
                yield frame(LEFT + CELL * outer * i, top + CELL * inner * k, CELL * outer, CELL * inner)


def memory(places: list[Location]) -> Iterator[str]:
    """Right: the buffer, a block per line, a frame per 32-bit word; labels are coordinates."""
    numel = DESC.layout.block_numel
    for place in places:
        x = STRIP_LEFT + CELL * place.intra
        y = TOP + STRIP_STEP * place.block
        _, c, h, w = place.index
        if place.intra == 0:
            yield text(STRIP_LEFT - 10, y + CELL / 2 + 4, f"block {place.block}", 12, "end")
            yield text(STRIP_LEFT + CELL * numel + 8, y + CELL / 2 + 4, f"h{h}", 12, "start")
        yield cell(x, y, place, f"c{c}w{w}")
        if place.lane == 3:  # the word is complete: a frame drawn earlier would be painted over
            yield text(x - CELL, y - 5, f"word {place.word}", 11)
            yield frame(x - 3 * CELL, y, 4 * CELL, CELL)


def legend(y: float) -> Iterator[str]:
    entries = (
        (COLOURS[0], "value (colour: its block)"),
        (FILL[ByteKind.LANE], "lane padding: in a word that also holds values"),
        (FILL[ByteKind.WORD], "word padding: a word without values"),
    )
    x = LEFT
    for fill, words in entries:
        yield f'<rect x="{x}" y="{y:g}" width="16" height="16" fill="{fill}" stroke="#bbbbbb"/>'
        yield text(x + 22, y + 13, words, 12, "start")
        x += 60 + 7 * len(words)


def svg() -> str:
    """The whole picture."""
    places = [at_byte(DESC, byte) for byte in range(DESC.nbytes)]
    rows = DESC.blocks_whcn[1]
    plane = CELL * DESC.layout.inner_block * DESC.blocks_whcn[2]
    width = STRIP_LEFT + CELL * DESC.layout.block_numel + 50
    bottom = TOP + rows * plane + (rows - 1) * GAP + 28
    shape = "x".join(map(str, DESC.shape))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 40}" '
        f'viewBox="0 0 {width} {bottom + 40}" font-family="DejaVu Sans Mono, Menlo, monospace">',
        '<defs><pattern id="lane" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<rect width="6" height="6" fill="#f4f4f4"/><path d="M0 6 6 0" stroke="#cccccc"/></pattern></defs>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        text(LEFT, 28, f"{DESC.layout.name}, tensor {shape} (NCHW)", 16, "start"),
        text(LEFT, 48, "number: the byte of that element", 12, "start"),
        text(STRIP_LEFT, 48, f"memory, {DESC.nbytes} bytes: element in each byte", 12, "start"),
        *tensor(places),
        *memory(places),
        *legend(bottom),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    PATH.write_text(svg())

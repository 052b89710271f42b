"""Draw each memory layout: layout_NAME.svg, one tensor as elements and as bytes, from the kernels' own index function.

python docs/img/layouts.py
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from refsim.core.buffer import ByteKind
from refsim.core.layout import DIM_NAMES, FLOAT_LAYOUTS, INT8_LAYOUTS, C, H, Layout, W
from refsim.core.locate import Location, at_byte, at_index
from refsim.core.tensor import TensorDesc

FOLDER = Path(__file__).parent
ROWS = (*INT8_LAYOUTS, *FLOAT_LAYOUTS)
SHAPE = (1, 6, 2, 6)
#: The element that is followed from the tensor to its byte.
FOLLOWED = (0, 5, 1, 4)

WIDTH, LEFT, TOP = 764, 44, 104
CELL, BYTE, LINE = (
    27,
    41,
    54,
)  # pixels: of an element in the tensor, of one in memory, from line to line of memory
COLOURS = ("#9ecae1", "#fdd0a2", "#c7e9c0", "#dadaeb", "#6baed6", "#fdae6b", "#a1d99b", "#bcbddc")
FILL = {ByteKind.LANE: "url(#lane)", ByteKind.WORD: "#ffffff"}
INK, GREY, RED = "#1f2328", "#8c959f", "#c9252d"


def path(row: Layout) -> Path:
    """Where the picture of a layout is kept."""
    return FOLDER / f"layout_{row.short_name}.svg"


STYLE = f"text{{font-size:10px;text-anchor:middle;fill:{INK}}}.g{{fill:{GREY}}}.c{{stroke:#bbb}}"


def text(x: float, y: float, content: object, size: int = 10, anchor: str = "middle", fill: str = INK) -> str:
    """A label. STYLE says how most of them look."""
    looks = f"font-size:{size}px;" if size != 10 else ""
    looks += f"text-anchor:{anchor};" if anchor != "middle" else ""
    looks += f"fill:{fill};" if fill not in (INK, GREY) else ""
    attributes = (' class="g"' if fill == GREY else "") + (f' style="{looks}"' if looks else "")
    return f'<text x="{x:g}" y="{y:g}"{attributes}>{content}</text>'


def frame(x: float, y: float, width: float, height: float, colour: str = INK, stroke: float = 2) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {place} fill="none" stroke="{colour}" stroke-width="{stroke:g}"/>'


@dataclass(frozen=True)
class Picture:
    """One layout: above the tensor in planes, below the buffer in lines."""

    desc: TensorDesc

    @property
    def row(self) -> Layout:
        return self.desc.layout

    @property
    def itemsize(self) -> int:
        return 1 if self.desc.is_int8 else 4

    @property
    def down(self) -> int:
        """The dim that goes down in a plane; columns go across, and there is a plane per step of the other dim."""
        return C if self.row.inner == C else H

    @property
    def run(self) -> int:
        """Elements of one colour: a block, or of a float tensor the elements along the fastest dim."""
        return self.row.block_numel if self.desc.is_int8 else self.desc.sizes_whcn[self.row.dim_order[-1]]

    @property
    def per_line(self) -> int:
        """Elements in a line of memory: 16 bytes, or whole runs of floats."""
        return 16 if self.desc.is_int8 else self.run * (12 // self.run)

    def padded(self, dim: int) -> int:
        return self.desc.blocks_whcn[dim] * self.row.block_extent(dim)

    def fill(self, place: Location) -> str:
        if place.kind is not ByteKind.VALUE:
            return FILL[place.kind]
        return COLOURS[place.byte // self.itemsize // self.run % len(COLOURS)]

    def cell(self, x: float, y: float, size: tuple[int, int], place: Location, label: object) -> str:
        width, height = size
        box = f'<rect x="{x:g}" y="{y:g}" width="{width}" height="{height}" class="c" fill="{self.fill(place)}"/>'
        ink = INK if place.kind is ByteKind.VALUE else GREY
        return box + text(x + width / 2, y + height / 2 + 4, label, fill=ink)

    def planes(self, places: list[Location]) -> Iterator[str]:
        """The tensor: a number is the byte of that element."""
        third = H if self.down == C else C
        across, tall = self.padded(W), self.padded(self.down)
        for number in range(self.padded(third)):
            left, top = self.origin(number)
            yield text(left + CELL * across / 2, top - 20, f"{DIM_NAMES[third].lower()} = {number}", 12)
            for w in range(across):
                yield text(left + CELL * (w + 0.5), top - 5, f"w{w}", fill=GREY)
            for at in range(tall):
                name = f"{DIM_NAMES[self.down].lower()}{at}"
                yield text(left - 5, top + CELL * (at + 0.5) + 4, name, 10, "end", GREY)
        marked = ""
        for place in places:
            whcn = place.index[::-1]
            left, top = self.origin(whcn[third])
            x, y = left + CELL * whcn[W], top + CELL * whcn[self.down]
            yield self.cell(x, y, (CELL, CELL), place, place.byte)
            if place.index == FOLLOWED:
                marked = frame(x + 1, y + 1, CELL - 2, CELL - 2, RED, 3)
        if self.desc.is_int8:
            for number in range(self.padded(third)):
                yield from self.blocks(*self.origin(number), across, tall)
        yield marked

    def blocks(self, left: float, top: float, across: int, tall: int) -> Iterator[str]:
        """A frame around each block of a plane."""
        wide, high = self.row.block_extent(W), self.row.block_extent(self.down)
        for x in range(0, across, wide):
            for y in range(0, tall, high):
                yield frame(left + CELL * x, top + CELL * y, CELL * wide, CELL * high)

    def origin(self, number: int) -> tuple[float, float]:
        """The upper left corner of a plane; up to three stand side by side."""
        step = CELL * self.padded(W) + 32
        return LEFT + number % 3 * step, TOP + number // 3 * (CELL * self.padded(self.down) + 46)

    @property
    def memory_top(self) -> float:
        planes = self.desc.sizes_whcn[H if self.down == C else C]
        return self.origin(planes - 1)[1] + CELL * self.padded(self.down) + 72

    def memory(self, places: list[Location]) -> Iterator[str]:
        """The buffer: a label is the element in that byte, or of a float tensor in that word."""
        marked, unit = "", 4 if self.desc.is_int8 else 1
        for number, place in enumerate(places):
            column, line = number % self.per_line, number // self.per_line
            x, y = LEFT + BYTE * column, self.memory_top + LINE * line
            _, c, h, w = place.index
            yield self.cell(x, y, (BYTE, CELL), place, f"c{c}h{h}w{w}")
            if column == 0:
                yield text(LEFT - 5, y + CELL / 2 + 4, place.byte, 10, "end", GREY)
            if number % unit == unit - 1:  # the word is complete: a frame drawn earlier would be painted over
                left = x - BYTE * (unit - 1)
                name = f"word {place.word}" if self.desc.is_int8 else place.word
                if self.desc.is_int8 and place.word * 4 % self.row.block_numel == 0:
                    name = f"{name}, block {place.block}"
                yield text(left + BYTE * unit / 2, y - 5, name, fill=GREY)
                yield frame(left, y, BYTE * unit, CELL)
            if place.index == FOLLOWED:
                marked = frame(x + 1, y + 1, BYTE - 2, CELL - 2, RED, 3)
        yield marked

    def legend(self, y: float, kinds: set[ByteKind]) -> Iterator[str]:
        fastest = DIM_NAMES[self.row.dim_order[-1]].lower()
        colour = "a block" if self.desc.is_int8 else f"neighbours along {fastest}"
        words_of = {
            ByteKind.VALUE: f"value (a colour: {colour})",
            ByteKind.LANE: "lane padding: its word has values",
            ByteKind.WORD: "word padding: its word has none",
        }
        entries = [(FILL.get(kind, COLOURS[0]), words_of[kind]) for kind in ByteKind if kind in kinds]
        x = float(LEFT)
        for fill, words in entries:
            yield f'<rect x="{x:g}" y="{y:g}" width="14" height="14" class="c" fill="{fill}"/>'
            yield text(x + 20, y + 11, words, 11, "start")
            x += 40 + 6.7 * len(words)

    def sentence(self) -> str:
        """Where the followed element is."""
        place = at_index(self.desc, FOLLOWED)
        _, c, h, w = FOLLOWED
        if not self.desc.is_int8:
            return f"red: element c{c} h{h} w{w} is word {place.word}, bytes {place.byte} to {place.byte + 3}"
        return (
            f"red: element c{c} h{h} w{w} is in block {place.block} at place {place.intra}: "
            f"byte {place.byte}, which is word {place.word}, lane {place.lane}"
        )

    def svg(self) -> str:
        places = [at_byte(self.desc, byte) for byte in range(0, self.desc.nbytes, self.itemsize)]
        lines = -(-len(places) // self.per_line)
        bottom = self.memory_top + LINE * lines
        number = "byte" if self.desc.is_int8 else "first byte"
        what = "words of four bytes" if self.desc.is_int8 else "one float in each word"
        size = f'width="{WIDTH}" height="{bottom + 20:g}" viewBox="0 0 {WIDTH} {bottom + 20:g}"'
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="DejaVu Sans Mono, Menlo, monospace">',
            f"<style>{STYLE}</style>",
            '<defs><pattern id="lane" width="6" height="6" patternUnits="userSpaceOnUse">'
            '<rect width="6" height="6" fill="#f4f4f4"/><path d="M0 6 6 0" stroke="#cccccc"/></pattern></defs>',
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            text(LEFT, 26, self.row.name, 16, "start"),
            text(LEFT, 44, self.sentence(), 11, "start", RED),
            text(
                LEFT,
                66,
                f"tensor {'x'.join(map(str, SHAPE))} (NCHW): the {number} of each element",
                12,
                "start",
            ),
            text(
                LEFT,
                self.memory_top - 26,
                f"memory, {self.desc.nbytes} bytes: {what}; the element in each",
                12,
                "start",
            ),
            *self.planes(places),
            *self.memory(places),
            *self.legend(bottom - 12, {place.kind for place in places}),
            "</svg>",
        ]
        return "\n".join(part for part in parts if part) + "\n"


def svg(row: Layout) -> str:
    """The picture of one layout."""
    return Picture(TensorDesc(SHAPE, row)).svg()


if __name__ == "__main__":
    for each in ROWS:
        path(each).write_text(svg(each))

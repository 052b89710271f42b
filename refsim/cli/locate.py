"""Say where an element is in a packed buffer, or what one of its bytes holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import click

from refsim.cli.kit.options import Numbers, layout_option, shape_option
from refsim.cli.kit.verb import Lacking, verb
from refsim.core.layout import Layout
from refsim.core.layout import layout as named
from refsim.core.locate import at_byte, at_index
from refsim.core.meanings import CellKind
from refsim.core.plain import plain
from refsim.core.result import Result, Text
from refsim.core.tensor import TensorDesc


@dataclass(frozen=True)
class Located(Result):
    """Where an element is in a buffer, or what a byte of it holds."""

    layout: Annotated[str, "The layout."]
    shape: Annotated[Sequence[int], "The logical sizes."]
    bytes: Annotated[int, "The size of the buffer."]
    byte: Annotated[int, "The byte, counted from 0."]
    word: Annotated[int, "The 32-bit word that it is in."]
    lane: Annotated[int, "Which byte of the word it is."]
    block: Annotated[int, "The block of the layout."]
    place_in_block: Annotated[int, "Which element of the block it is."]
    index: Annotated[Sequence[int], "The element: n, c, h, w; in padding beyond the shape."]
    kind: CellKind

    def text(self) -> Text:
        ones = [1] * (len(self.index) - len(self.shape))  # dims in front of the shape that the index also has
        for name, value in (plain(self) | {"layout": str(named(self.layout))}).items():
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            if name == "index" and ones:
                text += f" of {','.join(map(str, [*ones, *self.shape]))}"
            yield f"{name.replace('_', ' '):<16}{text}"


@verb("locate", "-l 4W4C -s 1,16,8,8 --byte 5")
@layout_option()
@shape_option()
@click.option("--byte", type=int, help="A byte of the buffer, counted from 0.")
@click.option("--index", type=Numbers("index"), help="An element, outermost first: n,c,h,w.")
def command(
    layout: Layout, shape: tuple[int, ...], byte: int | None, index: tuple[int, ...] | None
) -> Located:
    """Print byte, word, lane, block and index of one element of a buffer, or of a byte of its padding."""
    desc = TensorDesc(shape, layout)
    if (byte is None) == (index is None):
        both = ", not both" if byte is not None else ""
        raise Lacking(f"give either --byte B or --index n,c,h,w{both}")
    at = at_byte(desc, byte) if byte is not None else at_index(desc, index or ())
    return Located(
        layout.name,
        shape,
        desc.nbytes,
        at.byte,
        at.word,
        at.lane,
        at.block,
        at.intra,
        at.index,
        at.kind.label,
    )

"""Say where an element is in a packed buffer, or what one of its bytes holds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from refsim.cli.kit.options import Numbers, layout_option, shape_option
from refsim.cli.kit.text import say
from refsim.cli.kit.verb import Lacking, Result, verb
from refsim.core.layout import Layout
from refsim.core.locate import at_byte, at_index
from refsim.core.tensor import TensorDesc


@verb("locate", "-l 4W4C -s 1,16,8,8 --byte 5")
@layout_option()
@shape_option()
@click.option("--byte", type=int, help="A byte of the buffer, counted from 0.")
@click.option("--index", type=Numbers("index"), help="An element, outermost first: n,c,h,w.")
def command(
    layout: Layout, shape: tuple[int, ...], byte: int | None, index: tuple[int, ...] | None
) -> Result:
    """Print byte, word, lane, block and index of one element of a buffer, or of a byte of its padding."""
    desc = TensorDesc(shape, layout)
    if (byte is None) == (index is None):
        both = ", not both" if byte is not None else ""
        raise Lacking(f"give either --byte B or --index n,c,h,w{both}")
    place = at_byte(desc, byte) if byte is not None else at_index(desc, index or ())
    facts = {
        "layout": layout.name,
        "shape": list(shape),
        "bytes": desc.nbytes,
        "byte": place.byte,
        "word": place.word,
        "lane": place.lane,
        "block": place.block,
        "place_in_block": place.intra,
        "index": list(place.index),
        "kind": place.kind.label,
    }
    return Result(facts, partial(_show, facts, len(place.index) - len(shape)))


def _show(facts: Mapping[str, Any], ones: int) -> None:
    """``ones``: dims in front of the shape that the index also has."""
    for name, value in facts.items():
        if value is not None:
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            if name == "index" and ones > 0:
                text += f" of {','.join(map(str, [*[1] * ones, *facts['shape']]))}"
            say(f"{name.replace('_', ' '):<16}{text}")

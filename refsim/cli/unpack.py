"""Turn the bytes of a GPU buffer back into an array (.npy, NCHW)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import click

from refsim.cli.kit.options import layout_option, output_option, shape_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import Lacking, verb
from refsim.core.buffer import PackedBuffer, naming
from refsim.core.layout import Layout
from refsim.core.meanings import FileName
from refsim.core.result import Result, Text, shape_text
from refsim.core.tensor import TensorDesc
from refsim.formats import npz
from refsim.formats.file import read_file
from refsim.formats.sidecars import described


@dataclass(frozen=True)
class Unpacked(Result):
    """An array that was written."""

    file: FileName
    layout: Annotated[str, "The layout that it was read from."]
    shape: Annotated[Sequence[int], "The sizes of the array."]
    dtype: Annotated[str, "Its type."]
    short: str

    def text(self) -> Text:
        yield f"{self.file}: {self.dtype} {shape_text(self.shape)}, from {self.short}"


@verb("unpack", "buffer.bin -l 4W4C -s 1,64,56,56 -o array.npy")
@click.argument("file")
@layout_option(required=False)
@shape_option(required=False)
@output_option("the array, .npy")
def command(file: str, layout: Layout | None, shape: tuple[int, ...] | None, output: str) -> Unpacked:
    """Write the elements of the raw buffer FILE as .npy. A .json beside it may give layout and shape."""
    data = bytes(read_file(file))
    kind, dims = described(file, layout, shape)
    if kind is None or dims is None:
        beside = Path(file).with_suffix(".json").name
        raise Lacking(f"give --layout and --shape, or put {beside} beside the buffer")
    desc = TensorDesc(tuple(dims), kind)
    with naming(file):
        buffer = PackedBuffer.from_raw(data, desc.shape, desc.layout)
    array = buffer.unpack()
    npz.write_npy(output, array)
    wrote(output, said=True)
    return Unpacked(output, desc.layout.name, array.shape, str(array.dtype), str(desc.layout))

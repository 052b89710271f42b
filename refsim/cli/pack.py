"""Lay out an array (.npy or .npz, NCHW) as the bytes of a GPU buffer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import click
import numpy as np

from refsim.cli.kit.options import layout_option, output_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import verb
from refsim.core import atomic_write
from refsim.core.buffer import PackedBuffer
from refsim.core.counted import counted
from refsim.core.errors import RawBufferError
from refsim.core.layout import Layout
from refsim.core.meanings import FileName
from refsim.core.result import Result, Text, shape_text
from refsim.formats import dumps, npz


class Byte(click.ParamType):
    """A byte as a signed or an unsigned number, such as -38, 218 or 0xDA; its signed value."""

    name = "byte"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(str(value), 0)
        except ValueError:
            number = 256
        if not -128 <= number <= 255:
            self.fail(f"{value!r} is not a byte: -128 to 255, or 0x00 to 0xFF", param, ctx)
        return number - 256 if number > 127 else number


_BYTE = Byte()


@dataclass(frozen=True)
class Packed(Result):
    """A raw buffer that was written."""

    file: FileName
    layout: Annotated[str, "The layout."]
    shape: Annotated[Sequence[int], "The logical sizes."]
    bytes: Annotated[int, "The size of the buffer."]
    elements: Annotated[int, "How many of its bytes are elements."]
    short: str

    def text(self) -> Text:
        yield f"{self.file}: {counted(self.bytes, 'byte')}, {shape_text(self.shape)} in {self.short}"


@verb("pack", "array.npy -l 4W4C -o buffer.bin")
@click.argument("file")
@layout_option()
@output_option("the raw bytes")
@click.option(
    "--lane",
    type=_BYTE,
    default=0,
    show_default=True,
    help="The byte for padding in words that also hold elements.",
)
@click.option(
    "--word", type=_BYTE, default=0, show_default=True, help="The byte for padding in words without elements."
)
@click.option(
    "--array", "chosen", metavar="NAME", help="The array to take of an .npz that holds several: out0."
)
@click.option("--sidecar", is_flag=True, help="Also write a .json beside it with shape, layout and dtype.")
def command(
    file: str,
    layout: Layout,
    output: str,
    lane: int,
    word: int,
    chosen: str | None,
    sidecar: bool,
) -> Packed:
    """Write FILE (.npy, or .npz with one array; int8 for a packed layout, float32 for W, H and C) as a raw buffer."""
    array = npz.read_array(file, chosen)
    need = np.int8 if layout.packed_int8 else np.float32
    if array.dtype != need:
        raise RawBufferError(file, f"wrong dtype for {layout}", got=array.dtype, need=np.dtype(need))
    buffer = PackedBuffer.pack(array, layout, lane=lane, word=word)
    beside = Path(output).with_suffix(".json")
    if sidecar and beside.is_file():
        beside.unlink()  # killed on the way, no sidecar is better than one of other bytes
    atomic_write.write(output, buffer.raw.tobytes())
    wrote(output, said=True)
    if sidecar:
        info = dumps.sidecar(Path(output).stem, buffer)
        atomic_write.write(beside, (json.dumps(info, indent=2) + "\n").encode())
        wrote(str(beside))
    return Packed(output, layout.name, array.shape, buffer.desc.nbytes, buffer.desc.numel, str(layout))

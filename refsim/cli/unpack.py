"""Turn the bytes of a GPU buffer back into an array (.npy, NCHW)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from refsim.cli.kit.options import layout_option, output_option, shape_option
from refsim.cli.kit.text import say, shape_text, wrote
from refsim.cli.kit.verb import Lacking, Result, verb
from refsim.core.buffer import PackedBuffer, naming
from refsim.core.layout import Layout
from refsim.core.tensor import TensorDesc
from refsim.formats import npz
from refsim.formats.file import read_file
from refsim.formats.sidecars import described


@verb("unpack", "buffer.bin -l 4W4C -s 1,64,56,56 -o array.npy")
@click.argument("file")
@layout_option(required=False)
@shape_option(required=False)
@output_option("the array, .npy")
def command(file: str, layout: Layout | None, shape: tuple[int, ...] | None, output: str) -> Result:
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
    facts = {
        "file": output,
        "layout": desc.layout.name,
        "shape": list(array.shape),
        "dtype": str(array.dtype),
    }
    line = f"{output}: {array.dtype} {shape_text(array.shape)}, from {desc.layout}"
    return Result(facts, partial(say, line))

"""Store the scalars of a program with their own types, for a runtime that reads others as 0."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

import click

from refsim.check.runtime import releases, runtime
from refsim.cli.check import pointer
from refsim.cli.kit.options import output_option
from refsim.cli.kit.text import print_table, say, wrote
from refsim.cli.kit.verb import Result, verb
from refsim.core import atomic_write
from refsim.core.counted import counted
from refsim.formats.file import read_file
from refsim.graph.scalars import mended

COLUMNS = ("delegate", "step", "operator", "argument", "was", "now")


@verb("mend", "model.pte -o mended.pte")
@click.argument("file")
@output_option("the mended file")
def command(file: str, output: str) -> Result:
    """Store the scalars of FILE, a .pte or a delegate blob, with the types that ExecuTorch's WebGPU runtime reads.

    The exporter stores equal scalars once, with the type of the first. That runtime reads a scalar of another type as
    0: the alpha of an addition, for instance. The Vulkan runtime gives the same bits for both files.
    """
    data, rows = mended(read_file(file, suffix=".pte"), file)
    atomic_write.write(output, data)
    wrote(output, said=True)
    scalars = [asdict(row) for row in rows]
    return Result({"file": file, "written": output, "mended": scalars}, partial(_show, output, scalars))


def _show(output: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        print_table(COLUMNS, [tuple(row[name] for name in COLUMNS) for row in rows], drop=("delegate",))
    say(f"wrote {output}: {counted(len(rows), 'scalar')} stored with another type")
    for release in releases():
        if runtime(release).misreads:
            say(pointer(output, release), command=True)

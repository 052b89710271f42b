"""Store the scalars of a program with their own types, for a runtime that reads others as 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import click

from refsim.check.run import pointer
from refsim.check.runtime import releases, runtime
from refsim.cli.kit.options import output_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import verb
from refsim.core import atomic_write
from refsim.core.counted import counted
from refsim.core.result import Command, Result, Table, Text
from refsim.formats.file import read_file
from refsim.graph.scalars import Mended, mended


@dataclass(frozen=True)
class MendedFile(Result):
    """A program whose scalars have their own types."""

    file: Annotated[str, "The file that was read."]
    written: Annotated[str, "The file that was written."]
    mended: Annotated[Sequence[Mended], "The scalars that were stored anew."]

    def text(self) -> Text:
        if self.mended:
            yield Table.of(Mended, self.mended)
        yield f"wrote {self.written}: {counted(len(self.mended), 'scalar')} stored with another type"
        for release in releases():
            if runtime(release).misreads:
                yield Command(pointer(self.written, release))


@verb("mend", "model.pte -o mended.pte")
@click.argument("file")
@output_option("the mended file")
def command(file: str, output: str) -> MendedFile:
    """Store the scalars of FILE, a .pte or a delegate blob, with the types that ExecuTorch's WebGPU runtime reads.

    The exporter stores equal scalars once, with the type of the first. That runtime reads a scalar of another type as
    0: the alpha of an addition, for instance. The Vulkan runtime gives the same bits for both files.
    """
    data, rows = mended(read_file(file, suffix=".pte"), file)
    atomic_write.write(output, data)
    wrote(output, said=True)
    return MendedFile(file, output, rows)

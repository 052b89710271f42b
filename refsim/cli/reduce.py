"""Write the smallest program on which a command still fails."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import click

from refsim.cli.kit.options import output_option, search_seconds_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import Lacking, verb
from refsim.core import atomic_write
from refsim.core.counted import counted
from refsim.core.doing import progress
from refsim.core.errors import GraphError
from refsim.core.result import Command as Pasted
from refsim.core.result import Result, Table, Text, shape_text
from refsim.device.reduce.command import NOT_FOUND, PLACE, UNKNOWN, Command
from refsim.device.reduce.search import reduce
from refsim.exec.model import Model, load
from refsim.formats.file import read_file
from refsim.formats.pte.read import read_pte
from refsim.graph.graph import Graph, Node

COLUMNS = ("node", "operator", "inputs", "output")
SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class ReducedProgram(Result):
    """The smallest program on which a command still fails."""

    file: Annotated[str, "The file that was read."]
    written: Annotated[str, "The smallest program that was found."]
    command: Annotated[Sequence[str], "The command; {} stands for a program's path."]
    command_status: Annotated[
        int | None,
        "How the command ends on both: its exit status, minus the number of a signal, or null if it was ended because "
        "it took too long.",
    ]
    operators: Annotated[int, "Operators of the smallest program."]
    operators_before: Annotated[int, "Operators of the file that was read."]
    bytes: Annotated[int, "Bytes of the smallest program."]
    bytes_before: Annotated[int, "Bytes of the file that was read."]
    tried: Annotated[int, "Programs that the command was run on."]
    ended: Annotated[
        bool, "Whether nothing smaller was left to try; else the time was over, or somebody ended the search."
    ]
    shares: Annotated[
        bool, "Whether tensors share memory, and with memory of their own the command does not fail."
    ]
    small: Model

    def text(self) -> Text:
        small = self.small
        yield Table(COLUMNS, [_cells(small.graphs[number], node) for number, node in small.nodes()])
        yield (
            f"{counted(self.operators_before, 'operator')} and {self.bytes_before} bytes became {self.operators} and "
            f"{self.bytes}; {counted(self.tried, 'program')} tried"
        )
        if not self.ended:
            yield "the search was ended before nothing smaller was left to try"
        if self.shares:
            yield "tensors still share memory: with memory of their own it does not fail"
        words = self.command if any(PLACE in word for word in self.command) else [*self.command, PLACE]
        again = shlex.join(words).replace(PLACE, self.written)
        yield Pasted(f"{self.written} ends with status {self.command_status}, as the whole does: {again}")


@verb("reduce", "model.pte -o small.pte -- ./fails.sh {}")
@click.argument("file")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@output_option("the smallest program that was found")
@search_seconds_option(SECONDS)
def command(file: str, command: tuple[str, ...], output: str, seconds: float) -> ReducedProgram:
    """Make FILE, a .pte, smaller as long as COMMAND fails on it: fewer operators, then smaller sizes, fewer channels.

    COMMAND gets a program's path in place of {}, or behind its words. It fails if it ends with the status that it ends
    with on FILE, other than 0; 125 says that it cannot tell. What is cut off from its inputs gets new ones, so
    COMMAND must make its own, as --random does.

    OUT is written at each step. Ctrl-C ends the search and keeps what was found.
    """
    if not command:
        raise Lacking("give the command behind --")
    end = time.monotonic() + seconds
    data = read_file(file, suffix=".pte")
    pte = read_pte(data, file)
    with tempfile.TemporaryDirectory(prefix="refsim-reduce-") as folder, progress("try") as tell:
        runner = Command(command, Path(folder) / (Path(file).stem + ".pte"))
        status = runner.status(data)
        if status in (0, UNKNOWN, *NOT_FOUND):
            need = "a status that says that it fails"
            raise GraphError(file, "COMMAND does not fail on it", got=f"status {status}", need=need)

        def fails(candidate: bytes) -> bool:
            tell(1)
            return runner.status(candidate) == status

        found = reduce(pte, fails, end, partial(atomic_write.write, output))
    if found.data is None:
        what = "no smaller program fails so" if found.ended else "no smaller program was found in time"
        raise GraphError(file, what, got=counted(found.tried, "program") + " tried")
    wrote(output, said=True)
    before, now = found.operators
    return ReducedProgram(
        file=file, written=output, command=command, command_status=status, operators=now, operators_before=before,
        bytes=len(found.data), bytes_before=len(data), tried=found.tried, ended=found.ended, shares=found.shares,
        small=load(output, runs=False),
    )  # fmt: skip


def _cells(graph: Graph, node: Node) -> tuple[object, ...]:
    tensors = [[graph.tensors[n] for n in ids if n in graph.tensors] for ids in (node.reads, node.outputs)]
    given, made = (" ".join(shape_text(t.shape) for t in some if t.data is None) for some in tensors)
    return node.number, node.operator, given, made

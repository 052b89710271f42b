"""Write the smallest program on which a command still fails."""

from __future__ import annotations

import shlex
import tempfile
import time
from functools import partial
from pathlib import Path

import click

from refsim.cli.kit.options import output_option
from refsim.cli.kit.progress import progress
from refsim.cli.kit.text import print_table, say, shape_text, wrote
from refsim.cli.kit.verb import Lacking, Result, verb
from refsim.core import atomic_write
from refsim.core.counted import counted
from refsim.core.errors import GraphError
from refsim.device.reduce.command import NOT_FOUND, PLACE, UNKNOWN, Command
from refsim.device.reduce.search import Reduced, reduce
from refsim.exec.model import Model, load
from refsim.formats.file import read_file
from refsim.formats.pte.read import read_pte
from refsim.graph.graph import Graph, Node

COLUMNS = ("node", "operator", "inputs", "output")
SECONDS = 600.0


@verb("reduce", "model.pte -o small.pte -- ./fails.sh {}")
@click.argument("file")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@output_option("the smallest program that was found")
@click.option(
    "--seconds",
    type=click.FloatRange(1, 86_400),
    default=SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to search.",
)
def command(file: str, command: tuple[str, ...], output: str, seconds: float) -> Result:
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
    small = load(output, runs=False)
    content = {
        "file": file,
        "written": output,
        "command": list(command),
        "command_status": status,
        "operators": found.operators[1],
        "operators_before": found.operators[0],
        "bytes": len(found.data),
        "bytes_before": len(data),
        "tried": found.tried,
        "ended": found.ended,
        "shares": found.shares,
    }
    return Result(content, partial(_show, output, command, status, found, len(data), small))


def _show(
    output: str, command: tuple[str, ...], status: int | None, found: Reduced, nbytes: int, small: Model
) -> None:
    assert found.data is not None
    print_table(COLUMNS, [_cells(small.graphs[number], node) for number, node in small.nodes()])
    before, now = found.operators
    say(
        f"{counted(before, 'operator')} and {nbytes} bytes became {now} and {len(found.data)}; "
        f"{counted(found.tried, 'program')} tried"
    )
    if not found.ended:
        say("the search was ended before nothing smaller was left to try")
    if found.shares:
        say("tensors still share memory: with memory of their own it does not fail")
    again = shlex.join(command) if any(PLACE in word for word in command) else shlex.join((*command, PLACE))
    say(
        f"{output} ends with status {status}, as the whole does: {again.replace(PLACE, output)}", command=True
    )


def _cells(graph: Graph, node: Node) -> tuple[object, ...]:
    tensors = [[graph.tensors[n] for n in ids if n in graph.tensors] for ids in (node.reads, node.outputs)]
    given, made = (" ".join(shape_text(t.shape) for t in some if t.data is None) for some in tensors)
    return node.number, node.operator, given, made

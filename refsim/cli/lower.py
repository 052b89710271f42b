"""Lower a quantized .pt2 program to a .pte, and report what was fused or refused, the layouts and the transitions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import click

from refsim.check.finding import Level
from refsim.check.run import check_bytes, refused_values
from refsim.check.runtime import DEFAULT as RECORDED
from refsim.check.runtime import runtime
from refsim.cli._lowered import SUFFIX, ExplainedNode, LoweredProgram
from refsim.cli.kit.options import RUNTIMES
from refsim.cli.kit.target import target_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import Lacking, verb
from refsim.cli.kit.written import Written
from refsim.core import atomic_write, strict_json
from refsim.core.doing import progress
from refsim.core.errors import IncompleteError
from refsim.core.folder_write import writing
from refsim.core.plain import plain
from refsim.core.result import FileSize
from refsim.device.execution import Misshaped
from refsim.exec.model import LOWERED
from refsim.formats.targets import DEFAULT, TargetRow, named
from refsim.graph.graph import Graph
from refsim.partition.load import load

if TYPE_CHECKING:
    from refsim.partition.lower import Lowered
    from refsim.partition.rows import CheckedOperator

REPORT = "report.json"


@verb("lower", "model.pt2 -o lowered")
@click.argument("file")
@click.option(
    "--output",
    "-o",
    type=Written(folder=True),
    metavar="DIR",
    help=f"Where to write {LOWERED}, the delegates and {REPORT}; NAME.pte: that file alone.",
)
@click.option("--force", is_flag=True, help="Write even a file that the runtime will not load.")
@click.option(
    "--block",
    "blocked",
    multiple=True,
    metavar="OPERATOR",
    help="Keep an operator out of delegates, as ExecuTorch's operator_blocklist does; may be repeated.",
)
@click.option(
    "--keep-float",
    "kept",
    multiple=True,
    metavar="NODE",
    help="Keep the quantized operator with this node in float, with the weights of --float; may be repeated.",
)
@click.option(
    "--float", "exact", metavar="FLOAT.pt2", help="The program before it was quantized, for --keep-float."
)
@click.option(
    "--check",
    "checked",
    is_flag=True,
    help="First compare every fused operator with torch; write nothing if one differs too much.",
)
@click.option(
    "--trust",
    is_flag=True,
    help="Load FILE even if that may run code that it holds; only for files whose maker you know.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the inputs that --check draws.")
@click.option("--explain", metavar="NODE", help="Say what became of a node, and how its layouts were chosen.")
@target_option()
@click.option(
    "--runtime",
    "release",
    metavar="NAME",
    help=f"The runtime that must load the file: {RUNTIMES}.",
)
def command(
    file: str,
    output: str | None,
    force: bool,
    blocked: tuple[str, ...],
    kept: tuple[str, ...],
    exact: str | None,
    checked: bool,
    trust: bool,
    seed: int,
    explain: str | None,
    family: TargetRow | None,
    release: str | None,
) -> LoweredProgram | ExplainedNode:
    """Partition FILE, a quantized (PT2E) torch.export program; fuse it and choose layouts as ExecuTorch would."""
    if bool(kept) != (exact is not None):
        raise Lacking("give --keep-float NODE and --float FLOAT.pt2 together")
    exported = load(file, trust)
    # torch is there, or load would have said so
    from refsim.partition import report
    from refsim.partition.container import write
    from refsim.partition.lower import lower

    refused = partial(refused_values, release=release) if release is not None else None
    lowered = lower(exported, file, blocked, refused, kept, None if exact is None else load(exact, trust))
    row, meant = family or named(DEFAULT), release or RECORDED
    built = report.graphs(lowered, row.target(runtime=runtime(meant).behaviour))
    if explain is not None:
        return ExplainedNode(file, explain, report.explain(lowered, built, explain))
    made = {f"delegate{n}.bin": one.serialized.blob(file) for n, one in enumerate(lowered.delegates)}
    made[LOWERED] = write(lowered)
    errors = [one for one in check_bytes(made[LOWERED], file, meant) if one.level is Level.ERROR]
    result = LoweredProgram(
        file=file, target=row.name, runtime=meant, steps=report.steps(lowered),
        delegates=report.delegates(lowered, built), refused=lowered.refusals, unfused=lowered.unfused,
        defects=_defects(built), runtime_errors=errors,
        idle_blocks=report.idle_blocks(lowered, blocked),
        check=_checked(lowered, seed, file) if checked else None, output=output, force=force,
    )  # fmt: skip
    if output is None or result.wrong or (errors and not force):
        return result
    files = _write(output, result, made)
    return replace(result, files=[FileSize(name, len(data)) for name, data in files.items()])


def _checked(lowered: Lowered, seed: int, file: str) -> list[CheckedOperator]:
    """Every fused operator beside torch; IncompleteError if there is none."""
    from refsim.partition import report
    from refsim.partition.check import check, count

    with progress("operators", count(lowered)) as tell:
        found = check(lowered, seed, tell=tell)
    if not found:
        raise IncompleteError("lower --check", "no operator to compare", got=file, need="a quantized program")
    return list(map(report.difference, found))


def _defects(built: Sequence[Graph]) -> list[Misshaped]:
    """The nodes that ExecuTorch lowers in the same way, and that its runtime gets wrong."""
    return [
        Misshaped(number, node.number, node.operator, node.upstream)
        for number, graph in enumerate(built)
        for node in graph.nodes
        if node.upstream is not None
    ]


def _write(output: str, result: LoweredProgram, made: dict[str, bytes]) -> dict[str, bytes]:
    """Write a folder, or the program alone; what was written, by name in the folder."""
    if output.endswith(SUFFIX):
        files = {os.path.basename(output): made[LOWERED]}
        atomic_write.write(output, made[LOWERED])
    else:
        files = {REPORT: strict_json.dumps(plain(result), indent=1).encode(), **made}
        with writing(output) as writer:
            for name, data in files.items():
                writer.write(name, data)
    wrote(output, said=True)
    return files

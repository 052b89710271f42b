"""Find the first operator that goes wrong in a device's run, from buffers dumped there."""

from __future__ import annotations

import click

from refsim.cli._bisected import BisectedFile, BisectNode, verdict
from refsim.cli.kit.devtools import node_data_option, origin_option, read_origins, write_node_data
from refsim.cli.kit.options import (
    EXECUTORS,
    all_bytes_option,
    device_profile_option,
    inputs_options,
    partial_option,
    report_options,
    runtime_option,
    sure_option,
)
from refsim.cli.kit.report import write_html
from refsim.cli.kit.target import GivenInputs, target_option
from refsim.cli.kit.verb import Lacking, drawing, verb
from refsim.core import choices
from refsim.core.doing import progress
from refsim.core.errors import FormatError, GraphError
from refsim.core.qmath import CANONICAL, Profile
from refsim.device.bisect import Bisected, bisect
from refsim.device.complete import MOST_NAMED, Completeness, check_run, fix_of, of_other_inputs, strangers
from refsim.device.dumped import Ran, run_on
from refsim.device.exchanged import check_exchanged
from refsim.device.opened import opened
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.exec.share import shares
from refsim.exec.trace import find_node
from refsim.formats.dumps import Recorded
from refsim.formats.targets import TargetRow
from refsim.golden.named import recorded as dump_at
from refsim.golden.told import ToldReport


@verb("bisect", "model.pte -i in.npz --actual dumps")
@click.argument("file")
@click.option("--actual", metavar="DIR", help="Folder or zip file of dumped buffers.")
@click.option(
    "--executor", "-x", metavar="NAME", help=f"Instead of a dump: run the file on this executor. {EXECUTORS}."
)
@inputs_options
@partial_option
@sure_option
@click.option(
    "--node",
    "-n",
    help="Explain this operator, not the first that is wrong: NUMBER, DELEGATE:NUMBER, or the name of its output.",
)
@target_option("as the dumped layouts say")
@runtime_option
@device_profile_option
@all_bytes_option
@report_options
@node_data_option
@origin_option
def command(
    file: str,
    actual: str | None,
    executor: str | None,
    inputs: str | None,
    seed: int | None,
    partial: bool,
    sure: bool,
    node: str | None,
    family: TargetRow | None,
    release: str,
    profile: Profile | None,
    all_bytes: bool,
    limit: int,
    html: str | None,
    node_data: str | None,
    origin: str | None,
) -> BisectedFile:
    """Compare the dumped buffers of a run of FILE with the right ones, in execution order.

    If the inputs of an operator were dumped too, it is also computed on those. That separates an operator that is
    wrong from one that got wrong inputs.
    """
    if (actual is None) == (executor is None):
        both = ", not both" if actual is not None else ""
        raise Lacking(f"give the buffers with --actual DIR, or run the file with -x EXECUTOR{both}")
    dumped = None if actual is None else dump_at(actual, file)
    asked_inputs = GivenInputs(inputs, seed)
    aimed = opened(file, family, CANONICAL, dumped, shaped=asked_inputs.at, release=release)
    made = read_origins(aimed.model, origin)
    model, profile = aimed.model, profile or (None if family is None else family.profile)
    given = asked_inputs.of(model)
    asked = None if node is None else _asked(model, node)
    runner = None if executor is None else executor_named(executor)
    recorded: Recorded | Ran
    notes: list[str] = []
    if dumped is not None:
        recorded, where = dumped, dumped.path
        notes = (
            check_run(dumped, aimed, given, partial, drawing)
            + aimed.misfits(where)
            + strangers(model, dumped)
        )
    else:
        assert executor is not None and runner is not None
        recorded, where = run_on(model, given, runner), executor
    others = dumped is not None and not sure and of_other_inputs(dumped, model, given)
    unsaid = dumped is not None and not sure and "inputs" in dumped.unsaid()
    with progress("operators", sum(1 for _ in model.nodes())) as tell:
        rows = bisect(
            model, recorded, given, tell, 1, runner, others, asked, unsaid,
            profile=profile, device=not all_bytes, limit=limit,
        )  # fmt: skip
    found = Bisected(rows, profile, asked)
    _check_compared(found, where, recorded, node)
    if dumped is not None:
        check_exchanged(model, rows, where, "buffers", "each buffer under its own name")
    notes += [*found.changed(model), *(row.doubt for row in rows if row.doubt)]
    write_node_data(node_data, f"bisect {where}", [(row.value, verdict(row)) for row in rows])
    held = frozenset(row.value for row in found.compared)
    needed = [row.value for row in rows if row.is_int8]
    own = [] if runner is None or executor is None else shares(model, {executor: runner})
    whole = Completeness(where, needed, held, partial, notes, fix_of(dumped, model), own)
    told = ToldReport.of(found.report, executor, runner)
    write_html(told, html)
    return BisectedFile(
        file=file, aimed=aimed, whole=whole, differs=not found.same, actual=where,
        nodes=[BisectNode.of(row) for row in rows], first=None if found.first is None else found.first.value,
        wrong=[row.value for row in found.wrong], legal=[row.value for row in found.legal],
        causes={row.value: row.cause for row in found.wrong if row.cause},
        told=told, made=made, found=found, dumped=dumped is not None,
    )  # fmt: skip


def _check_compared(found: Bisected, where: str, recorded: Recorded | Ran, node: str | None) -> None:
    """FormatError if there was nothing to compare, or nothing of the operator that was asked for."""
    if not found.compared:
        there = sorted(recorded.held if isinstance(recorded, Ran) else recorded.entries)
        raise FormatError(
            where, "holds none of the model's buffers", got=choices.first(there, MOST_NAMED),
            need=f"such as {choices.first([row.value for row in found.rows], MOST_NAMED)}",
        )  # fmt: skip
    if found.asked is not None and found.chosen is not None and found.chosen.run is None:
        need = f"{found.chosen.value}, or another --node"
        raise FormatError(where, f"holds no buffer of node {node}", need=need)


def _asked(model: Model, text: str) -> tuple[int, int]:
    """(delegate, node) of --node; GraphError for a float operator, of which no buffer is compared."""
    delegate, node = find_node(model, text)
    if node.call is None and node.meaning is None:
        raise GraphError(f"{model.path}: {node}", "is a float operator", need="an int8 operator")
    return delegate, node.number

"""Find the first operator that goes wrong in a device's run, from buffers dumped there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial as partial_of
from typing import Any

import click

from refsim.bytediff import Report
from refsim.cli._model_explorer import node_data_option, write_node_data
from refsim.cli._origins import COLUMN, Origins, origin_option, read_origins
from refsim.cli.kit.again import again
from refsim.cli.kit.apart import Telling
from refsim.cli.kit.buffers import (
    GivenInputs,
    all_bytes_option,
    inputs_options,
    launched,
    print_report,
    write_html,
)
from refsim.cli.kit.complete import (
    MOST_NAMED,
    Completeness,
    check_run,
    fix_of,
    meant,
    named,
    of_other_inputs,
    partial_option,
    sure_option,
    values,
)
from refsim.cli.kit.given import recorded as dump_at
from refsim.cli.kit.options import (
    EXECUTORS,
    device_profile_option,
    html_option,
    limit_option,
    runtime_option,
    search_option,
)
from refsim.cli.kit.progress import progress
from refsim.cli.kit.target import opened, target_option
from refsim.cli.kit.text import print_table, say, say_all
from refsim.cli.kit.verb import Lacking, Result, verb
from refsim.core import choices
from refsim.core.counted import counted, form
from refsim.core.errors import FormatError, GraphError
from refsim.core.qmath import CANONICAL, Profile
from refsim.device.bisect import allowed, bisect
from refsim.device.exchanged import check_exchanged
from refsim.device.ran import Ran, run_on
from refsim.device.row import GIVEN, Row
from refsim.exec.factory import executor_named
from refsim.exec.model import Model
from refsim.exec.share import as_json as as_json_of
from refsim.exec.share import shares
from refsim.exec.trace import find_node
from refsim.formats.dumps import Recorded, value_name
from refsim.formats.targets import TargetRow

COLUMNS = ("delegate", "node", "operator", "output", "run", "alone")
#: The options that the command that explains another operator does without.
ONCE = {"--node": True, "-n": True, "--html": True, "--node-data": True}
SAME_TEXT, NOT_DUMPED, UNFIT, UNKNOWN = "same", "not dumped", "does not fit", "-"


def cells(row: Row) -> list[object]:
    """A row as the cells of the table."""
    run = (row.unfit or NOT_DUMPED) if row.run is None else _text(row.run)
    alone = UNKNOWN if row.alone is None else _text(row.alone)
    return [row.delegate, row.node, row.operator, row.output, run, alone]


def verdict(row: Row) -> str:
    """``same``; ``wrong``: the operator itself is; ``wrong inputs``: it only got wrong ones; ``not dumped``; ``does
    not fit``: the buffer is of another shape or layout."""
    if row.run is None:
        return UNFIT if row.unfit else NOT_DUMPED
    return "wrong" if row.wrong else SAME_TEXT if row.run.same else "wrong inputs"


def _node(row: Row) -> dict[str, Any]:
    """A row as plain data."""
    found = {name: getattr(row, name) for name in ("delegate", "node", "operator")}
    found |= {"value": row.output, "verdict": verdict(row), "unfit": row.unfit}
    for name, report in (("run", row.run), ("alone", row.alone)):
        found[name] = None if report is None else {
            "same": report.same, "differing": report.differing, "illegal": report.illegal,
        }  # fmt: skip
    return found


def _strangers(model: Model, dumped: Recorded) -> list[str]:
    """What people should know about buffers of a dump that no value of the file has."""
    others = sorted(set(dumped.entries) - {*values(model)})
    if not others:
        return []
    what = form(len(others), "is no value", "are no values")
    return [
        f"not compared: {named(others)} in {dumped.path} {what} of {model.path}{meant(others, model, dumped.entries)}"
    ]


def _text(report: Report) -> str:
    return SAME_TEXT if report.same else f"different {report.illegal}"


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
@limit_option
@search_option
@html_option
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
) -> Result:
    """Compare the dumped buffers of a run of FILE with the right ones, in execution order.

    If the inputs of an operator were dumped too, it is also computed on those. That separates an operator that is
    wrong from one that got wrong inputs.
    """
    if (actual is None) == (executor is None):
        both = ", not both" if actual is not None else ""
        raise Lacking(f"give the buffers with --actual DIR, or run the file with -x EXECUTOR{both}")
    dumped = None if actual is None else dump_at(actual, file)
    asked_inputs = GivenInputs(inputs, seed)
    found = opened(file, family, CANONICAL, dumped, shaped=asked_inputs.at, release=release)
    made = read_origins(found.model, origin)
    model, profile = found.model, profile or (None if family is None else family.profile)
    given = asked_inputs.of(model)
    asked = None if node is None else _asked(model, node)
    recorded: Recorded | Ran
    runner = None if executor is None else executor_named(executor)
    if executor is not None and runner is not None:
        recorded, where, notes = run_on(model, given, runner), executor, list[str]()
    else:
        assert dumped is not None
        recorded, where = dumped, dumped.path
        notes = check_run(dumped, found, given, partial) + found.misfits(where) + _strangers(model, dumped)
    others = dumped is not None and not sure and of_other_inputs(dumped, model, given)
    with progress("operators", sum(1 for _ in model.nodes())) as tell:
        how = partial_of(launched, runner)
        told: dict[str, Any] = dict(profile=profile, device=not all_bytes, limit=limit)
        unsaid = dumped is not None and not sure and "inputs" in dumped.unsaid()
        rows = bisect(model, recorded, given, tell, 1, how, others, asked, unsaid, **told)
    compared = [row for row in rows if row.run is not None]
    chosen = next((row for row in rows if (row.delegate, row.node) == asked), None)
    if not compared:
        raise FormatError(
            where, "holds none of the model's buffers", got=choices.first(sorted(recorded.entries), MOST_NAMED),
            need=f"such as {choices.first([row.output for row in rows], MOST_NAMED)}",
        )  # fmt: skip
    if dumped is not None:
        check_exchanged(model, rows, where, "buffers", "each buffer under its own name")
    notes += _changed(model, rows)
    notes += [row.doubt for row in rows if row.doubt]
    doubted = next((row for row in rows if row.excused), None)
    if chosen is not None and chosen.run is None:
        raise FormatError(
            where, f"holds no buffer of node {node}", need=f"{chosen.output}, or another --node"
        )
    guilty = next((row for row in rows if row.wrong), None)
    first = next((row for row in compared if row.run is not None and not row.run.same), None)
    held = frozenset(row.output for row in compared)
    write_node_data(node_data, f"bisect {where}", [(row.output, verdict(row)) for row in rows])
    whole = Completeness(
        where, [row.output for row in rows if row.is_int8], held, partial, notes, fix_of(dumped, model)
    )
    if executor is not None and runner is not None:
        whole.own = shares(model, {executor: runner})
    legal = (allowed(rows) or []) if profile is not None else []
    chosen = chosen or (None if legal else guilty or first)
    report = (
        None if chosen is None else chosen.alone if chosen.wrong and chosen.alone is not None else chosen.run
    )
    same = (first is None or bool(legal)) and guilty is None
    telling = Telling(executor, runner)
    write_html(html, report, telling.texts(report))
    content = {
        "file": file, "actual": where, **found.as_json(), "same": same and whole.enough,
        "nodes": [_node(row) for row in rows],
        "first": None if first is None else first.output, "wrong": [row.output for row in rows if row.wrong],
        "legal": [row.output for row in legal],
        "causes": {row.output: row.cause for row in rows if row.wrong and row.cause},
        "report": None if report is None else report.as_json(), "apart": telling.as_json(report),
        **whole.as_json(), **as_json_of(whole.own), **made.as_json(),
    }  # fmt: skip

    def show() -> None:
        _print_rows(rows, made)
        if executor is None:
            say(found.line())
        say_all(whole.lines())
        _say_first(rows, first, profile)
        _say_wrong(rows, made)
        if report is not None:
            print_report(report, telling)
        _say_others([row for row in rows if row.wrong and row is not chosen])
        if doubted is not None and guilty is None:
            say(
                f"no operator is called wrong: node {doubted.node} {doubted.operator} is right for other inputs; give "
                "those of the device's run with -i, or dump them too"
            )
        if same:
            say(("right: " if whole.enough else "") + _closing(rows, legal, profile))

    return Result(content, show, partial_of(whole.status, same))


def _changed(model: Model, rows: Sequence[Row]) -> list[str]:
    """Of each operator that is right in the run, but not for its dumped inputs: that it had read others."""
    differ = {row.output for row in rows if row.run is not None and not row.run.same}
    notes = []
    for row in rows:
        if row.run is not None and row.run.same and row.alone is not None and not row.alone.same:
            graph = model.graphs[row.delegate]
            node = next(n for n in graph.nodes if n.number == row.node and n.outputs)
            read = dict.fromkeys(value_name(row.delegate, value) for value in node.inputs.values())
            others = choices.listed([name for name in read if name in differ] or ["input"])
            notes.append(
                f"node {row.node} {row.operator} is right, since it gave what the right run gives: it read another "
                f"{others} than was dumped, which was changed later, or on the way to the file"
            )
    return notes


def _asked(model: Model, text: str) -> tuple[int, int]:
    """(delegate, node) of --node; GraphError for a float operator, of which no buffer is compared."""
    delegate, node = find_node(model, text)
    if node.call is None and node.meaning is None:
        raise GraphError(f"{model.path}: {node}", "is a float operator", need="an int8 operator")
    return delegate, node.number


def _print_rows(rows: list[Row], made: Origins) -> None:
    table = [[*cells(row), *made.cell(row.delegate, row.node)] for row in rows]
    print_table((*COLUMNS, *([COLUMN] if made else [])), table, drop=("delegate",))
    made.say_summary()
    say(_dumped(rows))


def _say_first(rows: list[Row], first: Row | None, profile: Profile | None) -> None:
    """The first operator whose buffer is not the right run's, and those before it that the profile excuses."""
    if first is None:
        return
    before = [] if profile is None else _allowed_before(rows, first)
    beyond = f" otherwise than profile {profile.name} allows" if profile is not None and before else ""
    say(f"first that diverges{beyond}: node {first.node} {first.operator}, {first.output}")
    if profile is not None and before:
        differ = form(len(before), "differs", "differ")
        say(f"before it {', '.join(before)} {differ}, as profile {profile.name} allows")


def _say_wrong(rows: list[Row], made: Origins) -> None:
    for row in rows:
        if row.wrong:
            say(f"wrong: node {row.node} {row.operator}, {row.output} ({_how(row)})")
            made.say(row.delegate, row.node)
            if row.cause:
                say(f"cause: {row.cause}")
        elif row.cause:
            say(f"not judged: node {row.node} {row.operator}, {row.output}: {row.cause}")


def _say_others(rows: Sequence[Row]) -> None:
    """The command that explains the next of the wrong operators that no report above is about, and the others."""
    if not rows:
        return
    first, *more = rows
    command = again(ONCE, "--node", f"{first.delegate}:{first.node}")
    say(f"explain node {first.node} {first.operator}: {command}", command=True)
    if more:
        others = choices.listed(f"{row.delegate}:{row.node}" for row in more)
        say(f"explain the other wrong operators: the same with --node {others}")


def _allowed_before(rows: list[Row], first: Row) -> list[str]:
    """The nodes before the first that diverges whose bytes differ, but only as the profile allows."""
    found = rows[: next(number for number, row in enumerate(rows) if row is first)]
    return [f"node {r.node} {r.operator}" for r in found if r.run is not None and r.run.differing]


def _how(row: Row) -> str:
    """On which inputs an operator is wrong."""
    if row.alone is None:
        return "its inputs were not all dumped"
    return f"on {GIVEN}" if row.given else "on its own dumped inputs"


def _dumped(rows: list[Row]) -> str:
    """How many buffers there were to compare."""
    held = [row.is_int8 for row in rows if row.run is not None or row.unfit]
    int8, floats = sum(held), len(held) - sum(held)
    unfit = sum(bool(row.unfit) for row in rows)
    text = f"{int8} of {counted(sum(row.is_int8 for row in rows), 'int8 buffer')} dumped"
    text += f", and {counted(floats, 'float buffer')}" if floats else ""
    return text + (f"; {unfit} {form(unfit, 'does', 'do')} not fit" if unfit else "")


def _closing(rows: list[Row], legal: list[Row], profile: Profile | None) -> str:
    """The verdict where no operator is wrong."""
    count = sum(row.run is not None for row in rows)
    if legal and profile is not None:
        differ = counted(len(legal), "buffer", "differ")
        return f"{differ} from the right run, and profile {profile.name} allows that in each operator"
    return f"{counted(count, 'compared buffer')} {form(count, 'is', 'are')} the same"

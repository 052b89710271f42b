"""Compare the delegate calls that an ETDump recorded with the right bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial as partial_of

import click

from refsim.cli._origins import COLUMN, Origins, origin_option, read_origins
from refsim.cli.kit.complete import named, partial_option
from refsim.cli.kit.options import executor_profile_option
from refsim.cli.kit.target import opened, target_option
from refsim.cli.kit.text import print_table, say, shape_text
from refsim.cli.kit.verb import Result, verb
from refsim.core import choices
from refsim.core.counted import counted
from refsim.core.errors import FormatError, IncompleteError
from refsim.core.qmath import Profile
from refsim.core.status import DIFFERENT, SAME
from refsim.device.delegate_gap import Gap, delegate_calls, gaps
from refsim.formats.dumps import value_name
from refsim.formats.etdump.read import read_etdump
from refsim.formats.targets import TargetRow

#: Outputs whose first difference is told.
MOST_FIRST = 3
COLUMNS = (
    "run", "instruction", "delegate", "value", "shape", "dtype", "elements", "differing", "steps", "largest",
)  # fmt: skip
DROP = ("run", "dtype", "instruction", "elements")


@verb("etdump", "model.pte run.etdp --buffer run.bin")
@click.argument("file")
@click.argument("dump", metavar="ETDUMP")
@click.option("--buffer", metavar="FILE", help="The debug buffer that the runtime wrote beside the ETDump.")
@target_option()
@executor_profile_option
@partial_option
@origin_option
def command(
    file: str,
    dump: str,
    buffer: str | None,
    family: TargetRow | None,
    profile: Profile | None,
    partial: bool,
    origin: str | None,
) -> Result:
    """Compare what the delegates of FILE gave in a run, as ETDUMP recorded it, with the right bytes.

    Each delegate is computed on the inputs that it had in that run.
    """
    aimed = opened(file, family, profile)
    model = aimed.model
    made = read_origins(model, origin)
    recording = read_etdump(dump, buffer)
    rows = gaps(model, recording)
    needed = [value_name(c.delegate_index, v) for c in delegate_calls(model).values()
              for v in model.graphs[c.delegate_index].outputs]  # fmt: skip
    if not rows:
        raise FormatError(
            dump, "recorded no values of a Vulkan delegate", got=counted(len(recording.executions()), "run"),
            need="a run with a debug buffer and intermediate outputs",
        )  # fmt: skip
    wrong = [row for row in rows if row.differing]
    missing = [name for name in needed if name not in {row.value for row in rows}]
    enough = partial or not missing
    content = {
        "file": file, **aimed.as_json(), "etdump": dump, "calls": [row.as_json() for row in rows],
        "same": not wrong and enough, "not_compared": missing, "partial": partial, **made.as_json(),
    }  # fmt: skip
    status = partial_of(_status, dump, not wrong, needed, [] if enough else missing)
    return Result(content, partial_of(_show, rows, wrong, missing, made), status)


def _show(rows: Sequence[Gap], wrong: Sequence[Gap], missing: Sequence[str], made: Origins) -> None:
    table = [[*_cells(row), *made.cell(row.delegate, -1 if row.node is None else row.node)] for row in rows]
    print_table((*COLUMNS, *([COLUMN] if made else [])), table, DROP)
    elements, different = sum(row.elements for row in rows), sum(row.differing for row in rows)
    say(f"{counted(len(rows), 'output')} of delegates, {counted(elements, 'element')}: {different} differ")
    for row in wrong[:MOST_FIRST]:
        assert row.first is not None
        say(f"first that differs in run {row.run}, {row.value}: element {','.join(map(str, row.first))}")
        if row.node is not None:
            made.say(row.delegate, row.node)
    if len(wrong) > MOST_FIRST:
        say(choices.more(len(wrong) - MOST_FIRST, "the table has all"))
    if missing:
        say(f"not recorded: {named(missing)}")


def _status(dump: str, same: bool, needed: list[str], missing: list[str]) -> int:
    if same and missing:
        raise IncompleteError(
            dump, "does not hold all outputs of delegates", need="all, or --partial",
            got=f"{len(needed) - len(missing)} of {len(needed)}; {named(missing)} not compared",
        )  # fmt: skip
    return SAME if same else DIFFERENT


def _cells(row: Gap) -> list[object]:
    steps = "-" if row.steps is None else row.steps
    largest = "-" if row.largest is None else f"{row.largest:.6g}"
    return [row.run, row.instruction, row.delegate, row.value, shape_text(row.shape), row.dtype, row.elements,
            row.differing, steps, largest]  # fmt: skip

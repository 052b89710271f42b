"""Compare the delegate calls that an ETDump recorded with the right bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import click

from refsim.cli.kit.devtools import origin_option, read_origins
from refsim.cli.kit.options import executor_profile_option, partial_option
from refsim.cli.kit.target import target_option
from refsim.cli.kit.verb import verb
from refsim.core import choices
from refsim.core.counted import counted
from refsim.core.errors import FormatError, IncompleteError
from refsim.core.plain import FLAT
from refsim.core.qmath import Profile
from refsim.core.result import Result, Same, Text, shape_text
from refsim.core.status import DIFFERENT, SAME
from refsim.device.complete import named
from refsim.device.opened import Opened, opened
from refsim.devtools.etdump_file import read_etdump
from refsim.devtools.gaps import Gap, delegate_calls, gaps
from refsim.formats.dumps import value_name
from refsim.formats.targets import TargetRow
from refsim.graph.origin import Origins

#: Outputs whose first difference is told.
MOST_FIRST = 3
COLUMNS = (
    "run", "instruction", "delegate", "value", "shape", "dtype", "elements", "differing", "steps", "largest",
)  # fmt: skip
DROP = ("run", "dtype", "instruction", "elements")


@dataclass(frozen=True, kw_only=True)
class EtdumpCompared(Result):
    """The calls of delegates that an ETDump recorded."""

    file: Annotated[str, "The program."]
    aimed: Annotated[Opened, FLAT]
    etdump: Annotated[str, "The ETDump."]
    calls: Annotated[Sequence[Gap], "The outputs, in the order of the recording."]
    not_compared: Annotated[Sequence[str], "Outputs of delegates that were not recorded."]
    partial: Annotated[bool, "Whether --partial was given."]
    made: Annotated[Origins, FLAT]
    needed: int

    @property
    def wrong(self) -> list[Gap]:
        return [row for row in self.calls if row.differing]

    @property
    def same(self) -> Same:
        return not self.wrong and (self.partial or not self.not_compared)

    @property
    def status(self) -> int:
        left = self.not_compared
        if not self.wrong and not self.same:
            raise IncompleteError(
                self.etdump, "does not hold all outputs of delegates", need="all, or --partial",
                got=f"{self.needed - len(left)} of {self.needed}; {named(left)} not compared",
            )  # fmt: skip
        return SAME if self.same else DIFFERENT

    def text(self) -> Text:
        rows = [((row.delegate, -1 if row.node is None else row.node), _cells(row)) for row in self.calls]
        yield self.made.table(COLUMNS, rows, DROP)
        elements, differing = (
            sum(getattr(row, name) for row in self.calls) for name in ("elements", "differing")
        )
        yield f"{counted(len(rows), 'output')} of delegates, {counted(elements, 'element')}: {differing} differ"
        for row in self.wrong[:MOST_FIRST]:
            assert row.first is not None
            yield f"first that differs in run {row.run}, {row.value}: element {','.join(map(str, row.first))}"
            if row.node is not None:
                yield from self.made.made_by(row.delegate, row.node)
        if len(self.wrong) > MOST_FIRST:
            yield choices.more(len(self.wrong) - MOST_FIRST, "the table has all")
        if self.not_compared:
            yield f"not recorded: {named(self.not_compared)}"


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
) -> EtdumpCompared:
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
    missing = [name for name in needed if name not in {row.value for row in rows}]
    return EtdumpCompared(
        file=file, aimed=aimed, etdump=dump, calls=rows, not_compared=missing, partial=partial, made=made,
        needed=len(needed),
    )  # fmt: skip


def _cells(row: Gap) -> list[object]:
    steps = "-" if row.steps is None else row.steps
    largest = "-" if row.largest is None else f"{row.largest:.6g}"
    return [row.run, row.instruction, row.delegate, row.value, shape_text(row.shape), row.dtype, row.elements,
            row.differing, steps, largest]  # fmt: skip

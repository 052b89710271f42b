"""Turn the outputs of an exposed file into the dump folder that bisect, run and diff read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import click

from refsim.check.runtime import runtime
from refsim.cli.kit.options import folder_option, more_option, runtime_option
from refsim.cli.kit.target import target_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import verb
from refsim.core.buffer import PackedBuffer
from refsim.core.counted import counted
from refsim.core.meanings import DeviceFamily, FolderName
from refsim.core.result import Result, Table, Text, shape_text
from refsim.device.collect import Collected, collect, family_of, parts_of, read, write
from refsim.formats.targets import DEFAULT, TargetRow, named

COLUMNS = ("value", "output", "operator", "shape", "layout", "bytes")


@dataclass(frozen=True)
class CollectedDump(Result):
    """A dump made of the outputs of an exposed program."""

    file: Annotated[str, "The exposed program."]
    target: DeviceFamily
    runtime: Annotated[str, "The runtime that gave the outputs."]
    dump: FolderName
    values: Annotated[Sequence[Mapping[str, Any]], "The sidecars of the values."]
    collected: Collected
    why: str

    def text(self) -> Text:
        rows = []
        for info in self.values:
            held = self.collected.held[info["value"]]
            layout = (info["layout"] or info["dtype"]).removeprefix("PACKED_INT8_").removeprefix("TENSOR_")
            nbytes = held.desc.nbytes if isinstance(held, PackedBuffer) else held.nbytes
            about = (info.get("operator") or "(input)", shape_text(info["shape"]), layout, nbytes)
            rows.append((info["value"], info["output"], *about))
        yield Table(COLUMNS, rows, drop=("output", "bytes", "shape"))
        why = f", {self.why}" if self.why else ""
        yield f"{counted(len(rows), 'value')} in {self.dump}, layouts as on {self.target}{why}"


@verb("collect", "exposed.pte outputs.npz -o dump")
@click.argument("exposed")
@click.argument("outputs", nargs=-1, required=True)
@folder_option("Where to write the dump")
@more_option
@target_option("the one that EXPOSED was made for, else desktop")
@runtime_option
def command(
    exposed: str,
    outputs: tuple[str, ...],
    output: str,
    more: tuple[tuple[str, str], ...],
    family: TargetRow | None,
    release: str,
) -> CollectedDump:
    """Read the OUTPUTS of a run of EXPOSED, a file that refsim expose wrote, and write its values as a dump.

    OUTPUTS is an .npz with out0, out1...; a folder of .npy or raw files; the BASE of executor_runner's BASE-0.bin; or
    the files themselves, in order.
    """
    parts = read(parts_of(exposed, outputs, more))
    known, why = family_of(parts, family)
    row = known or named(DEFAULT)
    collected = collect(parts, row.target(runtime=runtime(release).behaviour))
    write(output, collected)
    wrote(output, said=True)
    return CollectedDump(exposed, row.name, release, output, list(collected.infos.values()), collected, why)

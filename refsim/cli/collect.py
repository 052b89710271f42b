"""Turn the outputs of an exposed file into the dump folder that bisect, run and diff read."""

from __future__ import annotations

from functools import partial

import click

from refsim.cli.kit.options import folder_option
from refsim.cli.kit.target import target_option
from refsim.cli.kit.text import print_table, say, shape_text, wrote
from refsim.cli.kit.verb import Result, verb
from refsim.core.counted import counted
from refsim.device.collect import Collected, Given, collect, family_of, read, write
from refsim.formats.targets import DEFAULT, TargetRow, named

COLUMNS = ("value", "output", "operator", "shape", "layout", "bytes")


def parts_of(exposed: str, outputs: tuple[str, ...], more: tuple[tuple[str, str], ...]) -> list[Given]:
    """Exposed files, each with the outputs of the same run."""
    return [(exposed, outputs), *((file, (given,)) for file, given in more)]


@verb("collect", "exposed.pte outputs.npz -o dump")
@click.argument("exposed")
@click.argument("outputs", nargs=-1, required=True)
@folder_option("Where to write the dump")
@click.option(
    "--more",
    nargs=2,
    multiple=True,
    metavar="EXPOSED OUTPUTS",
    help="Another part that expose --chunk wrote, and its outputs of the same run.",
)
@target_option("the one that EXPOSED was made for, else desktop")
def command(
    exposed: str,
    outputs: tuple[str, ...],
    output: str,
    more: tuple[tuple[str, str], ...],
    family: TargetRow | None,
) -> Result:
    """Read the OUTPUTS of a run of EXPOSED, a file that refsim expose wrote, and write its values as a dump.

    OUTPUTS is an .npz with out0, out1...; a folder of .npy or raw files; the BASE of executor_runner's BASE-0.bin; or
    the files themselves, in order.
    """
    parts = read(parts_of(exposed, outputs, more))
    known, why = family_of(parts, family)
    row = known or named(DEFAULT)
    collected = collect(parts, row.target())
    write(output, collected)
    wrote(output, said=True)
    infos = list(collected.infos.values())
    content = {"file": exposed, "target": row.name, "dump": output, "values": infos}
    said = f"{counted(len(infos), 'value')} in {output}, layouts as on {row.name}{f', {why}' if why else ''}"
    return Result(content, partial(_show, collected, said))


def _show(collected: Collected, said: str) -> None:
    rows = []
    for info in collected.infos.values():
        held = collected.held[info["value"]]
        layout = (info["layout"] or info["dtype"]).removeprefix("PACKED_INT8_").removeprefix("TENSOR_")
        nbytes = held.desc.nbytes if hasattr(held, "desc") else held.nbytes
        shape = shape_text(info["shape"])
        rows.append((info["value"], info["output"], info.get("operator") or "(input)", shape, layout, nbytes))
    print_table(COLUMNS, rows, drop=("output", "bytes", "shape"))
    say(said)

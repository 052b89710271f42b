"""Measure the numerics of a Vulkan device, and save them as a profile; or write programs that measure any device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import click

from refsim.cli._device import probe
from refsim.cli.kit.options import folder_option, output_option
from refsim.cli.kit.text import wrote
from refsim.cli.kit.verb import verb
from refsim.core.errors import ParameterError
from refsim.core.plain import plain
from refsim.core.qmath import Profile
from refsim.core.result import Command, FileSize, Result, Table, Text
from refsim.device import probe as asked
from refsim.device.measured import MeasuredDevice
from refsim.device.outputs import IN_FOLDER
from refsim.formats import profiles
from refsim.formats.cases import write_folder


class Device(click.ParamType):
    """A device by its number, or as other verbs name it: gpu:NUMBER."""

    name = "device"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = str(value).removeprefix("gpu:")
        if not (number.isascii() and number.isdecimal()) or len(number) > 9:
            self.fail(f"{value!r} is no whole number from 0 on, and no gpu:NUMBER", param, ctx)
        return int(number)


NO_PROFILE = "Null if no profile describes the device."


@dataclass(frozen=True)
class Probed(Result):
    """How a device here computes."""

    profile: Annotated[Profile | None, NO_PROFILE]
    measured: Annotated[MeasuredDevice, "Every answer."]

    def text(self) -> Text:
        yield f"{self.measured.device} ({self.measured.driver})"
        yield Table(("question", "answer"), self.measured.rows())
        yield from (f"no profile has this: {remark}" for remark in self.measured.remarks)
        yield f"numerics profile: {self.profile.name if self.profile else 'none describes this device'}"


@dataclass(frozen=True)
class ProbedElsewhere(Result):
    """With --outputs: how a device computes that ran the programs."""

    profile: Annotated[Profile | None, NO_PROFILE]
    measured: Annotated[asked.Answers, "Every answer."]

    def text(self) -> Text:
        found = self.measured
        yield Table(("question", "answer", "decides"), found.rows())
        yield from (f"no profile has this: {line}" for line in found.remarks)
        yield from (f"unknown: {line}" for line in found.unknown)
        why = "not everything is known" if found.unknown else "none has these answers"
        yield f"numerics profile: {self.profile.name if self.profile else f'none; {why}'}"


@dataclass(frozen=True)
class ProbePrograms(Result):
    """With --pte: programs that measure any device."""

    folder: Annotated[str, "The folder that was written."]
    files: Annotated[Sequence[FileSize], "The programs."]

    def text(self) -> Text:
        yield Table.of(FileSize, self.files)
        yield f"run each file in {self.folder} without inputs, and save all outputs in one folder"
        yield Command("then: refsim probe --outputs OUTPUTS -o profile.json")
        yield f"OUTPUTS: {IN_FOLDER}"


@verb("probe", "0 -o profile.json")
@click.argument("device", type=Device(), required=False)
@folder_option(
    "Instead: write programs that any ExecuTorch runtime runs without inputs",
    "--pte",
    "folder",
    required=False,
)
@click.option(
    "--outputs",
    metavar="OUTPUTS",
    help=f"Instead: read the outputs of those programs: {IN_FOLDER}.",
)
@click.option(
    "--name",
    default="measured",
    show_default=True,
    help="With --outputs: what the profile is called, if none that has a name here computes so.",
)
@output_option("the profile and what was measured, as JSON", required=False)
def command(
    device: int | None, folder: str | None, outputs: str | None, name: str, output: str | None
) -> Probed | ProbedElsewhere | ProbePrograms:
    """Measure how DEVICE handles rounding, fused operations, denormals, division, conversion and packed dot products.

    DEVICE is a number of `refsim devices`, also as gpu:NUMBER; 0 by default. The status is 3 if there is no such
    device. With --pte and --outputs a device that refsim cannot reach is measured: by its own ExecuTorch runtime, on
    programs without inputs.
    """
    if sum(given is not None for given in (device, folder, outputs)) > 1:
        raise click.UsageError("DEVICE, --pte and --outputs exclude each other")
    if folder is not None:
        if output is not None:
            raise click.UsageError("--output is for what was measured: it goes with --outputs")
        written = asked.files()
        write_folder(folder, written)
        wrote(folder, said=True)
        return ProbePrograms(folder, [FileSize(file, len(data)) for file, data in written.items()])
    found: Probed | ProbedElsewhere
    if outputs is not None:
        if name in profiles.families():
            need = "another: this name stands for what was measured elsewhere"
            raise ParameterError("--name", "is taken", got=repr(name), need=need)
        answers = asked.read(outputs)
        found = ProbedElsewhere(answers.profile(name), answers)
    else:
        measured = probe(device or 0)
        found = Probed(measured.to_profile(), measured)
    if output is not None:
        profiles.write(output, found.profile, measured=plain(found.measured))
        wrote(output)
    return found

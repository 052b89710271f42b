"""Measure the numerics of a Vulkan device, and save them as a profile; or write programs that measure any device."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from refsim.cli._device import probe
from refsim.cli.kit.options import folder_option, output_option
from refsim.cli.kit.text import print_table, say, wrote
from refsim.cli.kit.verb import Result, verb
from refsim.core.errors import ParameterError
from refsim.core.qmath import Profile
from refsim.device.outputs import IN_FOLDER
from refsim.formats import profiles


class Device(click.ParamType):
    """A device by its number, or as other verbs name it: gpu:NUMBER."""

    name = "device"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = str(value).removeprefix("gpu:")
        if not (number.isascii() and number.isdecimal()) or len(number) > 9:
            self.fail(f"{value!r} is no whole number from 0 on, and no gpu:NUMBER", param, ctx)
        return int(number)


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
) -> Result:
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
        return _write(folder)
    if outputs is not None:
        return _read(outputs, name, output)
    findings = probe(device or 0)
    profile = findings.to_profile()
    if output:
        profiles.write(output, profile, measured=findings.as_json())
        wrote(output)
    return Result(_content(profile, findings.as_json()), partial(_show_findings, findings, profile))


def _show_findings(findings: Any, profile: Profile | None) -> None:
    say(f"{findings.device} ({findings.driver})")
    print_table(("question", "answer"), findings.rows())
    for remark in findings.remarks():
        say(f"no profile has this: {remark}")
    say(f"numerics profile: {profile.name if profile else 'none describes this device'}")


def _content(profile: Profile | None, measured: dict[str, object]) -> dict[str, object]:
    content = profiles.as_json(profile, measured=measured)
    return {key: value for key, value in content.items() if key != "schema"}


def _write(folder: str) -> Result:
    """The programs, as a new folder."""
    from refsim.device.probe import files
    from refsim.formats.cases import write_folder

    written = files()
    write_folder(folder, written)
    wrote(folder, said=True)
    rows = [{"file": file, "bytes": len(data)} for file, data in written.items()]
    return Result({"folder": folder, "files": rows}, partial(_show_files, folder, rows))


def _show_files(folder: str, rows: list[dict[str, Any]]) -> None:
    print_table(("file", "bytes"), [tuple(row.values()) for row in rows])
    say(f"run each file in {folder} without inputs, and save all outputs in one folder")
    say("then: refsim probe --outputs OUTPUTS -o profile.json", command=True)
    say(f"OUTPUTS: {IN_FOLDER}")


def _read(outputs: str, name: str, output: str | None) -> Result:
    """The answers in a folder of outputs."""
    from refsim.device.probe import read

    if name in profiles.families():
        need = "another: this name stands for what was measured elsewhere"
        raise ParameterError("--name", "is taken", got=repr(name), need=need)
    found = read(outputs)
    profile, measured = found.profile(name), found.as_json()
    if output is not None:
        profiles.write(output, profile, measured=measured)
        wrote(output)
    return Result(_content(profile, measured), partial(_show_outputs, found, profile))


def _show_outputs(found: Any, profile: Profile | None) -> None:
    print_table(("question", "answer", "decides"), found.rows())
    for line in found.remarks():
        say(f"no profile has this: {line}")
    for line in found.unknown():
        say(f"unknown: {line}")
    if profile is not None:
        say(f"numerics profile: {profile.name}")
    else:
        say(
            "numerics profile: none; "
            + ("not everything is known" if found.unknown() else "none has these answers")
        )

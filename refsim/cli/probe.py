"""Measure the numerics of a Vulkan device, and save them as a profile."""

from __future__ import annotations

import click

from refsim.cli._device import probe
from refsim.cli._main import SAME
from refsim.cli._options import json_option, output_option
from refsim.cli._output import print_json, print_table, say
from refsim.formats import profiles


@click.command("probe")
@click.argument("device", type=click.IntRange(0), default=0)
@output_option("the profile and what was measured, as JSON", required=False)
@json_option
def command(device: int, output: str | None, as_json: bool) -> int:
    """Measure how DEVICE handles rounding, fused operations, denormals, division, conversion and packed dot products.

    DEVICE is a number of `refsim devices`, 0 by default. The status is 3 if there is no such device.
    """
    findings = probe(device)
    profile = findings.to_profile()
    content = profiles.as_json(profile, measured=findings.as_json())
    if output:
        profiles.write(output, profile, measured=findings.as_json())
    if as_json:
        print_json("probe", {key: value for key, value in content.items() if key != "schema"})
        return SAME
    say(f"{findings.device} ({findings.driver})")
    print_table(("question", "answer"), findings.rows())
    for remark in findings.remarks():
        say(f"no profile has this: {remark}")
    say(f"numerics profile: {profile.name if profile else 'none describes this device'}")
    return SAME

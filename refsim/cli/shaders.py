"""Check a folder of your own SPIR-V modules: the first wrong byte, its cause, and again whenever you save."""

from __future__ import annotations

import click

from refsim.cli import _shaders as text
from refsim.cli._buffers import html_option, limit_option, write_html
from refsim.cli._main import DIFFERENT, SAME
from refsim.cli._options import json_option
from refsim.cli._output import print_json, progress
from refsim.cli._shaders_build import opened
from refsim.cli._shaders_watch import Watch
from refsim.golden.verification import CASES


@click.command("shaders")
@click.argument("folder")
@click.argument("operators", nargs=-1)
@click.option("--watch", is_flag=True, help="Run again whenever a module changes; Ctrl-C ends it.")
@click.option(
    "--case",
    "pattern",
    metavar="FILTER",
    default="",
    help="Only cases whose names match: OPERATOR/00*, upstream/*.",
)
@click.option("--all", "everything", is_flag=True, help="Go on after a wrong case, and count.")
@click.option(
    "--count",
    type=click.IntRange(0, 2000),
    default=CASES,
    show_default=True,
    help="Cases of the corpus per operator, beside the recordings.",
)
@click.option(
    "--profile",
    "profile_name",
    metavar="NAME",
    help="The numerics that the device has: canonical, lavapipe, nvidia or a file.",
)
@click.option(
    "--device", type=click.IntRange(0), default=0, show_default=True, help="Number of the Vulkan device."
)
@click.option(
    "--variant",
    type=click.Choice(("base", "fallback", "unsigned")),
    help="Take this variant of a kernel where there is one, whatever the device has.",
)
@click.option("--images", is_flag=True, help="Keep float tensors in images, for the texture3d variants.")
@limit_option
@html_option
@json_option
def command(
    folder: str,
    operators: tuple[str, ...],
    watch: bool,
    pattern: str,
    everything: bool,
    count: int,
    profile_name: str | None,
    device: int,
    variant: str | None,
    images: bool,
    limit: int,
    html: str | None,
    as_json: bool,
) -> int:
    """Run the modules in FOLDER on recordings of ET-VK and on the golden corpus, the most telling cases first.

    FOLDER holds .spv files named as ExecuTorch's build names them. Only OPERATORS are checked if any are named.
    """
    if watch and html:
        raise click.UsageError("--watch prints what it finds; --html is for a single run")
    with opened(folder, operators, count, pattern, profile_name, device, variant or "", images) as build:
        if not as_json:
            text.print_folder(build)
        if watch:
            return Watch(build, everything, limit, as_json).run()
        about = len(build.operators) * count
        with progress("cases", about) as advance:
            outcome = build.verification.run(
                build.operators, everything=everything, limit=limit, tell=lambda tried: advance()
            )
        write_html(html, outcome.wrong[0].report if outcome.wrong else None)
        if as_json:
            print_json("shaders", text.content(build, outcome))
        else:
            text.print_outcome(build, outcome, everything)
        return SAME if outcome.right and not build.broken else DIFFERENT

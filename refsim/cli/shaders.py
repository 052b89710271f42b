"""Check a folder of your own SPIR-V modules: the first wrong byte, its cause, and again whenever you save."""

from __future__ import annotations

import inspect
import os
import shlex

import click

from refsim.check.runtime import runtime
from refsim.cli._shaders import CheckedFolder
from refsim.cli._shaders_repair import Wanted
from refsim.cli._shaders_run import Asked
from refsim.cli._shaders_watch import Verdicts
from refsim.cli.kit.options import RUNTIMES, html_option, limit_option, profile_option
from refsim.cli.kit.usage import EXAMPLE
from refsim.cli.kit.verb import PROGRAM, verb
from refsim.cli.kit.written import Written
from refsim.core.qmath import Profile
from refsim.formats import kernels
from refsim.formats.module_folder import SUFFIX
from refsim.modules import CASES, SECONDS, executors, inventory


@verb("shaders", "build/shaders --watch")
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
@profile_option("the device has")
@click.option(
    "--device", type=click.IntRange(0), default=0, show_default=True, help="Number of the Vulkan device."
)
@click.option(
    "--variant",
    type=click.Choice(("base", "fallback", "unsigned")),
    help="Take this variant of a kernel where there is one, whatever the device has.",
)
@click.option(
    "--sanitize",
    is_flag=True,
    help="Also look for foreign reads, words with two writers, and bytes that depend on the order of work.",
)
@click.option(
    "--repeats",
    type=click.IntRange(0, 100_000),
    default=0,
    metavar="N",
    help="With --sanitize: run each case N times more, and compare.",
)
@click.option("--images", is_flag=True, help="Keep float tensors in images, for the texture3d variants.")
@click.option(
    "--repair", is_flag=True, help="Where a module is wrong, search for the one change that makes it right."
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 86_400),
    default=SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="With --repair: how long to search.",
)
@click.option(
    "--patch", type=Written(), metavar="FILE", help="With --repair: write the module with the first repair."
)
@click.option("--verbose", "-v", is_flag=True, help="List the modules of the folder, and what runs of them.")
@click.option(
    "--runtime",
    "release",
    metavar="NAME",
    help=f"The runtime that the modules are for: {RUNTIMES}. [default: the one that they show]",
)
@limit_option
@html_option
def command(
    folder: str,
    operators: tuple[str, ...],
    watch: bool,
    pattern: str,
    everything: bool,
    count: int,
    profile: Profile | None,
    device: int,
    variant: str | None,
    sanitize: bool,
    repeats: int,
    images: bool,
    repair: bool,
    seconds: float,
    patch: str | None,
    verbose: bool,
    release: str | None,
    limit: int,
    html: str | None,
) -> CheckedFolder | Verdicts:
    """Run the modules in FOLDER on recordings of ET-VK and on the golden corpus, the most telling cases first.

    FOLDER holds .spv files named as ExecuTorch's build names them. Only OPERATORS are checked if any are named.
    """
    if folder.endswith(SUFFIX) and os.path.isfile(folder):
        command = shlex.join([PROGRAM, "shaders", os.path.dirname(folder) or os.curdir, *operators])
        raise click.UsageError(f"{folder}: is one module, need the folder that it lies in{EXAMPLE}{command}")
    if watch and html:
        raise click.UsageError("--watch prints what it finds; --html is for a single run")
    if repeats and not sanitize:
        raise click.UsageError("--repeats counts runs of --sanitize")
    if patch and not repair:
        raise click.UsageError("--patch writes what --repair finds")
    if repair and kernels.is_wgsl(kernels.rows_of(folder)[1]):
        raise click.UsageError("--repair edits SPIR-V modules, and the folder has WGSL")
    if release is not None:
        runtime(release)  # which there is
    executor = executors.of(folder, device, variant or "", images)
    asked = Asked(
        folder,
        operators,
        count,
        pattern,
        profile,
        device,
        variant or "",
        images,
        everything,
        limit,
        sanitize,
        repeats,
        Wanted(seconds, patch or "") if repair else None,
        verbose,
        release,
    )
    if watch:
        return asked.watch(executor)
    return asked.run(executor, html)


command.help = (
    f"{inspect.cleandoc(command.help or '')}\n\nOPERATORS: {', '.join(inventory.operators())}; and those of a table in "
    f"FOLDER/{kernels.NAME}."
)

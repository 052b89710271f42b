"""Check a folder of your own SPIR-V modules: the first wrong byte, its cause, and again whenever you save."""

from __future__ import annotations

import inspect
import os
import shlex
from functools import partial

import click

from refsim.bytediff.search import allowed
from refsim.check.runtime import runtime
from refsim.cli.kit.options import (
    LIMIT,
    RUNTIMES,
    html_option,
    limit_option,
    profile_option,
    search_seconds_option,
)
from refsim.cli.kit.report import write_html
from refsim.cli.kit.text import meanwhile, not_written, wrote
from refsim.cli.kit.usage import EXAMPLE
from refsim.cli.kit.verb import PROGRAM, verb
from refsim.cli.kit.written import Written
from refsim.core import atomic_write
from refsim.core.qmath import Profile
from refsim.formats import kernels
from refsim.formats.module_folder import SUFFIX
from refsim.golden.told import ToldReport, kernel_texts
from refsim.modules import (
    CASES,
    EDITS_PER_SECOND,
    MOST_SANITIZED,
    SANITIZED,
    SECONDS,
    SLOWER,
    executors,
    inventory,
)
from refsim.modules.build import Repairing, Request, opened
from refsim.modules.result import CheckedFolder, remarks
from refsim.modules.watch import Verdicts, verified
from refsim.modules.watch import watch as watch_folder


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
    "--repair/--no-repair",
    default=None,
    help="Search for the one change that makes a wrong module right, whatever the cause, or never. "
    "[default: where no cause predicts the wrong cases]",
)
@search_seconds_option(
    None, f"How long to search for it. [default: {EDITS_PER_SECOND * 10} edits, with --repair {SECONDS:g} s]"
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
    repair: bool | None,
    seconds: float | None,
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
    behaviour = None if release is None else runtime(release).behaviour
    again = ["--limit", str(limit)] if limit != LIMIT else []
    again += ["--runtime", release] if release is not None else []
    again += [] if profile is None else ["--profile", profile.name]
    executor = executors.of(folder, device, variant or "", images)
    looked_at = 0 if not sanitize else MOST_SANITIZED if pattern else SANITIZED
    asked = Request(
        folder, operators, count, pattern, profile, device, variant or "", images, looked_at, repeats, behaviour, again,
        everything=everything, limit=limit, repair=_repairing(repair, seconds, patch), verbose=verbose, say=meanwhile,
    )  # fmt: skip
    if watch:
        return watch_folder(partial(opened, asked, executor), asked)
    found = verified(asked, executor)
    if html is not None and (wrong := found.first_wrong) is not None:
        edits = (line for one in found.repair or () for line in one.lines())
        write_html(
            ToldReport(wrong.report, None), html, [*remarks(wrong), *kernel_texts(wrong.kernel), *edits]
        )
    return found


def _repairing(repair: bool | None, seconds: float | None, patch: str | None) -> Repairing | None:
    """The search for a repair that was asked for, or that is made unasked; None for none."""
    keep = partial(_keep, patch)
    if repair is False or not (usual := seconds or (SECONDS if repair else allowed())):
        return None
    if repair or seconds:
        return Repairing(usual, bool(repair), keep=keep)
    return Repairing(SLOWER * usual, False, int(EDITS_PER_SECOND * usual), keep)


def _keep(patch: str | None, spirv: bytes | None) -> None:
    """Write the module with the first repair, if it was asked for."""
    if patch and spirv is not None:
        atomic_write.write(patch, spirv)
        wrote(patch)
    elif patch:
        not_written(patch, "there is no repair")


command.help = (
    f"{inspect.cleandoc(command.help or '')}\n\nOPERATORS: {', '.join(inventory.operators())}; and those of a table in "
    f"FOLDER/{kernels.NAME}."
)

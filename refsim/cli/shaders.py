"""Check a folder of your own SPIR-V modules: the first wrong byte, its cause, and again whenever you save."""

from __future__ import annotations

import inspect
import os
import shlex
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import click

from refsim.cli import _shaders as text
from refsim.cli._buffers import LIMIT, html_option, limit_option, write_html
from refsim.cli._main import DIFFERENT, SAME
from refsim.cli._options import json_option, profile_option
from refsim.cli._output import print_json, say
from refsim.cli._progress import progress
from refsim.cli._shaders_build import Build, opened
from refsim.cli._shaders_watch import watch as watching
from refsim.cli._usage import EXAMPLE
from refsim.cli._verb import PROGRAM, verb
from refsim.core.errors import IncompleteError
from refsim.core.qmath import Profile
from refsim.formats import kernels
from refsim.formats.module_folder import SUFFIX
from refsim.modules import inventory
from refsim.modules.verification import CASES, SANITIZED, Outcome


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
    profile: Profile | None,
    device: int,
    variant: str | None,
    sanitize: bool,
    repeats: int,
    images: bool,
    limit: int,
    html: str | None,
    as_json: bool,
) -> int:
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
    sanitized = 0 if not sanitize else MOST_SANITIZED if pattern else SANITIZED
    asked = _Asked(folder, operators, count, pattern, profile, device, everything, limit, sanitized, repeats)
    if watch:
        return watching(lambda: asked.opened(variant or "", images), folder, everything, limit, as_json)
    with asked.opened(variant or "", images) as build:
        if not as_json:
            text.print_folder(build, bool(variant or images))
        found = [(build, asked.run(build))]
        further = [] if variant or images else build.others()
    if not as_json:
        text.print_outcome(*found[0], everything)
    for other, in_images, which in further:
        if found[-1][1].right or everything:
            with replace(asked, operators=tuple(which), count=count // 2).opened(
                other, in_images, False
            ) as build:
                found.append((build, asked.run(build)))
            if not as_json:
                say("")
                say(f"the same with {build.executor_name}")
                text.print_outcome(*found[-1], everything)
    if not any(outcome.cases for _, outcome in found) and not found[0][0].broken:
        raise IncompleteError(folder, "no case ran", got=text.nothing(found[0][0]), need="at least one case")
    wrong = next(((build, one) for build, outcome in found for one in outcome.wrong), None)
    if html is not None and wrong is not None:
        write_html(html, wrong[1].report, [line for line, _ in text.telling(*wrong)])
    same = all(outcome.right for _, outcome in found) and not found[0][0].broken
    if as_json:
        first, *rest = [text.content(build, outcome) for build, outcome in found]
        print_json("shaders", {**first, "variants": [_brief(row) for row in rest], "same": same})
    return SAME if same else DIFFERENT


#: Cases of an operator that are looked at if a pattern chooses them: all.
MOST_SANITIZED = 1 << 20
#: What the JSON of a further run repeats of the first one's.
_REPEATED = ("folder", "device", "profiles", "modules", "unknown")


command.help = (
    f"{inspect.cleandoc(command.help or '')}\n\nOPERATORS: {', '.join(inventory.operators())}; and those of a table in "
    f"FOLDER/{kernels.NAME}."
)


def _brief(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key not in _REPEATED}


@dataclass(frozen=True)
class _Asked:
    """What the command line asks for, whichever variant runs."""

    folder: str
    operators: tuple[str, ...]
    count: int
    pattern: str
    profile: Profile | None
    device: int
    everything: bool
    limit: int
    sanitized: int
    repeats: int

    def opened(self, variant: str, images: bool, recorded: bool = True) -> AbstractContextManager[Build]:
        return opened(
            self.folder, self.operators, self.count, self.pattern, self.profile, self.device, variant, images, recorded,
            self.sanitized, self.repeats, self._again,
        )  # fmt: skip

    @property
    def _again(self) -> list[str]:
        """What a rerun of one case needs besides, so that it says the same."""
        words = ["--limit", str(self.limit)] if self.limit != LIMIT else []
        return words if self.profile is None else [*words, "--profile", self.profile.name]

    def run(self, build: Build) -> Outcome:
        with progress("cases") as advance:  # how many there are shows only when all are drawn
            return build.verification.run(
                build.operators, everything=self.everything, limit=self.limit, tell=lambda tried: advance()
            )

"""A folder of modules verified once, for each variant of its kernels."""

from __future__ import annotations

import time
from dataclasses import replace

from refsim.core.doing import progress
from refsim.core.errors import IncompleteError
from refsim.exec.isolated import IsolatedExecutor
from refsim.modules.build import Build, Request, opened
from refsim.modules.repaired import repaired
from refsim.modules.result import (
    CheckedFolder,
    FolderVerdict,
    facts,
    first_word,
    folder_text,
    modules_text,
    nothing,
    so_far,
)
from refsim.modules.trial import Tried
from refsim.modules.verification import FIRST, FolderOutcome


def verified(request: Request, executor: IsolatedExecutor) -> CheckedFolder:
    """Verify the modules of a folder once. ``executor`` began to open."""
    one = bool(request.variant or request.images)
    with opened(request, executor) as build:
        request.say(folder_text(build))
        outcome = _run(build)
        repairs = repaired(build, outcome)
    found = [(build, outcome)]
    further = build.others() if not one and (outcome.right or request.everything) else []
    for variant, images, operators in further:
        if found[-1][1].right or request.everything:
            found.append(_further(request, variant, images, operators))
    if not any(outcome.cases for _, outcome in found) and not build.broken:
        raise IncompleteError(request.folder, "no case ran", got=nothing(build), need="at least one case")
    first, *others = [FolderVerdict.of(*each) for each in found]
    return CheckedFolder(
        **facts(build, first), repair=repairs, variants=others,
        everything=request.everything, listed=list(modules_text(build, one, request.verbose)),
    )  # fmt: skip


def _further(
    request: Request, variant: str, images: bool, operators: list[str]
) -> tuple[Build, FolderOutcome]:
    """The same operators on other modules, with half as many cases and no recordings."""
    other = replace(request, variant=variant, images=images, operators=operators, count=request.count // 2)
    with opened(other, recorded=False) as build:
        return build, _run(build)


def _run(build: Build) -> FolderOutcome:
    """All cases, stage by stage; a word is said as soon as there is one."""
    request, begin, outcome = build.request, time.perf_counter(), FolderOutcome()

    def found(tried: Tried) -> None:
        if len(outcome.bad) == 1:
            request.say([first_word(tried, time.perf_counter() - begin)])

    with progress("cases") as advance:  # how many there are shows only when all are drawn
        for stage in build.stages():
            build.verification.run(
                stage.operators, everything=request.everything, skip=stage.skip, most=stage.most,
                limit=request.limit, tell=lambda tried: advance(), found=found, before=outcome,
            )  # fmt: skip
            if not outcome.right and not request.everything:
                break
            if stage.name == FIRST and outcome.right:
                request.say([so_far(stage.operators, outcome, time.perf_counter() - begin)])
    return outcome

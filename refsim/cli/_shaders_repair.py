"""`refsim shaders --repair`: search for the change that makes a wrong module right, and say which it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from refsim.cli import _device
from refsim.cli._shaders_build import Build
from refsim.cli.kit.progress import progress
from refsim.cli.kit.text import not_written, say, wrote
from refsim.core import atomic_write
from refsim.formats.module_folder import SUFFIX
from refsim.golden.telling import TellingCase
from refsim.modules import SECONDS
from refsim.modules.repair import report
from refsim.modules.repair.search import PATIENCE_S, Search, Searched, copied
from refsim.modules.verification import FolderOutcome


@dataclass(frozen=True)
class Wanted:
    """What is asked for: how long a search may take, and where the repaired module goes, if anywhere."""

    seconds: float = SECONDS
    patch: str = ""


@dataclass(frozen=True)
class Found:
    """A search, and what the modules never read of what their host gives them."""

    searched: Searched
    unread: dict[str, list[str]]


def repaired(
    build: Build, outcome: FolderOutcome, wanted: Wanted, interrupted: Callable[[], bool] = lambda: False
) -> list[Found]:
    """Search for a repair of each operator that is wrong in some case; the first repair of all is written."""
    ran = [one for one in outcome.failed if one.actual is not None]
    wrong = {one.candidate.op: one.candidate for one in (*ran, *(row.tried for row in outcome.wrong))}
    found = [_searched(build, case, wanted, interrupted) for case in wrong.values()]
    first = next((one for each in found for one in each.searched.repairs), None)
    if wanted.patch and first is not None:
        atomic_write.write(wanted.patch, first.spirv)
        wrote(wanted.patch)
    elif wanted.patch:
        not_written(wanted.patch, "there is no repair")
    return found


def _searched(build: Build, case: TellingCase, wanted: Wanted, interrupted: Callable[[], bool]) -> Found:
    trial = build.verification.trial
    steps = build.steps(case.bound.call)
    unread = {
        step.shader: list(report.unread(build.modules[step.shader], step))
        for step in steps
        if step.shader in build.modules
    }
    with copied(build.path, build.modules) as folder, progress("edits") as advance:
        features = build.features
        executor = _device.modules(folder, build.device.index, features.variant, features.float_images)
        executor.timeout_s = PATIENCE_S
        try:
            search = Search(
                replace(trial, executor=executor), folder, build.modules, build.steps,
                [one for one in build.verification.every(case.op) if build.takes(one.bound.call)],
                wanted.seconds, advance, interrupted,
            )  # fmt: skip
            return Found(search.run(case), unread)
        finally:
            executor.close()


def lines(found: Found) -> Iterator[str]:
    """What a search found, line by line."""
    searched = found.searched
    for number, one in enumerate(searched.repairs):
        yield f"{'or' if number else 'repair'}: {report.sentence(one)}"
        if report.line(one) is None:
            yield from (f"    {row}" for row in report.around(one))
        elif report.source(one):
            yield f"    {report.source(one)}"
    if not searched.repairs:
        yield f"no repair: {report.nothing(searched)}"
        for one in searched.partial:
            yield f"  not it: {report.sentence(one)}"
        for module, facts in found.unread.items():
            yield from (f"  {module}{SUFFIX} {fact}" for fact in facts)


def print_found(found: list[Found]) -> None:
    for one in found:
        for line in lines(one):
            say(line)


def content(found: list[Found]) -> list[dict[str, Any]]:
    return [report.as_json(one.searched, one.unread) for one in found]

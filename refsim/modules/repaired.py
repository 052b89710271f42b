"""Search for the change that makes a wrong module right, and say which it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from refsim.core.doing import progress
from refsim.formats.module_folder import SUFFIX
from refsim.golden.telling import TellingCase
from refsim.modules import executors
from refsim.modules.build import Build, Repairing
from refsim.modules.repair import report
from refsim.modules.repair.report import disassembled
from refsim.modules.repair.search import PATIENCE_S, QUICK, Repair, Search, Searched, copied
from refsim.modules.verification import FolderOutcome

#: So many of the named causes say which kinds of edits are tried first.
MOST_CAUSES = 2


@dataclass(frozen=True)
class FoundRepair:
    """An edit of a module."""

    module: Annotated[str, "Name of the module."]
    place: Annotated[str | None, "File and line; null without line numbers."]
    source: Annotated[str, "The text of that line."]
    change: Annotated[str, "The edit, in words."]
    instruction: Annotated[str, "The instruction that is edited."]
    copies: Annotated[int, "How many copies of it are edited."]
    cases: Annotated[int, "Cases that are right with it."]
    wrong: Annotated[str | None, "A case that is not; null if all are right."]

    @classmethod
    def of(cls, one: Repair) -> FoundRepair:
        place = report.line(one)
        instruction = disassembled(one.code, one.edit.changes[0].site)
        about = (
            one.module,
            None if place is None else str(place),
            report.source(one),
            one.edit.said,
            instruction,
        )
        return cls(*about, len(one.edit.changes), one.right, one.wrong)


@dataclass(frozen=True)
class RepairSearch:
    """A search for a repair of one operator."""

    operator: Annotated[str, "Name of the operator."]
    witness: Annotated[str, "The case that each edit was tried on."]
    modules: Annotated[Sequence[str], "The modules that were edited."]
    repairs: Annotated[Sequence[FoundRepair], "Edits with which all cases are right."]
    partial: Annotated[
        Sequence[FoundRepair], "Edits with which all witnesses are right, and some other case is not."
    ]
    tried: Annotated[int, "How many edits were tried."]
    edits: Annotated[int, "How many edits there are."]
    seconds: Annotated[float, "How long it took."]
    unread: Annotated[Mapping[str, Sequence[str]], "By module: what it never uses of what its host gives it."]
    searched: Searched

    @classmethod
    def of(cls, found: Searched, unread: Mapping[str, Sequence[str]]) -> RepairSearch:
        repairs, partial = (list(map(FoundRepair.of, rows)) for rows in (found.repairs, found.partial))
        counts = (found.tried, found.edits, round(found.seconds, 3))
        return cls(found.operator, found.witness, found.modules, repairs, partial, *counts, unread, found)

    def lines(self) -> Iterator[str]:
        """What the search found, line by line."""
        for number, one in enumerate(self.searched.repairs):
            yield f"{'or' if number else 'repair'}: {report.sentence(one)}"
            if report.line(one) is None:
                yield from (f"    {row}" for row in report.around(one))
            elif report.source(one):
                yield f"    {report.source(one)}"
        if not self.repairs:
            yield f"no repair: {report.nothing(self.searched)}"
            yield from (f"  not it: {report.sentence(one)}" for one in self.searched.partial)
            for module, facts in self.unread.items():
                yield from (f"  {module}{SUFFIX} {fact}" for fact in facts)


def repaired(
    build: Build, outcome: FolderOutcome, interrupted: Callable[[], bool] = lambda: False
) -> list[RepairSearch] | None:
    """Search for a repair of each operator that is wrong in some case; the first repair of all is kept.

    None where nobody asked for one.
    """
    if (wanted := build.request.repair) is None:
        return None
    ran = [one for one in outcome.failed if one.actual is not None]
    wrong = {one.candidate.op: one.candidate for one in (*ran, *(row.tried for row in outcome.wrong))}
    causes = {
        row.tried.candidate.op: [cause.name for cause in row.report.causes if not cause.weak]
        for row in outcome.wrong
    }
    found = [
        _searched(build, case, wanted, interrupted, causes.get(op, [])[:MOST_CAUSES])
        for op, case in wrong.items()
    ]
    first = next((one for each in found for one in each.searched.repairs), None)
    wanted.keep(None if first is None else first.spirv)
    return found


def _searched(
    build: Build, case: TellingCase, wanted: Repairing, interrupted: Callable[[], bool], causes: Sequence[str]
) -> RepairSearch:
    trial = build.verification.trial
    steps = build.steps(case.bound.call)
    unread = {
        step.shader: list(report.unread(build.modules[step.shader], step))
        for step in steps
        if step.shader in build.modules
    }
    with copied(build.path, build.modules) as folder, progress("edits") as advance:
        features = build.features
        executor = executors.of(folder, build.device.index, features.variant, features.float_images, QUICK)
        executor.timeout_s = PATIENCE_S
        try:
            search = Search(
                replace(trial, executor=executor), folder, build.modules, build.steps,
                [one for one in build.verification.every(case.op) if build.takes(one.bound.call)],
                wanted.seconds, advance, interrupted, causes,
            )  # fmt: skip
            return RepairSearch.of(search.run(case), unread)
        finally:
            executor.close()

"""What a folder's modules gave, as values, and their text: the verdict, the first wrong case, the folder's modules."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from refsim.bytediff import Report
from refsim.core import choices
from refsim.core.counted import counted
from refsim.core.meanings import CaseName, FolderName, ModuleName, OwnKind, OwnName, Seconds
from refsim.core.plain import FLAT
from refsim.core.result import MOST_SHOWN, Command, Part, Result, Table, Text, rest
from refsim.core.status import DIFFERENT
from refsim.core.status import SAME as RIGHT
from refsim.exec.finding import KernelFinding
from refsim.golden.apart import KernelCauses
from refsim.golden.judge import SAME
from refsim.golden.told import kernels_text, report_lines, written_by
from refsim.modules import inventory
from refsim.modules.build import MOST_NAMES, Build
from refsim.modules.folder import SPIRV
from refsim.modules.repair.found import RepairSearch
from refsim.modules.trial import FAILED, OUT_OF_BOUNDS, UNSAFE, VERDICTS, Explained, Tried
from refsim.modules.verification import FolderOutcome, tally

MOST_REASONS = 3


@dataclass(frozen=True)
class FolderModule:
    """A module that refsim can run."""

    row: Annotated[inventory.ModuleRow, FLAT]
    runs: Annotated[str, "yes, later, or what runs in its place."]

    def cells(self) -> tuple[str, ...]:
        row = self.row
        return (row.operator, row.module, row.variant, row.state, self.runs)


@dataclass(frozen=True)
class UnknownModule:
    """A module that no operator has."""

    module: OwnName
    meant: Annotated[str, "The name that it may be meant to have; else empty."]


@dataclass(frozen=True)
class StoreLine:
    """A line of a module's source that stores to its output."""

    place: Annotated[str, "File and line."]
    source: Annotated[str, "Its text."]


@dataclass(frozen=True)
class WrongModuleCase:
    """The first wrong case of an operator."""

    case: CaseName
    module: Annotated[str, "The module that wrote the output."]
    lines: Annotated[Sequence[StoreLine], "The lines of its source that did."]
    first: Annotated[str, "The first wrong case of the kernel, which may have no known cause."]
    cases: Annotated[Sequence[str], "All wrong cases that were looked at."]
    distinct: Annotated[int, "How many results the device gave."]
    again: Annotated[str, "The command that runs it again."]
    findings: Annotated[Sequence[KernelFinding], "What the sanitizers found."]
    report: Annotated[Report, "The diff of the case."]

    @classmethod
    def of(cls, build: Build, found: Explained) -> WrongModuleCase:
        case = found.tried.candidate
        module = build.writer(case.bound.call)
        return cls(
            case.name, module, [StoreLine(*one) for one in build.stores(module)],
            found.first.case, found.cases, found.distinct, again(build, found.tried),
            found.tried.findings, found.report,
        )  # fmt: skip


@dataclass(frozen=True)
class ModuleNote:
    """A remark about a module."""

    kind: OwnKind
    module: ModuleName
    what: Annotated[str, "What it does."]
    cases: Annotated[int, "In how many cases."]


@dataclass(frozen=True, kw_only=True)
class FolderVerdict:
    """What one run of the modules gave."""

    executor: Annotated[str, "The name under which other verbs open the modules."]
    outcome: Annotated[FolderOutcome, FLAT]
    seconds: Seconds
    wrong: Annotated[Sequence[WrongModuleCase], "The first wrong case of each operator that was explained."]
    causes: Annotated[Sequence[KernelCauses], "What is wrong with each kernel."]
    notes: Annotated[Sequence[ModuleNote], "Remarks."]
    bad: Annotated[Sequence[str], "All cases that are wrong, failed or unsafe."]
    same: Annotated[bool, "Whether all is right, and something ran."]
    build: Build

    @classmethod
    def of(cls, build: Build, outcome: FolderOutcome, seconds: float | None = None) -> FolderVerdict:
        return cls(
            executor=build.executor.name, outcome=outcome,
            seconds=round(outcome.seconds if seconds is None else seconds, 3),
            wrong=[WrongModuleCase.of(build, found) for found in outcome.wrong],
            causes=[found.kernel for found in outcome.wrong],
            notes=[ModuleNote(*key, count) for key, count in outcome.notes.items()],
            bad=[row.case for row in outcome.bad],
            same=outcome.right and outcome.cases > 0 and not build.broken, build=build,
        )  # fmt: skip

    def text(self, everything: bool) -> Text:
        """One sentence, what is known or legal, what is wrong, and a row per operator."""
        yield sentence(self.build, self.outcome)
        yield from findings(self.build, self.outcome)
        counts = self.outcome.operators
        shown = [name for name in VERDICTS if tally(counts)[name]]
        rows = [(op, *(count[name] for name in shown)) for op, count in sorted(counts.items())]
        if rows:
            yield Table(("operator", *(f"{name} count" for name in shown)), rows)
        yield from kernels_text(self.causes)
        if everything:
            bad = self.outcome.bad
            yield from (f"{tried.verdict}: {tried.case}" for tried in bad[:MOST_SHOWN])
            yield from rest(len(bad))


@dataclass(frozen=True, kw_only=True)
class CheckedFolder(Result):
    """Modules of a build of yours."""

    folder: FolderName
    device: Annotated[str, "Name of the device."]
    profiles: Annotated[Sequence[str], "The numerics that are allowed."]
    modules: Annotated[Sequence[FolderModule], "The modules of the folder."]
    unknown: Annotated[Sequence[UnknownModule], "Modules that no operator has."]
    found: Annotated[FolderVerdict, FLAT]
    repair: Annotated[
        Sequence[RepairSearch] | None,
        "A search for each wrong operator of which no cause predicts the wrong cases, or with --repair each wrong one; "
        "else null.",
    ]
    variants: Annotated[Sequence[FolderVerdict], "Further runs with other variants. None with --watch."] = ()
    everything: bool = False
    listed: Sequence[Part] = ()

    @property
    def first_wrong(self) -> Explained | None:
        """The first case of all runs that is wrong."""
        runs = (self.found, *self.variants)
        return next((one for verdict in runs for one in verdict.outcome.wrong), None)

    @property
    def same(self) -> Annotated[bool, "Whether all is right, with the further runs."]:
        runs = [self.found, *self.variants]
        return (
            all(one.outcome.right for one in runs)
            and any(one.outcome.cases for one in runs)
            and not self.found.build.broken
        )

    @property
    def status(self) -> int:
        return RIGHT if self.same else DIFFERENT

    def text(self) -> Text:
        yield from self.found.text(self.everything)
        for one in self.repair or ():
            yield from one.lines()
        yield from repairable(self.found, [one.operator for one in self.repair or () if one.ended])
        for verdict in self.variants:
            yield ""
            yield f"the same with {verdict.executor}"
            yield from verdict.text(self.everything)
        yield from self.listed


@dataclass(frozen=True, kw_only=True)
class WatchedFolder(CheckedFolder):
    """With --watch: a verdict on what changed; one object in each line."""

    changed: Annotated[Sequence[str], "The modules that changed."]
    stage: Annotated[Literal["first", "all"], "Whether all cases have run."]
    operators_run: str
    whole: bool

    def text(self) -> Text:
        found = self.found
        yield f"  {self.operators_run}: {verdict(found.outcome, self.whole)}, {found.seconds:.3f} s"
        yield from findings(found.build, found.outcome)
        yield from kernels_text(found.causes)
        for one in self.repair or ():
            yield from one.lines()


def facts(build: Build, verdict: FolderVerdict) -> dict[str, Any]:
    """What every verdict on a folder says."""
    strangers = inventory.strangers(build.folder.names(), build.own)
    return {
        "folder": build.path, "device": build.device.name, "found": verdict,
        "profiles": [profile.name for profile in build.profiles],
        "modules": _modules(build, True),
        "unknown": [UnknownModule(*one) for one in strangers],
    }  # fmt: skip


def modules_text(build: Build, once: bool, verbose: bool) -> Text:
    """How many modules there are, or with ``verbose`` the table of them; ``once``: no further variants."""
    if verbose:
        rows = [module.cells() for module in _modules(build, once)]
        yield Table(("operator", "module", "variant", "state", "runs"), rows, drop=("variant", "state"))
        return
    states = Counter(row.state for row in build.rows)
    yield f"modules: {', '.join(f'{count} {state}' for state, count in states.items())}; -v lists them"


def folder_text(build: Build) -> Text:
    """What is odd about the folder, and what is about to run."""
    yield from (f"damaged: {row.note}" for row in build.rows if row.note)
    strangers = inventory.strangers(build.folder.names(), build.own)
    near = [row for row in strangers if row[1]]
    for name, meant in near[:MOST_NAMES]:
        yield f"unknown: {name}{build.suffix}, did you mean {meant}{build.suffix}?"
    if len(near) > MOST_NAMES:
        yield f"unknown: {choices.more(len(near) - MOST_NAMES)}"
    others = sum(not meant for _, meant in strangers)
    if others:
        yield f"{counted(others, 'other module')} of operators that refsim has no reference for"
    allowed = " or ".join(profile.name for profile in build.profiles)
    yield f"device {build.device.index}: {build.device.name}; numerics: {allowed}"


def _modules(build: Build, once: bool) -> list[FolderModule]:
    running = build.taken
    return [FolderModule(row, _runs(build, row, running, once)) for row in build.rows]


def _runs(build: Build, row: inventory.ModuleRow, running: Collection[str], once: bool) -> str:
    """Whether a module is one of those that run, and what runs instead."""
    if row.module in running:
        return "yes"
    if row.state == inventory.FOUND and not once:
        return "later"
    if row.variant == inventory.PACKS:
        return "no, refsim packs"
    taken = inventory.chosen(row.operator, build.host)
    return f"no, {taken[0]} does" if taken else "no, refsim's own does"


def called(operators: Sequence[str]) -> str:
    """Operators by name, or how many they are."""
    return ", ".join(operators) if len(operators) <= MOST_NAMES else counted(len(operators), "operator")


def first_word(tried: Tried, seconds: float) -> str:
    """One line about a bad case, before its cause is looked for."""
    name = tried.case
    if tried.verdict == UNSAFE:
        return f"{name} has the right bytes, but not for certain; {seconds:.3f} s"
    if tried.verdict == FAILED or tried.actual is None:
        return f"{name} {_failure(tried)}{tried.message}; {seconds:.3f} s"
    kind = np.int8 if tried.actual.desc.is_int8 else np.uint8
    expected, actual = (buffer.raw.view(kind) for buffer in (tried.candidate.expected, tried.actual))
    at = int(np.flatnonzero((expected != actual) & tried.candidate.bound.call.device_defined())[0])
    return f"{name} is wrong: byte {at} is {actual[at]}, not {expected[at]}; {seconds:.3f} s"


def findings(build: Build, outcome: FolderOutcome) -> Text:
    """Everything that is not the same: legal bytes, known defects, the first wrong case of an operator."""
    for names, count in outcome.legal.items():
        yield f"legal: {counted(count, 'case')} with the bytes of {names}"
    for name, row in outcome.known.items():
        yield f"known defect {name}: {counted(row.cases, 'case')}; {row.what}"
    for op, reasons in outcome.skipped.items():
        why = [f"{reason.removeprefix(f'{op}: ')} ({n})" for reason, n in reasons.most_common()]
        named = choices.first(why, MOST_REASONS, choices.IN_JSON)
        yield f"skipped: {counted(reasons.total(), 'case')} of {op}: {named}"
    for (kind, module, what), cases in outcome.notes.items():
        yield f"note: {kind}: {module} {what}, in {counted(cases, 'case')}"
    for tried in outcome.unsafe:
        yield f"{tried.case} has the right bytes, but not for certain"
        yield f"  {tried.candidate.bound.case.configuration}"
        yield from (f"  {one}" for one in tried.findings)
        yield Command(f"  again: {again(build, tried)}")
    explained = {id(found.first) for found in outcome.wrong}
    for tried in outcome.failed:
        yield f"{tried.case} {_failure(tried)}{tried.message}"
        yield f"  {tried.candidate.bound.case.configuration}"
        yield from (f"  {one}" for one in tried.findings)
        yield from written(build, tried)
        if id(tried) not in explained:
            if tried.actual is not None:
                yield "  the bytes of its output are right"
            yield Command(f"  again: {again(build, tried)}")
    for found in outcome.wrong:
        yield from remarks(found)
        yield from report_lines(found.report)
        yield from written(build, found.tried)
        if id(found.tried) not in set(map(id, outcome.failed)):  # else they have been said
            yield from (f"  {one}" for one in found.tried.findings)
        yield Command(f"  again: {again(build, found.tried)}")


def _failure(tried: Tried) -> str:
    """A case without a result did not run; one with an output, although it wrote outside of it, did."""
    return "did not run: " if tried.actual is None else "ran, but: "


def remarks(found: Explained) -> Iterator[str]:
    """What the diff of one case does not say."""
    if found.tried is not found.first:
        name = found.report.causes[0].name
        row = next(row for row in found.kernel.causes if row.name == name)
        yield f"no known cause fits {found.first.case}; one fits {row.fit} of {row.of} wrong cases of the kernel:"


def written(build: Build, tried: Tried) -> Iterator[str]:
    """The module that wrote the output, and the lines of its source that did."""
    module = build.writer(tried.candidate.bound.call)
    for line in written_by(module, build.stores(module), build.suffix):
        yield f"  {line}"


def again(build: Build, tried: Tried) -> str:
    """The command that runs a case again, on the same modules, and says the same of it."""
    more = ["--sanitize"] if tried.findings else []
    words = ["refsim", "shaders", build.path, tried.candidate.op, "--case", tried.case]
    return shlex.join([*words, *build.options, *more])


def repairable(found: FolderVerdict, searched: Collection[str]) -> Text:
    """The command that searches each wrong module for the change that makes it right, if it is one of SPIR-V."""
    build = found.build
    operators = dict.fromkeys(wrong.tried.candidate.op for wrong in found.outcome.wrong)
    asked = build.request.repair is not None and build.request.repair.always
    for op in operators if build.folder.kind is SPIRV and not asked else ():
        if op in searched:
            continue
        words = shlex.join(["refsim", "shaders", build.path, op, "--repair", *build.options])
        yield Command(f"search {op} for the change that makes it right: {words}")


def sentence(build: Build, outcome: FolderOutcome) -> str:
    """One line: right or wrong, how many cases, how long."""
    count = tally(outcome.operators)
    took = f"{counted(outcome.cases, 'case')} of {counted(len(outcome.operators), 'operator')}, {outcome.seconds:.3f} s"
    if outcome.right and build.broken:
        return f"wrong: {', '.join(f'{name}{build.suffix}' for name in build.broken)} cannot be read; {took}"
    if not outcome.cases:
        return f"nothing ran: {nothing(build)}"
    if outcome.right:
        more = [f"{count[name]} {name}" for name in VERDICTS if count[name]]
        more += [f"{outcome.sanitized} sanitized"] if outcome.sanitized else []
        return f"right: {', '.join(more)}; {took}"
    first = outcome.bad[0]
    outside = first.message.startswith(OUT_OF_BOUNDS)
    failed = "writes out of bounds" if outside else "did not run" if first.actual is None else "is wrong"
    what = {FAILED: failed, UNSAFE: "is unsafe"}.get(first.verdict, "is wrong")
    rest = f", {len(outcome.bad)} in all" if len(outcome.bad) > 1 else ""
    return f"wrong: {first.case} {what}{rest}; {took}"


def nothing(build: Build) -> str:
    """Why no case of the operators ran."""
    pattern = build.verification.pattern
    fits = f" that {pattern!r} fits" if pattern else ""
    return f"no case of {choices.listed(build.operators)}{fits} can run on these modules"


def verdict(outcome: FolderOutcome, whole: bool, operators: Collection[str] | None = None) -> str:
    """The verdict on operators in a few words, as a line of --watch has it; ``whole``: all their cases have run."""
    count = tally({op: row for op, row in outcome.operators.items() if operators is None or op in operators})
    cases = sum(count.values())
    if outcome.failed and outcome.failed[0].actual is not None:
        return f"wrong in {outcome.failed[0].case}: {outcome.failed[0].message}"
    if outcome.wrong:
        first = outcome.wrong[0]
        causes = first.kernel.causes
        cause = str(causes[0]) if causes else "no known cause fits"
        return f"wrong in {first.tried.case}: {cause}"
    if outcome.failed:
        return f"{outcome.failed[0].case} did not run"
    if outcome.unsafe:
        return f"unsafe in {outcome.unsafe[0].case}: {outcome.unsafe[0].findings[0].kind}"
    if not cases:
        return "no case ran"
    more = [f"{count[name]} {name}" for name in VERDICTS if count[name] and name != SAME]
    return f"right{'' if whole else ' so far'}, {', '.join((counted(cases, 'case'), *more))}"

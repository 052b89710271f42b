"""One generated mutant: the corpus, then models, then tests; what became of it."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from mutants import cases, graphs, repaired, runner
from mutants.bugs import GPU
from mutants.generated import naming, own_tests, reports
from mutants.generated.change import Change
from mutants.generated.targets import AREAS, MODELS, Area, Condition, conditions, subjects
from mutants.mutant import MODEL, Mutant
from mutants.outcome import SURVIVED, Outcome
from mutants.run import missing
from mutants.tree import CHECKOUT, Failed, build, copy, execute, lacking, pytest
from refsim.bytediff import Report
from refsim.bytediff.consensus import agreed
from refsim.cli._mutated import RandomVerdict
from refsim.core.errors import DeviceError
from refsim.exec.cpu import isa
from refsim.exec.process import ProcessError
from refsim.golden import chain_rules
from refsim.golden.chain import CHAINS
from refsim.golden.rules import RULES, TELLING
from refsim.golden.rules import case as case_of
from refsim.golden.store import digest
from refsim.ops.base.binding import bind
from refsim.ops.base.case import Case
from refsim.ops.base.registry import OPS

#: What may become of one: by whom it was noticed, or why it does not count.
CORPUS, MODELS_, TESTS, LIVES, INVALID, EQUIVALENT = (
    "corpus",
    "models",
    "tests",
    "survived",
    "invalid",
    "equivalent",
)
NOTICED = (CORPUS, MODELS_, TESTS)
#: The cause that the error of a guard word names.
OUTSIDE = "write out of bounds"

#: Elements of all inputs of a case, and cases of an operator, where few operators are tried and where many are.
MOST_ELEMENTS, EACH, OF_MANY = 120_000, 400, 60
MANY = 4
#: Where there are not very many operators, so many cases of each come before the rest of any.
FEW = 12
#: Of each operator so many cases with the most output channels, on several threads.
WIDEST = 24
#: Cases on a device for what changed the emulated kernels' sources.
ELSEWHERE = 120
#: How long a repair of a shader is searched for.
REPAIR_SECONDS = 60.0
#: Seconds of processor time for a test, and for all of a row of an area's tests (`mutants.limits`).
TEST_SECONDS, TESTS_SECONDS = 240.0, 1200.0


class Verdict(RandomVerdict):
    """What became of a change. ``verdict`` is one of the words above.

    ``region`` and ``cause`` are what the diff says that is of the change's own class (`naming`).
    """

    @property
    def noticed(self) -> bool:
        return self.verdict in NOTICED

    @property
    def named(self) -> bool:
        return bool(self.cause or self.region)


def run(area: str, change: Change, tests: bool = True) -> Verdict:
    """Put the change into a copy of the sources and run what may notice it; the tests only if they are asked for.

    ProcessError if that fails twice because the checkout lacks a file: this says nothing of the change.
    """
    begin = time.monotonic()
    made = Verdict(change.id, area, str(change), LIVES)
    if change.id in equivalent():
        return replace(made, verdict=EQUIVALENT, said=equivalent()[change.id])
    lacked = ""
    for _ in range(2):  # somebody may have replaced files of the checkout meanwhile
        with tempfile.TemporaryDirectory(prefix="refsim-mutant-") as scratch:
            root = Path(scratch) / "copy"
            root.mkdir()
            found = _Trial(AREAS[area], change, root).verdict(made, tests)
        lacked = lacking(found.said)
        if not lacked:
            return replace(found, seconds=round(time.monotonic() - begin, 1))
    raise ProcessError("mutate", "failed twice for want of a file of the checkout", got=lacked, need="it")


@cache
def equivalent() -> Mapping[str, str]:
    """Ids of changes that change nothing anyone could notice, and the reason of each."""
    found: dict[str, str] = json.loads(Path(__file__).with_name("equivalent.json").read_text())
    return found


class _Trial:
    def __init__(self, area: Area, change: Change, root: Path) -> None:
        self.area, self.change, self.root = area, change, root
        self.subjects = subjects(change, area)
        self.mutant = Mutant(
            change.id,
            change.kind,
            self.subjects[0] if self.subjects else "",
            (),
            (change.edit,),
            area.executor,
        )

    def verdict(self, made: Verdict, tests: bool) -> Verdict:
        copy(self.mutant, self.root)
        shown: tuple[Callable[[Verdict], Verdict | None], ...] = (
            self._shaders if self.area.name == "shaders" else self._cases,
            self._chains,
            self._elsewhere,
            self._models,
        )
        if own_tests.only_forced(self.change.file):
            shown = (self._elsewhere,)
        for stage in (*shown, *([self._tests] if tests else [])):
            found = stage(made)
            if found is not None:
                return found
        return made

    # --- the corpus --------------------------------------------------------------------------------------

    def _shaders(self, made: Verdict) -> Verdict | None:
        """The shaders of one operator are compiled and tried first: those of all take a minute and more."""
        ordered = sorted(self.subjects, key=lambda op: len(OPS[op].variants))
        same = True
        for part in filter(None, (ordered[:1], ordered[1:])):
            stopped = self._built(part)
            if stopped:
                return replace(made, verdict=INVALID, said=stopped)
            if stopped is None:
                same = False
                most = EACH if len(part) <= MANY else OF_MANY
                found = self._corpus(made, Condition(self.area.executor), most, part)
                if found is not None:
                    return self._repaired(found)
        return replace(made, verdict=EQUIVALENT, said="the same SPIR-V") if same else None

    def _repaired(self, found: Verdict) -> Verdict:
        """With the line that `refsim shaders --repair` tells of the changed shader, where no report told the place."""
        if found.place not in (naming.ELSEWHERE, naming.UNTOLD):
            return found
        file = self.change.file.removeprefix("shaders/")
        change = replace(self.change, file=file)
        steps = bind(case_of(found.by.partition("/")[0], int(found.by[-4:]))).call.dispatches()
        for shader, variant in {(step.launch.shader, step.launch.variant) for step in steps}:
            target = repaired.Target.own(shader, variant)
            if file in target.sources():
                outcome = repaired.tried(target, change, "-O0", REPAIR_SECONDS)
                if outcome is not None and outcome.among:
                    return replace(found, place=naming.BY_REPAIR)
        return found

    def _built(self, ops: Sequence[str]) -> str | None:
        """What stopped the compilation of the shaders; "" if it gave the same modules as before, None if others."""
        names = sorted({shader for op in ops for shader in cases.shaders(op)})
        folder = self.root / "shaders" / "spirv"
        before = {path.name: path.read_bytes() for path in folder.glob("*.spv")}
        stopped = build(self.root, names, variants=True)
        if stopped:
            return stopped
        after = {path.name: path.read_bytes() for path in folder.glob("*.spv")}
        return "" if before == after else None

    def _cases(self, made: Verdict) -> Verdict | None:
        most = EACH if len(self.subjects) <= MANY else OF_MANY
        return (
            self._corpus(made, Condition(self.area.executor), most, self.subjects) if self.subjects else None
        )

    def _chains(self, made: Verdict) -> Verdict | None:
        """The chains of the corpus: a plan joins their operators, and without one they run node by node."""
        names = [f"{CHAINS}/{number:04d}" for number in range(chain_rules.COUNT)]
        for executor in self.area.chains:
            found = self._tried(made, Condition(executor), names)
            if found is not None:
                return found
        return None

    def _elsewhere(self, made: Verdict) -> Verdict | None:
        """Some cases on a device, whose grids mean nothing to emulated kernels, on several threads, and so on."""
        for condition in conditions(self.change, self.area) if self.subjects else ():
            if _lacking(condition) or (own_tests.only_forced(self.change.file) and not condition.route):
                continue
            if condition.threads > 1:
                names = [name for op in self.subjects for name in _wide(op)]
                found = self._tried(made, condition, names)
            else:
                most = max(FEW, ELSEWHERE // len(self.subjects))
                found = self._corpus(made, condition, most, self.subjects)
            if found is not None:
                return found
        return None

    def _corpus(self, made: Verdict, condition: Condition, most: int, ops: Sequence[str]) -> Verdict | None:
        orders = [_order(op, most) for op in ops]
        names = [name for order in orders for name in order[:FEW]] if len(orders) <= 2 * MANY else []
        names = list(dict.fromkeys((*names, *(name for order in orders for name in order))))
        return self._tried(made, condition, names)

    def _tried(self, made: Verdict, condition: Condition, names: Sequence[str]) -> Verdict | None:
        """Cases or chains of the corpus on an executor of the copy, until one shows the change."""
        folder = self.root.parent / "corpus"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        profile = condition.profile
        if profile:
            digests = {name: _digest_under(name, profile) for name in names}
            (folder / "digests.json").write_text(json.dumps(digests))
        message = self._run(names, condition)
        result, at = folder / "result.json", folder / "at"
        if not message and not result.exists():
            return None
        by = at.read_text() if at.exists() else "start"
        made = replace(made, verdict=CORPUS, by=by, said=message)
        found = json.loads(result.read_text()) if result.exists() else None
        kernel = naming.way(self.change, message)
        crashed = replace(made, cause=naming.cause(self.change, [message]), region=kernel)
        judged = crashed if found is None else self._judged(made, found, folder, profile)
        if condition.threads > 1 and judged.verdict == CORPUS and not judged.named and judged.by in names:
            alone = self._run([judged.by], replace(condition, threads=1))
            if not alone and not result.exists():
                judged = replace(judged, said=f"{judged.said} | {naming.ALONE}")
                judged = replace(judged, region=naming.together(self.change, judged.said))
        return judged

    def _run(self, names: Sequence[str], condition: Condition) -> str:
        """Run cases of the corpus in the copy; how the process ended, and in the folder what it found."""
        folder = self.root.parent / "corpus"
        (folder / "cases.json").write_text(json.dumps(names))
        (folder / "result.json").unlink(missing_ok=True)
        arguments = (condition.executor, str(CHECKOUT / "golden"), str(condition.threads))
        around = isa.environment(condition.isa) if condition.isa else {}
        return execute(
            self.root, folder, "corpus", *arguments, condition.profile, condition.route, more=around
        )

    def _judged(self, made: Verdict, found: dict[str, Any], folder: Path, profile: str) -> Verdict:
        name, how, said = found["case"], found["how"], found["said"]
        if how == "invalid":
            return replace(made, verdict=INVALID, by=name, said=said)
        made = replace(made, verdict=CORPUS, by=name, said=said)
        outside = [OUTSIDE] if how == "outside" else []
        if not (folder / "out").exists():
            if how == "chain" and (report := reports.of_chain(folder, name)) is not None:
                named = self._named(replace(made, said=f"{report.title}; {said}"), [report])
                return named if named.named else replace(named, region=naming.way(self.change, named.said))
            frames = [(file, function) for file, function in found.get("frames", ())]
            at = naming.error(self.change, said, frames) or naming.way(self.change, said)
            return replace(made, cause=naming.cause(self.change, [*outside, said]), region=at)
        timed = list(reports.of_cases(folder, [name, *found.get("further", ())], profile))
        if not timed:
            said = said or "another digest of the same bytes: what a seed draws changed"
            return replace(made, said=said, cause=naming.cause(self.change, outside))
        made_of = [report for report, _ in timed]
        made = replace(made, reports=tuple(round(seconds, 2) for _, seconds in timed))
        named = self._named(replace(made, said=said or f"{made_of[0].differing} differ"), made_of, outside)
        if named.named:
            return named
        asked = found["asked"]
        told = " | ".join(filter(None, (named.said, asked)))
        return replace(
            named, said=told, cause=naming.cause(self.change, [asked]), region=naming.way(self.change, said)
        )

    def _named(self, made: Verdict, found: Sequence[Report], outside: Sequence[str] = ()) -> Verdict:
        """With what the reports of one or several wrong buffers say."""
        causes = agreed(found)[: 3 - len(outside)]
        cause = naming.cause(self.change, outside) or naming.named(self.change, causes)
        return replace(
            made, causes=tuple(map(str, causes)), pattern=tuple(found[0].pattern),
            cause=cause, region=naming.region(self.change, found), place=naming.located(self.change, causes),
        )  # fmt: skip

    # --- models and tests --------------------------------------------------------------------------------

    def _models(self, made: Verdict) -> Verdict | None:
        if self.area.executor != "cpu":
            return None
        for name in MODELS:
            outcome: Outcome = graphs.run_model(replace(self.mutant, stage=MODEL, subject=name), self.root)
            invalid, frames = (self.root / "model" / name for name in ("invalid", runner.FRAMES))
            refused = invalid.read_text() if invalid.exists() else ""
            through = [(file, function) for file, function in _json(frames, [])]
            shutil.rmtree(self.root / "model")
            if refused:
                return replace(made, verdict=INVALID, by=name, said=refused)
            if outcome.how != SURVIVED:
                causes = outcome.causes
                named = [cause.partition(":")[0] for cause in causes if not cause.endswith("weak)")]
                return replace(
                    made, verdict=MODELS_, by=outcome.case, said=outcome.message, causes=causes,
                    cause=naming.cause(self.change, named or [outcome.message]),
                    pattern=outcome.pattern,
                    region=naming.value(self.change, outcome.pattern)
                    or naming.error(self.change, outcome.message, through),
                )  # fmt: skip
        return None

    def _tests(self, made: Verdict) -> Verdict | None:
        for row in own_tests.tests(self.area, self.change.file):
            failed, said = _noticed_by(self.root, row)
            if failed:
                return replace(made, verdict=TESTS, by=failed, said=said)
        return None


def _json(path: Path, otherwise: Any) -> Any:
    return json.loads(path.read_text()) if path.exists() else otherwise


def _noticed_by(root: Path, row: str) -> Failed:
    """A test of a row that fails on the sources at ``root`` and not on those of the checkout."""
    anyway: list[str] = []
    while True:
        found = pytest(root, row, TEST_SECONDS, TESTS_SECONDS, anyway)
        if not found.test or not _fails_anyway(found.test if "::" in found.test else row):
            return found
        if "::" not in found.test:  # it cannot be told which test it was
            return Failed()
        anyway.append(found.test)


@cache
def _fails_anyway(tests: str) -> bool:
    """Whether these fail on the checkout too: then they say nothing of a change."""
    return bool(pytest(CHECKOUT, tests, TEST_SECONDS, TESTS_SECONDS).test)


@cache
def _lacking(condition: Condition) -> bool:
    """Whether this machine cannot run cases under a condition."""
    if condition.executor.startswith(GPU):
        return missing(GPU) is not None
    if condition.isa:
        try:
            isa.environment(condition.isa)
        except DeviceError:
            return True
    return False


@cache
def _digest_under(name: str, profile: str) -> str:
    """The digest of a case under another profile, of which the corpus records none."""
    bound = reports.bound(name, profile)
    return digest(bound.call, bound.call.expected(bound.inputs))


@cache
def _wide(op: str) -> tuple[str, ...]:
    """Cases of an operator for several threads: those that show most, and those with the most output channels.

    What threads share are panels of output channels, where an image alone gives too few tasks.
    """
    named = _order(op, EACH)
    widest = sorted(named, key=lambda name: -_channels(case_of(op, int(name[-4:]))))
    return tuple(dict.fromkeys((*named[:FEW], *widest[:WIDEST])))


def _channels(case: Case) -> int:
    shape = next(iter(case.inputs.values()))[0]
    return int(case.features.get("out_channels", shape[-3] if len(shape) > 2 else shape[-1]))


@cache
def _order(op: str, most: int) -> tuple[str, ...]:
    """Cases of an operator, those first that show most: spread ones, those that showed a seeded bug, the others."""
    found = [name for name, _ in cases.chosen(op)]
    found += [f"{op}/{number:04d}" for number in TELLING[op]]
    found += [f"{op}/{number:04d}" for number in range(RULES[op].spread, RULES[op].count)]
    step = 7 if RULES[op].count % 7 else 11
    found += [f"{op}/{k * step % RULES[op].count:04d}" for k in range(RULES[op].count)]
    small = (
        name for name in dict.fromkeys(found) if cases.size(case_of(op, int(name[-4:]))) <= MOST_ELEMENTS
    )
    return tuple(name for _, name in zip(range(most), small, strict=False))

"""Tries the edits of the modules that a wrong case ran on, until some make all cases right, or time is over.

An edit is tried on the witness first, together with hundreds of others in one module. Those that are left run on
further cases, wrong ones and right ones, each in a module of its own; and at last on all cases of the operator.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import numpy as np

from refsim.core import atomic_write
from refsim.core.counted import counted
from refsim.core.errors import RefsimError
from refsim.core.meanings import ModuleName, OperatorName, Seconds
from refsim.exec.executor import Tries
from refsim.exec.isolated import IsolatedExecutor
from refsim.formats import kernels
from refsim.formats.module_folder import SUFFIX
from refsim.golden.telling import TellingCase
from refsim.modules import SECONDS
from refsim.modules.repair.code import Code, Site
from refsim.modules.repair.draft import Edit
from refsim.modules.repair.edits import ordered, parts
from refsim.modules.repair.schema import Given, Schema, edited, selectable, targets
from refsim.modules.repair.validator import refused
from refsim.modules.trial import ModuleTrial
from refsim.ops.base.module_call import ModuleDispatch
from refsim.ops.base.spec import Call
from refsim.spirv.lines import SourceLine
from refsim.spirv.module import Module

#: Choices in one module and edits that share them, edits that need a module each and are tried one after another, and
#: how long the device may be silent over them.
BATCH, SHARED, APART, PATIENCE_S = 250, 1500, 8, 30.0
#: So many edits that are right on the witness get a module each; more of them are tried together on further witnesses.
FEW = 3
#: What makes a driver compile fast: each of the thousand modules of a search runs for a moment. Mesa's lavapipe then
#: takes a third of the time for one; other drivers do not look at it.
QUICK = {"GALLIVM_PERF": "nopt"}
#: A witness has so many elements at least, where a wrong case has; smaller ones let wrong edits pass.
ENOUGH = 150
#: How many cases are looked at to choose witnesses, and how many right and wrong ones an edit must pass first.
LOOKED_AT, WITNESSES = 16, 3
#: How often the loops of an invocation may turn while edits are tried: so often, and this for each word of the largest
#: buffer. A right kernel stays far below, and an edit without an end costs little.
TURNS, TURNS_A_WORD = 256, 4
#: Lines with repairs after which the search ends, and repairs of one line that are told; edits, right on the failing
#: cases alone, that are told. Behind the first repair so many more edits are tried: what works around a bug
#: may come before what mends it.
MOST_LINES, MOST_REPAIRS, MOST_PARTIAL, BEHIND = 3, 3, 3, 1500


#: Instructions that are shown in front of one, and behind it, where a module has no lines.
AROUND = 3


@dataclass(frozen=True)
class FoundRepair:
    """An edit of a module."""

    module: ModuleName
    edit: Edit
    code: Code
    cases: Annotated[int, "Cases that are right with it."] = 0
    wrong: Annotated[str | None, "A case that is not; null if all are right."] = None

    @property
    def site(self) -> Site | None:
        """The first instruction that is edited; None if declarations are."""
        return self.edit.changes[0].site if self.edit.changes else None

    @property
    def line(self) -> SourceLine | None:
        """The source line; None without debug information. A branch may have none but that of its condition."""
        if self.site is None:
            return None
        operands = (
            self.code.made_at[word] for word in self.code.at(self.site).args if word in self.code.made_at
        )
        return next(filter(None, map(self.code.line, (self.site, *operands))), None)

    @property
    def at(self) -> object:
        """Where it is: a line, else an instruction, else what is declared."""
        return self.module, self.line or self.site or self.edit.said

    @property
    def place(self) -> Annotated[str | None, "File and line; null without line numbers."]:
        return None if self.line is None else str(self.line)

    @property
    def source(self) -> Annotated[str, "The text of that line."]:
        lines = self.code.lines
        return "" if self.line is None or lines is None else lines.text(self.line)

    @property
    def change(self) -> Annotated[str, "The edit, in words."]:
        return self.edit.said

    @property
    def instruction(self) -> Annotated[str, "The instruction that is edited; empty if declarations are."]:
        return "" if self.site is None else self.code.at(self.site).disassembled

    @property
    def copies(self) -> Annotated[int, "How many copies of it are edited."]:
        return len(self.edit.changes)

    @property
    def spirv(self) -> bytes:
        """The module with the edit."""
        return edited(self.code, self.edit).to_bytes()

    def __str__(self) -> str:
        """One line: where, what in place of what, and how many cases it makes right."""
        own = "declarations" if self.site is None else self.code.at(self.site).name
        place = self.line or f"{self.module}{SUFFIX}, {own}"
        if self.wrong is None:
            return f"{place}: {self.change} makes all {counted(self.cases, 'case')} right"
        return f"{place}: {self.change} is right in {counted(self.cases, 'case')}, wrong in {self.wrong}"

    def around(self) -> list[str]:
        """The instruction among its neighbours, as a disassembler writes them."""
        if self.site is None:
            return []
        function, row = self.site
        body, first = self.code.module.functions[function], max(0, row - AROUND)
        return [
            f"{'>' if at == row else ' '} {one.disassembled}"
            for at, one in enumerate(body[first : row + AROUND + 1], first)
        ]


def batches(every: Iterable[Edit]) -> Iterator[list[Edit]]:
    """Edits in their order, as many together as one module may hold."""
    batch, choices = list[Edit](), set[object]()
    for edit in every:
        choice = targets(edit) if edit.known else edit.changes
        if batch and (len(batch) == SHARED or (len(choices) == BATCH and choice not in choices)):
            yield batch
            batch, choices = [], set()
        batch.append(edit)
        choices.add(choice)
    if batch:
        yield batch


@dataclass
class RepairSearch:
    """A search for a repair of one operator, in the order in which it found them."""

    operator: OperatorName
    witness: Annotated[str, "The case that each edit was tried on."] = ""
    modules: Annotated[Sequence[str], "The modules that were edited."] = ()
    repairs: Annotated[list[FoundRepair], "Edits with which all cases are right."] = field(
        default_factory=list
    )
    partial: Annotated[
        list[FoundRepair], "Edits with which all witnesses are right, and some other case is not."
    ] = field(default_factory=list)
    tried: Annotated[int, "How many edits were tried."] = 0
    edits: Annotated[int, "How many edits there are."] = 0
    seconds: Seconds = 0.0
    unread: Annotated[
        Mapping[str, Sequence[str]], "By module: what it never uses of what its host gives it."
    ] = field(default_factory=dict)

    @property
    def per_line(self) -> Counter[object]:
        """How many repairs each line has."""
        return Counter(one.at for one in self.repairs)

    @property
    def ended(self) -> bool:
        """Whether more time would find nothing else: there is a repair, or all was tried."""
        return bool(self.repairs) or 0 < self.edits == self.tried

    def lines(self) -> Iterator[str]:
        """What the search found, line by line."""
        for number, one in enumerate(self.repairs):
            yield f"{'or' if number else 'repair'}: {one}"
            if one.line is None:
                yield from (f"    {row}" for row in one.around())
            elif one.source:
                yield f"    {one.source}"
        if not self.repairs:
            yield f"no repair: {self._nothing()}"
            yield from (f"  not it: {one}" for one in self.partial)
            for module, facts in self.unread.items():
                yield from (f"  {module}{SUFFIX} {fact}" for fact in facts)

    def _nothing(self) -> str:
        """What was tried."""
        files = ", ".join(f"{name}{SUFFIX}" for name in self.modules)
        if not self.edits:  # stopped before they were listed
            return f"no edit of {files} was tried"
        tried = f"{self.tried} of {self.edits}" if self.tried < self.edits else f"all {self.edits}"
        return f"none of the single edits that were tried, {tried} of {files}, makes all cases of {self.operator} right"


@contextmanager
def copied(path: str, modules: Mapping[str, Module]) -> Iterator[str]:
    """A copy of a folder of modules, or of the file that describes one, which a search may write to."""
    inside, file = kernels.find(path)
    with tempfile.TemporaryDirectory(prefix="refsim-repair-") as scratch:
        for name in modules:
            shutil.copyfile(Path(inside) / f"{name}{SUFFIX}", Path(scratch) / f"{name}{SUFFIX}")
        target = scratch
        if file is not None:
            shutil.copyfile(file, Path(scratch) / os.path.basename(file))
            target = (
                scratch
                if os.path.basename(file) == kernels.NAME
                else str(Path(scratch, os.path.basename(file)))
            )
        yield target


class Search:
    """The search for a repair of one operator.

    ``trial`` judges on an executor of the copy ``folder``. ``steps`` are the dispatches of a call, ``cases`` those of
    the operator. ``causes`` are names of what explains the wrong bytes. ``most`` edits are tried.
    """

    def __init__(
        self,
        trial: ModuleTrial,
        folder: str,
        modules: Mapping[str, Module],
        steps: Callable[[Call], Sequence[ModuleDispatch]],
        cases: Iterable[TellingCase],
        seconds: float = SECONDS,
        advance: Callable[..., None] = lambda count: None,
        interrupted: Callable[[], bool] = lambda: False,
        causes: Sequence[str] = (),
        most: int | None = None,
    ) -> None:
        executor = trial.executor
        assert isinstance(executor, IsolatedExecutor)
        self.trial, self.executor, self.folder = trial, executor, Path(kernels.find(folder)[0])
        self.modules, self.steps, self.cases, self.advance = modules, steps, cases, advance
        self.interrupted, self.causes, self.most = interrupted, causes, most
        self._end = time.perf_counter() + seconds
        #: How many edits are tried where one of them is a repair.
        self._last = BEHIND
        self._codes: dict[str, Code] = {}
        #: How many edits that were right on all witnesses each case has contradicted: it may contradict the next one.
        self._contradictions = Counter[str]()

    @property
    def over(self) -> bool:
        return time.perf_counter() > self._end or self.interrupted()

    def run(self, wrong: TellingCase) -> RepairSearch:
        """Search the modules that a wrong case ran on."""
        begin = time.perf_counter()
        steps = [step for step in self.steps(wrong.bound.call) if step.shader in self.modules]
        names = tuple(dict.fromkeys(step.shader for step in steps))
        found = RepairSearch(wrong.op, modules=names)
        try:
            queues = self._queues(steps)
            begun = next(queues)  # the device opens meanwhile
            first, more = self._witnesses(wrong)
            found.witness = first.name
            for queue in chain([begun], queues):
                found.edits += sum(len(batch) for _, batch in queue)
                for name, batch in queue:
                    if self._ended(found):
                        break
                    if found.repairs and found.tried >= self._last:
                        break  # what follows is less plausible than all of these
                    self._batch(found, name, batch, first, more)
                    if not found.repairs:
                        self._last = found.tried + BEHIND
                if found.repairs or self._ended(found):
                    break
        except KeyboardInterrupt:  # what was found is told
            self.executor.close()
        found.repairs.sort(key=lambda one: one.edit.rank)
        found.seconds = round(time.perf_counter() - begin, 3)
        return found

    def _ended(self, found: RepairSearch) -> bool:
        """Whether no further edit is tried."""
        tried = self.most is not None and found.tried >= self.most
        return self.over or tried or len(found.per_line) >= MOST_LINES

    # --- cases ---------------------------------------------------------------------------------------------

    def _witnesses(self, wrong: TellingCase) -> tuple[TellingCase, list[TellingCase]]:
        """The wrong case on which every edit is tried, and those that it must pass next, the wrong ones first."""
        bad, good = [wrong], list[TellingCase]()
        for case in islice(self.cases, LOOKED_AT):
            if case.name == wrong.name or case.hidden or self.over:
                continue
            tried = self.trial.run(case)
            (bad if tried.bad else good).append(case)
        bad.sort(key=lambda one: (one.elements < ENOUGH, one.elements))
        return bad[0], [*bad[1 : 1 + WITNESSES], *good[:WITNESSES]]

    def _wanted(self, case: TellingCase) -> tuple[np.ndarray, ...]:
        """The bytes that are right for a case: under each of the numerics that the device may have."""
        profiles = (*self.trial.profiles, *self.trial.own.get(case.op, ()))
        raws = [case.bound.call.under(one).expected(case.bound.inputs).raw for one in profiles]
        return tuple({raw.tobytes(): raw for raw in (case.expected.raw, *raws)}.values())

    # --- edits ---------------------------------------------------------------------------------------------

    def _queues(self, steps: Sequence[ModuleDispatch]) -> Iterator[list[tuple[str, list[Edit]]]]:
        """Batches of edits of the modules, the most plausible first; a second part of them is listed when it is due."""
        self._codes = {
            step.shader: Code(
                self.modules[step.shader], [at for at in step.spec_words if at >= step.first_spec]
            )
            for step in steps
        }
        for some in zip(*(parts(code) for code in self._codes.values()), strict=True):
            found = []
            for (name, code), listed in zip(self._codes.items(), some, strict=True):
                every = ordered(listed, self.causes)
                apart = [edit for edit in every if not selectable(code, edit)]
                found += [(name, apart[at : at + APART]) for at in range(0, len(apart), APART)]
                found += [
                    (name, batch) for batch in batches(edit for edit in every if selectable(code, edit))
                ]
            yield sorted(found, key=lambda one: one[1][0].rank)

    def _batch(
        self, found: RepairSearch, name: str, batch: list[Edit], first: TellingCase, more: list[TellingCase]
    ) -> None:
        code = self._codes[name]
        if selectable(code, batch[0]):
            survivors = self._right(name, batch, first)
            for case in more:
                if len(survivors) > FEW:
                    survivors = self._right(name, survivors, case)
        else:
            survivors = batch
        self.advance(len(batch))
        for edit in survivors:
            repair = FoundRepair(name, edit, code)
            if found.per_line[repair.at] < MOST_REPAIRS:
                self._check(found, repair, first, more)
            if self.over or len(found.per_line) >= MOST_LINES:
                break
        found.tried += len(batch)

    def _right(self, name: str, batch: list[Edit], case: TellingCase) -> list[Edit]:
        """Those of the edits with which the case is right. Where one of many is refused, or hangs, halves are tried.

        Edits that put equal values in the same place are one try.
        """
        step = next((step for step in self.steps(case.bound.call) if step.shader == name), None)
        if self.over or step is None:
            return [] if self.over else batch
        turns = TURNS + TURNS_A_WORD * max(bind.count for bind in step.binds)
        code = self._codes[name]
        schema = Schema(code, batch, Given(code, step), len(step.binds), turns)
        choices, of = np.unique(schema.words, axis=0, return_inverse=True)
        try:
            if refused(data := schema.module.to_bytes()) is not None:
                raise self.modules[name].error("is not valid with edits")
            tries = Tries(name, data, choices, case.bound.call.device_defined(), self._wanted(case))
            right = self.executor.try_edits(case.bound.call, case.bound.inputs, tries)
            return [edit for edit, number in zip(batch, of.reshape(-1), strict=True) if number in right]
        except RefsimError:
            half = len(batch) // 2
            if not half:
                return []
            return [*self._right(name, batch[:half], case), *self._right(name, batch[half:], case)]

    def _check(
        self, found: RepairSearch, repair: FoundRepair, first: TellingCase, more: list[TellingCase]
    ) -> None:
        """Run an edit that is left on further cases, then on all."""
        code = repair.spirv
        if refused(code) is not None:
            return
        with self._written(repair.module, code):
            for case in (first, *more):
                if self._contradicted(case):
                    return
            right = 1 + len(more)
            seen = {case.name for case in (first, *more)}
            for case in sorted(self.cases, key=lambda one: -self._contradictions[one.name]):
                if case.name in seen:
                    continue
                if self._contradicted(case):
                    self._contradictions[case.name] += 1
                    if len(found.partial) < MOST_PARTIAL:
                        found.partial.append(replace(repair, cases=right, wrong=case.name))
                    return
                right += 1
        found.repairs.append(replace(repair, cases=right))

    def _contradicted(self, case: TellingCase) -> bool:
        return self.trial.run(case).bad

    @contextmanager
    def _written(self, name: str, code: bytes) -> Iterator[None]:
        """The copy of the folder has other bytes for a module as long as this lasts."""
        file = self.folder / f"{name}{SUFFIX}"
        right = file.read_bytes()
        atomic_write.write(file, code)
        try:
            yield
        finally:
            atomic_write.write(file, right)

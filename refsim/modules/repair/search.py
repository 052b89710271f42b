"""Tries the edits of the modules that a wrong case ran on, until some make all cases right, or time is over.

An edit is tried on the witness first, together with hundreds of others in one module. Those that are left run on
further cases, wrong ones and right ones, each in a module of its own; and at last on all cases of the operator.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import numpy as np

from refsim.core import atomic_write
from refsim.core.errors import RefsimError
from refsim.exec.executor import Tries
from refsim.exec.isolated import IsolatedExecutor
from refsim.formats import kernels
from refsim.formats.module_folder import SUFFIX
from refsim.golden.telling import TellingCase
from refsim.modules import SECONDS
from refsim.modules.repair.code import Code
from refsim.modules.repair.draft import Edit
from refsim.modules.repair.edits import FAR, ordered, parts
from refsim.modules.repair.found import FoundRepair, RepairSearch
from refsim.modules.repair.schema import CHOICE, Given, Schema, bounded, selectable, targets
from refsim.modules.repair.validator import refused
from refsim.modules.trial import ModuleTrial
from refsim.ops.base.module_call import ModuleDispatch
from refsim.ops.base.spec import Call
from refsim.spirv.module import Module
from refsim.spirv.opcodes import Decoration

#: Choices in one module and edits that share them, and edits that need a module each and are tried one after another.
BATCH, SHARED, APART = 250, 1500, 8
#: How long the device may be silent over many edits; over one, and so many times as long as over the module without it.
PATIENCE_S, PATIENCE_FOR_ONE_S, PATIENCE_TIMES = 30.0, 4.0, 20
#: So many edits that are right on the witness get a module each; more of them are tried together on further witnesses.
FEW = 3
#: What makes a driver compile fast: each of the thousand modules of a search runs for a moment. Mesa's lavapipe then
#: takes a third of the time for one; other drivers do not look at it.
QUICK = {"GALLIVM_PERF": "nopt"}
#: A witness has so many elements at least, where a wrong case has; smaller ones let wrong edits pass.
ENOUGH = 150
#: How many cases are looked at to choose witnesses, and how many right and wrong ones an edit must pass first.
LOOKED_AT, WITNESSES = 16, 3
#: How often the loops of an invocation may turn with an edit: so often, and so many times as often as without one. That
#: is looked for up to a most, which holds where it is not found.
TURNS, TIMES, MOST_TURNS = 1024, 8, 1 << 12
#: Larger words of constants are no sizes.
MOST_SIZE = 1 << 16
#: Lines with repairs after which the search ends, and repairs of one line that are told; edits, right on the failing
#: cases alone, that are told. Behind the first repair so many more edits are tried: what works around a bug
#: may come before what mends it.
MOST_LINES, MOST_REPAIRS, MOST_PARTIAL, BEHIND = 3, 3, 3, 1500


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


def alike_first(edits: Iterable[Edit], given: Mapping[int, int]) -> Iterator[Edit]:
    """Edits without exchanges of equal constants, and with those of unlike ones last: ``given`` are their words.

    A driver unrolls loops by constants, and has long to do where the hash of a layout takes the place of a size.
    """
    for edit in edits:
        words = [
            given[number]
            for mark, number in edit.marks
            if mark.args[1] == Decoration.SPEC_ID and number in given
        ]
        if len(words) == 2:
            low, high = sorted(word & 0xFFFFFFFF for word in words)
            if low == high:
                continue
            edit = replace(edit, rank=FAR - 1) if low <= MOST_SIZE < high else edit
        yield edit


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
        executor.timeout_s = PATIENCE_S
        #: How many edits are tried where one of them is a repair.
        self._last = BEHIND
        self._codes: dict[str, Code] = {}
        #: How often loops may turn, by module and case, and how long a module takes at most that has no edit.
        self._turned: dict[tuple[str, str], int] = {}
        self._plain: defaultdict[str, float] = defaultdict(float)
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
                    if found.mended and found.tried >= self._last:
                        break  # what follows is less plausible than all of these
                    self._batch(found, name, batch, first, more)
                    if not found.mended:
                        self._last = found.tried + BEHIND
                if found.mended or self._ended(found):
                    break
        except KeyboardInterrupt:  # what was found is told
            self.executor.close()
        found.repairs.sort(key=lambda one: (one.detour, one.edit.rank))
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
        given = {step.shader: step.spec_words for step in steps}
        for some in zip(*(parts(code) for code in self._codes.values()), strict=True):
            found = []
            for (name, code), listed in zip(self._codes.items(), some, strict=True):
                every = ordered(alike_first(listed, given[name]), self.causes)
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
            survivors = [edit for edit in batch if self._right(name, [edit], first)]
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
        code, binds, patience = self._codes[name], len(step.binds), PATIENCE_S
        turns = self._turns(name, case, step)
        if selectable(code, batch[0]):
            schema = Schema(code, batch, Given(code, step), binds)
            module, words = schema.module, schema.words
        else:
            (edit,) = batch
            if any(mark.args[1] == Decoration.BINDING and number >= binds for mark, number in edit.marks):
                return []
            module, words = bounded(code, edit, binds), np.zeros((1, CHOICE), np.uint32)
            patience = max(PATIENCE_FOR_ONE_S, PATIENCE_TIMES * self._plain[name])
        words[:, -1] = turns
        choices, of = np.unique(words, axis=0, return_inverse=True)
        try:
            right = self._tried(name, module, choices, case, self._wanted(case), patience)
            return [edit for edit, number in zip(batch, of.reshape(-1), strict=True) if number in right]
        except RefsimError:
            half = len(batch) // 2
            if not half:
                return []
            return [*self._right(name, batch[:half], case), *self._right(name, batch[half:], case)]

    def _turns(self, name: str, case: TellingCase, step: ModuleDispatch) -> int:
        """How often the loops of an invocation may turn in a case, by how often they must for the bytes of now.

        Of thousands of edits some hundreds have no end, and each of these takes as long as this allows.
        """
        if (name, case.name) not in self._turned:
            least = MOST_TURNS
            actual = self.trial.run(case).actual
            if actual is not None:
                module = Schema(self._codes[name], [], Given(self._codes[name], step), len(step.binds)).module
                choices = np.zeros((MOST_TURNS.bit_length(), CHOICE), np.uint32)
                choices[:, -1] = [1 << at for at in range(len(choices))]
                begin = time.perf_counter()
                with suppress(RefsimError):
                    same = self._tried(name, module, choices, case, (actual.raw,))
                    least = int(choices[min(same), -1]) if same else least
                self._plain[name] = max(self._plain[name], time.perf_counter() - begin)
            self._turned[name, case.name] = TURNS + TIMES * least
        return self._turned[name, case.name]

    def _tried(
        self,
        name: str,
        module: Module,
        choices: np.ndarray,
        case: TellingCase,
        wanted: tuple[np.ndarray, ...],
        patience: float = PATIENCE_S,
    ) -> list[int]:
        """The numbers of the choices with which a case has wanted bytes. RefsimError if the device hangs, say."""
        if refused(data := module.to_bytes()) is not None:
            raise self.modules[name].error("is not valid with edits")
        tries = Tries(name, data, choices, case.bound.call.device_defined(), wanted)
        self.executor.timeout_s = patience
        try:
            return self.executor.try_edits(case.bound.call, case.bound.inputs, tries)
        finally:
            self.executor.timeout_s = PATIENCE_S

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

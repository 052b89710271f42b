"""Kernels that nobody has looked at yet, case by case: the most telling ones first, all operators in turn.

So a wrong kernel is met in the first few cases, whichever operator it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np

from refsim.bytediff import Report, defects, diff
from refsim.bytediff.consensus import decided, reordered
from refsim.bytediff.invocations import Geometry
from refsim.bytediff.rank import exact_edits
from refsim.core.buffer import FILL, GUARD_WORDS, PackedBuffer
from refsim.core.errors import (
    MissingDependencyError,
    PackingError,
    RawBufferError,
    RefsimError,
    UnsupportedError,
)
from refsim.core.meanings import CaseName
from refsim.core.qmath import CANONICAL, Profile
from refsim.exec.executor import Executor
from refsim.exec.finding import NOT_SEEN, ORDER, KernelFinding
from refsim.golden.apart import KernelCauses, Runs, WrongCase, of_kernel
from refsim.golden.check import answered, ran_again, within
from refsim.golden.judge import KNOWN_DEFECT, LEGAL, SAME, WRONG, Judged, judged
from refsim.golden.telling import TellingCase
from refsim.ops.base.spec import Call

T = TypeVar("T")

FAILED, UNSAFE = "failed", "unsafe"
VERDICTS = (SAME, LEGAL, KNOWN_DEFECT, UNSAFE, WRONG, FAILED)
#: What a case that is wrong is worth in further cases: how many are compared, how many are run to find them, and how
#: many elements their inputs have. By the clock, a busy machine would say something else than an idle one.
MOST_WRONG, MOST_TRIED, MOST_ELEMENTS = 6, 24, 1 << 16
#: Elements of the cases among which one is sought that tells two causes apart: --watch answers at once.
APART_ELEMENTS = 1 << 14
#: The cause of a failure that a device's guard words show, in the words of `refsim.bytediff`.
OUT_OF_BOUNDS = "write out of bounds"


@dataclass(frozen=True)
class Tried:
    """One case on one executor. ``message`` says why it ``failed``; it has an ``actual`` then if it ran all the same.

    A case is ``unsafe`` if its bytes are right, but by the sanitizers' ``findings`` not for certain. ``packer`` is the
    module that packed its weights otherwise than refsim, "" if none did.
    """

    candidate: TellingCase
    judged: Judged
    actual: PackedBuffer | None = None
    message: Annotated[str, "What happened, in words."] = ""
    seconds: float = 0.0
    findings: Annotated[tuple[KernelFinding, ...], "What the sanitizers found."] = ()
    packer: Annotated[str, "The module that packed its weights wrong; else empty."] = ""

    @property
    def case(self) -> CaseName:
        return self.candidate.name

    @property
    def verdict(self) -> str:
        return self.judged.verdict

    @property
    def bad(self) -> bool:
        return self.verdict in (WRONG, FAILED, UNSAFE)


@dataclass(frozen=True)
class Explained:
    """What is wrong with a kernel: the diff of one case, and what explains that and some further ``cases``.

    ``tried`` is the first of them with a known cause, or the ``first`` of all if none has one. ``distinct`` results
    came of ``runs`` runs of the first case.
    """

    first: Tried
    tried: Tried
    report: Report
    kernel: KernelCauses
    cases: tuple[str, ...]
    distinct: int
    runs: int


@dataclass
class ModuleTrial:
    """An executor under trial. ``profiles`` are the numerics that it may have, ``fill`` is in its fresh outputs.

    ``geometry`` says who writes a word where that is not refsim's own launch (`refsim.bytediff.diff`). ``own`` has
    the operators whose kernel is not upstream's, and is not forgiven what that one does wrong, with further numerics
    that it may have.
    """

    executor: Executor
    profiles: Sequence[Profile] = (CANONICAL,)
    fill: int = FILL
    geometry: Callable[[Call], Geometry | None] = lambda call: None
    own: Mapping[str, Sequence[Profile]] = field(default_factory=dict)

    def run(self, candidate: TellingCase, sanitize: bool = False, repeats: int = 0) -> Tried:
        """Run one case and judge it. Raises what opening a device raises; a case that fails is a verdict.

        ``sanitize``: the executor also looks at its kernels, and runs them ``repeats`` times (`Executor.sanitize`).
        """
        begin = time.perf_counter()
        bound = candidate.bound
        try:
            actual, wrong = within(self.executor, bound)
        except MissingDependencyError:
            raise
        except RefsimError as error:
            tried = Tried(candidate, Judged(FAILED), None, _said(error))
        else:
            verdict = self._judged(candidate, actual) if wrong is None else Judged(FAILED)
            tried = Tried(candidate, verdict, actual, "" if wrong is None else _said(wrong))
            if isinstance(wrong, PackingError):
                tried = replace(tried, packer=Path(wrong.where).stem)
        if sanitize:
            tried = self._sanitized(tried, repeats)
        return replace(tried, seconds=time.perf_counter() - begin)

    def _sanitized(self, tried: Tried, repeats: int) -> Tried:
        bound = tried.candidate.bound
        try:
            found = tuple(self.executor.sanitize(bound.call, bound.inputs, repeats))
        except UnsupportedError as error:
            return replace(tried, findings=(KernelFinding(NOT_SEEN, error.where, str(error)),))
        except RefsimError as error:
            if tried.bad:  # of what did not run, nothing more is known
                return tried
            return replace(tried, judged=Judged(FAILED), message=f"the sanitizers cannot run it: {error}")
        faults = any(not one.harmless for one in found)
        unsafe = Judged(UNSAFE) if faults and not tried.bad else tried.judged
        return replace(tried, judged=unsafe, findings=found)

    def gives_wrong(self, tried: Tried) -> bool:
        """Whether a case has wrong bytes in its output, whatever else is wrong with it."""
        return tried.actual is not None and self._judged(tried.candidate, tried.actual).verdict == WRONG

    def _judged(self, candidate: TellingCase, actual: PackedBuffer) -> Judged:
        recorded = candidate.recorded
        if recorded is not None:
            defined = candidate.bound.call.device_defined()
            if np.array_equal(recorded[defined], actual.raw[defined]):
                return Judged(SAME)
        profiles = (*self.profiles, *self.own.get(candidate.op, ()))
        return judged(candidate.bound, actual, self.fill, profiles, candidate.op not in self.own)

    def explain(
        self,
        tried: Tried,
        others: Iterable[TellingCase],
        limit: int = 10,
        runs: Runs | None = None,
    ) -> Explained:
        """Why a case is wrong. Where its bytes fit several causes, further cases of the operator decide.

        ``others`` are these cases; only so many are run as `MOST_TRIED` and `MOST_ELEMENTS` allow. ``runs`` says which
        calls the kernel computes.
        """
        actual = tried.actual
        assert actual is not None
        seen = ran_again(
            self.executor, tried.candidate.bound, actual,
            lambda out: self._judged(tried.candidate, out).verdict != WRONG,
        )  # fmt: skip
        wrong = [(tried, self._report(tried, limit, seen.told))]
        if seen.told is None and not wrong[0][1].known and (order := self._order(tried)) is not None:
            wrong = [(tried, self._report(tried, limit, order))]
        if not (decided(wrong[0][1]) or any(cause.observed for cause in wrong[0][1].causes)):
            elements = 0
            for number, other in enumerate(others):
                elements += other.elements
                if number == MOST_TRIED or len(wrong) == MOST_WRONG or elements > MOST_ELEMENTS:
                    break
                further = self.run(other)
                if self.gives_wrong(further):
                    wrong.append((further, self._report(further, limit, like=[row[1] for row in wrong])))
        first, later = wrong[0][1], [report for _, report in wrong[1:]]
        if set(exact_edits(later)) - set(exact_edits([first])):  # which of these give the first case too
            wrong[0] = (tried, self._report(tried, limit, like=later))
        wrong[0] = (tried, answered(wrong[0][1], self.executor, tried.candidate.bound, later))
        cases = [
            WrongCase(one.candidate.name, report.causes, bound=one.candidate.bound) for one, report in wrong
        ]
        kernel = of_kernel(tried.candidate.op, self.executor.name, cases, runs, APART_ELEMENTS)
        shown, report = next((row for row in wrong if row[1].known), wrong[0])
        names = tuple(case.name for case in cases)
        report = reordered(report, kernel.causes)
        return Explained(tried, shown, report, kernel, names, seen.distinct, seen.runs)

    def _report(
        self,
        tried: Tried,
        limit: int,
        seen: tuple[str, str] | None = None,
        like: Sequence[Report] = (),
    ) -> Report:
        candidate = tried.candidate
        assert tried.actual is not None
        report = diff(
            candidate.expected, tried.actual, call=candidate.bound, device=True, limit=limit,
            title=candidate.name, geometry=self.geometry(candidate.bound.call), seen=seen, like=like,
            guards=GUARD_WORDS,
        )  # fmt: skip
        # had it been a known defect, the case would not be wrong
        return replace(report, causes=tuple(cause for cause in report.causes if cause.name != defects.NAME))

    def _order(self, tried: Tried) -> tuple[str, str] | None:
        """Whether the case gives other bytes if workgroups or invocations do their work in another order."""
        bound = tried.candidate.bound
        found = tried.findings
        with suppress(RefsimError):
            found = found or tuple(self.executor.sanitize(bound.call, bound.inputs))
        return next(((ORDER, one.what) for one in found if one.kind == ORDER), None)


def _said(error: RefsimError) -> str:
    """What an error says, after what is called so that shows itself in it."""
    return f"{OUT_OF_BOUNDS}: {error}" if isinstance(error, RawBufferError) else str(error)


def in_turn(supply: Mapping[str, Iterator[T]]) -> Iterator[T]:
    """One case of each operator, then a second of each, and so on."""
    left = dict(supply)
    while left:
        for op in list(left):
            one = next(left[op], None)
            if one is None:
                del left[op]
            else:
                yield one

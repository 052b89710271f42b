"""The verification of a folder of modules: which operators, which cases, and what is wrong with the first wrong one.

Cases that a host of flat tensors refuses are changed until it takes them (`fitted`), and always in the same way, so
that a case keeps its name.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import dropwhile, islice, product, tee
from pathlib import Path
from typing import Annotated, Any

from refsim.core import choices
from refsim.core.errors import ParameterError, RefsimError
from refsim.golden import telling
from refsim.golden.judge import KNOWN_DEFECT, LEGAL, WRONG
from refsim.golden.rules import RULES, case_name
from refsim.golden.telling import UPSTREAM, TellingCase, recorded_cases
from refsim.modules import CASES
from refsim.modules.trial import OUT_OF_BOUNDS, UNSAFE, Explained, ModuleTrial, Tried, in_turn
from refsim.ops.base.case import Case
from refsim.ops.base.spec import Call
from refsim.ops.base.target import Behaviour

#: Cases of an operator after which a first word is said: 59 of the 60 seeded bugs (tests/modules/bugs.py) show in them.
FIRST_WORD = 4
FIRST, ALL = "first", "all"
#: Of how many further cases some may be run to explain a bad one, and how many of these if that one did not run.
MOST_OTHERS, MOST_AFTER_FAILURE = 60, 8
#: Characters of the operators that one part of an error lists.
MOST_LISTED = 70


@dataclass(frozen=True)
class KnownInCases:
    """A known defect of upstream's kernels."""

    what: Annotated[str, "What it is."]
    cases: Annotated[int, "How many cases show it."]


@dataclass
class FolderOutcome:
    """What a run over some operators found.

    ``wrong``: the first case that is wrong, explained; ``failed``: the first that did not run, or that wrote out of
    bounds (it may be in ``wrong`` as well); ``unsafe``: the first whose bytes are right, but not for certain; one each
    for an operator. ``bad`` has every case that is one of these.
    ``notes`` counts harmless findings by (kind, module, what).
    """

    operators: Annotated[dict[str, Counter[str]], "Cases by operator and verdict."] = field(
        default_factory=dict
    )
    legal: Annotated[Counter[str], "Cases by profile."] = field(default_factory=Counter)
    known: Annotated[dict[str, KnownInCases], "By known defect."] = field(default_factory=dict)
    wrong: list[Explained] = field(default_factory=list)
    skipped: Annotated[
        dict[str, Counter[str]],
        "Cases that no module of the folder computes, by operator and reason.",
    ] = field(default_factory=dict)
    failed: Annotated[list[Tried], "Cases without a result."] = field(default_factory=list)
    unsafe: Annotated[list[Tried], "Right bytes, but not for certain."] = field(default_factory=list)
    notes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    sanitized: Annotated[int, "How many cases the sanitizers looked at."] = 0
    bad: list[Tried] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        return not self.bad

    @property
    def cases(self) -> Annotated[int, "How many cases."]:
        return tally(self.operators).total()

    def add(self, tried: Tried) -> None:
        """Count a case."""
        self.operators.setdefault(tried.candidate.op, Counter())[tried.verdict] += 1
        defect = tried.judged.known
        if tried.verdict == KNOWN_DEFECT and defect is not None:
            before = self.known.get(defect.name)
            self.known[defect.name] = KnownInCases(defect.note, 1 if before is None else before.cases + 1)
        if tried.verdict == LEGAL:
            self.legal[" or ".join(tried.judged.profiles)] += 1
        self.notes.update({(one.kind, one.module, one.what) for one in tried.findings if one.harmless})
        if tried.bad:
            self.bad.append(tried)


@dataclass(frozen=True)
class Stage:
    """The cases of some operators from number ``skip`` to number ``most``; ``name``: `FIRST` word or `ALL` the rest."""

    operators: tuple[str, ...]
    skip: int
    most: int | None
    name: str


def stages(first: Sequence[str], rest: Sequence[str]) -> Iterator[Stage]:
    """In which order operators are run: a first word on each, then all their cases; those of ``first`` go first."""
    for name, skip, most in ((FIRST, 0, FIRST_WORD), (ALL, FIRST_WORD, None)):
        yield from (Stage(tuple(one), skip, most, name) for one in (first, rest) if one)


@dataclass
class Verification:
    """Cases for an executor, kept between runs: what was drawn once is not drawn again.

    Of each operator ``count`` cases of the corpus run, and its recordings in the folder ``upstream``; or all
    that a ``pattern`` matches. Calls are left out for which there is a ``refusal``; kernels on ``flat`` tensors
    get changed ones. ``layouts`` are those that kernels take, by operator and argument; ``runtime``: whose kernels
    they are. Sanitizers look at the first ``sanitized`` cases of each operator, with so many ``repeats``.
    """

    trial: ModuleTrial
    count: int = CASES
    upstream: Path | None = None
    pattern: str = ""
    refusal: Callable[[Call], str | None] = lambda call: None
    flat: bool = False
    layouts: Mapping[str, Mapping[str, Collection[str]]] = field(default_factory=dict)
    sanitized: int = 0
    repeats: int = 0
    runtime: Behaviour = field(default_factory=Behaviour)
    _cases: dict[str, Iterator[TellingCase]] = field(default_factory=dict)
    _chosen: dict[str, list[TellingCase]] = field(default_factory=dict)

    def takes(self, call: Call) -> bool:
        """Whether the executor's modules compute a call."""
        return self.refusal(call) is None

    def cases(self, op: str) -> Iterator[TellingCase]:
        """The cases of an operator in their order; each is made once."""
        if not self.pattern:
            return self.every(op)
        if op not in self._chosen:
            self._chosen[op] = list(self._made(telling.matching(op, self.pattern, self.upstream)))
        return iter(self._chosen[op])

    def every(self, op: str) -> Iterator[TellingCase]:
        """The cases of an operator without a pattern."""
        if op not in self._cases:
            self._cases[op] = self._made(telling.ordered(op, self.count, self.upstream, self.layouts.get(op)))
        self._cases[op], again = tee(self._cases[op])
        return again

    def _made(self, found: Iterable[TellingCase]) -> Iterator[TellingCase]:
        said = (replace(one, runtime=self.runtime) for one in found)
        return (fitted(one, self.takes) if self.flat else one for one in said)

    def check_pattern(self, operators: Collection[str]) -> None:
        """ParameterError if the pattern fits no case of these operators."""
        if self.pattern and not any(next(self.cases(op), None) for op in operators):
            raise no_case(self.pattern, operators, self.upstream)

    def run(
        self,
        operators: Sequence[str],
        *,
        everything: bool = False,
        most: int | None = None,
        skip: int = 0,
        limit: int = 10,
        tell: Callable[[Tried], None] = lambda tried: None,
        found: Callable[[Tried], None] = lambda tried: None,
        interrupted: Callable[[], bool] = lambda: False,
        before: FolderOutcome | None = None,
    ) -> FolderOutcome:
        """Run the operators' cases in turn, and stop at the first that is wrong.

        ``everything`` goes on, and explains the first wrong case of each operator. Of each operator the cases from
        number ``skip`` to number ``most`` are run. ``tell`` is called after each case, ``found`` as soon as a case is
        bad: its cause is sought afterwards. ``interrupted`` says whether to stop before the next one. What is found is
        added to what was found ``before``.
        """
        begin, outcome = time.perf_counter(), before or FolderOutcome()
        for number, candidate in in_turn({op: self._taken(op, skip, most, outcome) for op in operators}):
            if interrupted():
                break
            sanitize = number < self.sanitized
            tried = self.trial.run(candidate, sanitize, self.repeats)
            outcome.sanitized += sanitize
            outcome.add(tried)
            tell(tried)
            if tried.bad:
                found(tried)
                self._explain(outcome, tried, limit)
                if not everything:
                    break
        outcome.seconds += time.perf_counter() - begin
        return outcome

    def _taken(
        self, op: str, skip: int, most: int | None, outcome: FolderOutcome
    ) -> Iterator[tuple[int, TellingCase]]:
        """The cases of an operator that its modules compute, numbered; ``outcome`` counts the others."""
        number = 0
        for candidate in self.cases(op):
            if number == most:
                break
            why = self.refusal(candidate.bound.call)
            if why is None:
                if number >= skip:
                    yield number, candidate
                number += 1
            elif number >= skip:
                outcome.skipped.setdefault(op, Counter())[why] += 1

    def _explain(self, outcome: FolderOutcome, tried: Tried, limit: int) -> None:
        """Say why the first bad case of an operator is bad. If it did not run, a further one that is wrong may tell."""
        op = tried.candidate.op
        if op in {row.tried.candidate.op for row in outcome.wrong}:
            return
        if tried.verdict == UNSAFE:
            if op not in {row.candidate.op for row in outcome.unsafe}:
                outcome.unsafe.append(tried)
            return
        others = [
            one for one in self._after(tried.candidate) if not one.hidden and self.takes(one.bound.call)
        ]
        if tried.verdict != WRONG:
            if op in {row.candidate.op for row in outcome.failed}:
                return
            if tried.message.startswith(OUT_OF_BOUNDS) and not tried.findings:
                tried = self.trial.run(tried.candidate, True)  # which invocation it was
            outcome.failed.append(tried)
            if not self.trial.gives_wrong(tried):
                told = (self.trial.run(one) for one in islice(others, MOST_AFTER_FAILURE))
                instead = next(filter(self.trial.gives_wrong, told), None)
                if instead is None:
                    return
                tried = instead
        rest = (one for one in others if one is not tried.candidate)
        outcome.wrong.append(self.trial.explain(tried, rest, limit, runs=self.takes))

    def _after(self, candidate: TellingCase) -> Iterator[TellingCase]:
        """Some cases that come after one of the operator, among all of them: whichever a pattern chose to run."""
        name, op = candidate.name, candidate.op
        after = list(islice(dropwhile(lambda one: one.name != name, self.every(op)), 1, 1 + MOST_OTHERS))
        yield from after or islice((one for one in self.every(op) if one.name != name), MOST_OTHERS)


def tally(counts: Mapping[str, Counter[str]]) -> Counter[str]:
    """Verdict -> cases of all operators."""
    return sum(counts.values(), Counter[str]())


def names(op: str, upstream: Path | None) -> list[str]:
    """All cases of an operator: those of the corpus, and its recordings in the folder ``upstream``."""
    corpus = [case_name(op, number) for number in range(RULES[op].count)]
    return corpus + [one.name for one in recorded_cases(op, upstream)]


def no_case(pattern: str, operators: Collection[str], upstream: Path | None) -> ParameterError:
    """The error for a pattern that fits no case of these operators."""
    fits = [op for op in RULES if any(fnmatchcase(name, pattern) for name in names(op, upstream))]
    first = next(iter(operators))
    recorded = [name for name in names(first, upstream) if name.startswith(UPSTREAM)]
    shown = [f"{first}/00*", *(f"{name[: len(UPSTREAM) + 4]}*" for name in recorded[:1])]
    need = f"a pattern such as {' or '.join(shown)}"
    if fits:
        need += f"; it fits cases of {choices.listed(fits, MOST_LISTED)}"
    return ParameterError(
        "--case", f"no such case of {choices.listed(operators, MOST_LISTED)}", got=repr(pattern),
        need=need + choices.meant(pattern.partition("/")[0], RULES),
    )  # fmt: skip


#: How far a size grows until a call is taken, and how many changes of a case are tried.
GROWN, MOST = 4, 96
#: Parameters that are plain in calls that such a runtime takes.
_PLAIN = {"activation": "none", "groups": 1}


def fitted(candidate: TellingCase, takes: Callable[[Call], bool]) -> TellingCase:
    """The case with flat tensors, changed as little as makes its call taken; with packed ones if nothing does."""
    flat = replace(candidate, flat=True)
    if candidate.case is None or takes(candidate.bound.call):
        return flat
    for number, changes in enumerate(_changes(candidate.case)):
        if number == MOST:
            break
        other = replace(flat, case=candidate.case.changed(**changes))
        try:
            if takes(other.packed.call):
                return other
        except RefsimError:  # these sizes do not go together
            continue
    return candidate


def _changes(case: Case) -> Iterator[dict[str, Any]]:
    """Plain parameters, then more columns, then more channels."""
    plain = {name: value for name, value in _PLAIN.items() if case.params.get(name, value) != value}
    outputs = case.features.get("out_channels")
    grouped = {name: value for name, value in plain.items() if name != "groups"}
    for base in (plain, grouped) if "groups" in plain else (plain,):
        for more, deeper, wider in product(range(GROWN), range(GROWN), range(GROWN)):
            changes = dict(base)
            for name, (shape, _) in case.inputs.items():
                grown = list(shape)
                grown[-1] += wider
                if len(grown) > 2:
                    grown[-3] += deeper
                    if "groups" not in changes and case.params.get("groups") == shape[-3]:
                        changes["groups"] = grown[-3]
                changes[name] = tuple(grown)
            if outputs is not None:
                changes["out_channels"] = outputs + more
            elif more:
                continue
            yield changes

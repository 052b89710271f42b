"""What is wrong with a kernel, by its wrong cases: which cause predicts how many of them.

Where several causes predict the same bytes, a case of the corpus is sought that would tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from operator import eq
from typing import Annotated

import numpy as np

from refsim.bytediff import search
from refsim.bytediff.consensus import Agreed, agreed
from refsim.bytediff.evidence import Evidence, cells
from refsim.bytediff.rank import Cause
from refsim.bytediff.report import Report
from refsim.bytediff.text import MOST_CAUSES as MOST_LISTED
from refsim.core import choices
from refsim.core.counted import counted, form
from refsim.core.meanings import Detail, OwnName
from refsim.core.result import Command
from refsim.golden.rules import RULES
from refsim.golden.telling import TellingCase, ordered
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.spec import Call

#: How many cases are tried, how many elements their inputs have, and among how many they are chosen.
MOST_TRIED, MOST_ELEMENTS, MOST_ASKED = 96, 1 << 16, 96


@dataclass(frozen=True)
class Rival:
    """A cause that predicts every byte. ``fitted``: a part of it was taken from these very bytes."""

    name: OwnName
    detail: Detail
    fitted: Annotated[bool, "Whether a part of it was taken from these very bytes."] = False


@dataclass(frozen=True)
class Rivals:
    """Several causes of one operator that predict the same bytes.

    ``behind`` predict them too, but fewer of the other cases of the kernel.
    """

    op: str
    causes: tuple[Rival, ...]
    behind: tuple[Rival, ...] = ()

    @property
    def free(self) -> list[Rival]:
        """The causes that a case of the corpus may tell apart: they say what they predict of any."""
        return [cause for cause in self.causes if not cause.fitted]

    @property
    def fitted(self) -> list[Rival]:
        """The causes that say nothing of another case: a part of them was taken from the bytes at hand."""
        return [cause for cause in self.causes if cause.fitted]

    @property
    def names(self) -> dict[Rival, str]:
        """The causes as texts name them: by details, where several have one name."""
        every = (*self.causes, *self.behind)
        plain = len({cause.name for cause in every}) == len(every)
        return {cause: f'"{cause.name if plain else cause.detail}"' for cause in every}

    def named(self, causes: Iterable[Rival]) -> str:
        """Some of them, in quotes."""
        return _and([self.names[cause] for cause in causes])

    @property
    def same(self) -> str:
        """That they predict the same bytes, as a sentence."""
        return f"{self.named(self.causes)} predict the same bytes here"

    @property
    def fewer(self) -> str:
        """Which causes fit here and are named no further, and why; empty if there are none."""
        fit = form(len(self.behind), "fits", "fit")
        return f"{self.named(self.behind)} {fit} fewer of the wrong cases" if self.behind else ""


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


@dataclass(frozen=True)
class Predicted:
    """What some of the causes predict of a case: the same bytes.

    If no element differs on the device, those with more than 0 are excluded.
    """

    rivals: tuple[Rival, ...]
    wrong: Annotated[int, "How many differ from the right ones: bytes, or elements of a float output."]

    @property
    def causes(self) -> Annotated[list[str], "Names of the causes."]:
        return [cause.name for cause in self.rivals]


@dataclass(frozen=True)
class Apart:
    """Rivals, and a ``case`` that tells them apart; "" if none was found among the ``tried`` ones.

    ``outcomes``: what each cause predicts there, those together that predict the same. ``unit``: what is counted.
    """

    rivals: Rivals
    case: Annotated[str, "A case of the corpus that tells them apart; empty if there is none."] = ""
    outcomes: Annotated[tuple[Predicted, ...], "What the causes predict of the case; empty without one."] = ()
    tried: int = 0
    unit: str = "byte"

    @property
    def causes(self) -> Annotated[tuple[Rival, ...], "The likely causes, best first."]:
        return self.rivals.causes

    def lines(self, command: str) -> Iterator[str]:
        """The causes, the case that tells, as a `Command`, and what each of its outcomes means.

        ``command`` runs the case: ``{case}`` in it stands for the name.
        """
        same, fewer = self.rivals.same, "; ".join(("", self.rivals.fewer)) if self.rivals.fewer else ""
        if not self.case:
            yield f"{same}; {self.why}{fewer}"
            return
        fitted = self.rivals.fitted
        them = f"apart all but {self.rivals.named(fitted)}" if fitted else "them apart"
        yield Command(f"{same}; to tell {them}: {command.format(case=self.case)}")
        yield f"{self.meaning}{fewer}"

    @property
    def why(self) -> Annotated[str, "Why there is no case, in words; empty with one."]:
        fitted, named = self.rivals.fitted, self.rivals.named
        if self.case:
            return ""
        if len(self.rivals.free) < 2:
            are = form(len(fitted), "is", "are")
            return (
                f"no case of the corpus tells them apart, since {named(fitted)} {are} fitted to these bytes"
            )
        return f"no case of the corpus tells them apart, of {self.tried} tried"

    @property
    def meaning(self) -> str:
        """What the report of the case says by each cause; nothing by one that is fitted to these bytes."""
        named, parts, counts = self.rivals.named, list[str](), set[int]()
        for one in self.outcomes:
            other = ", and others" if one.wrong in counts else ""
            parts.append(f"by {named(one.rivals)} {counted(one.wrong, self.unit, 'differ')} there{other}")
            counts.add(one.wrong)
        foretold = [cause for one in self.outcomes for cause in one.rivals]
        silent = [cause for cause in self.rivals.causes if cause not in foretold]
        if silent:
            parts.append(f"{named(silent)} {form(len(silent), 'says', 'say')} nothing of that case")
        return "; ".join(parts)


def rivals(op: str, causes: Sequence[Cause], found: Sequence[Agreed] = ()) -> Rivals | None:
    """The causes of a wrong buffer that are listed as predicting every byte; None where there are no two of them.

    ``found`` is what other cases of the kernel say: a cause that predicts fewer of them than another stands behind.
    A region where a cause holds was read off these bytes: it is as good as fitted. Causes by one edit are one.
    """
    exact = [cause for cause in causes[:MOST_LISTED] if cause.exact]
    exact = [cause for at, cause in enumerate(exact) if not any(_same_edit(cause, one) for one in exact[:at])]
    if any(cause.observed for cause in exact):
        return None
    counts = {row.name: row.exact for row in found}
    most = max(counts.values(), default=0)
    first, behind = (
        tuple(
            Rival(cause.name, cause.detail, cause.fitted or bool(cause.where))
            for cause in exact
            if (counts.get(cause.name, 0) == most) is wanted
        )
        for wanted in (True, False)
    )
    return None if len(first) < 2 else Rivals(op, first, behind)


def _same_edit(one: Cause, other: Cause) -> bool:
    """Whether two causes are one edit in two ways: what one of them says is the other's line."""
    if one.place is None or other.place is None or one.place.edit != other.place.edit:
        return False
    return one.place.edit in (one.detail, other.detail)


def apart(
    report: Report,
    candidates: Iterable[TellingCase] | None = None,
    runs: Callable[[Call], bool] | None = None,
) -> Apart | None:
    """The rivals of a report, and a case that tells them apart; None where one cause is enough."""
    bound = report.evidence.bound
    two = None if bound is None or not report.differing else rivals(bound.call.op.name, report.causes)
    return None if two is None else told(two, candidates, runs=runs, like=bound)


def told(
    two: Rivals,
    candidates: Iterable[TellingCase] | None = None,
    most: int = MOST_ELEMENTS,
    runs: Callable[[Call], bool] | None = None,
    like: BoundCase | None = None,
) -> Apart:
    """A case that tells rivals apart, among cases whose inputs have so many elements in all.

    ``candidates`` are cases of the same operator, by default those of the corpus that say most. ``runs`` says whether
    the kernel in question computes a call: a case that it does not take would tell nothing. Without it all are taken.
    Those come first whose sizes leave the remainders of ``like``: a kernel that is wrong there is likely wrong in them.
    """
    if len(two.free) < 2:
        return Apart(two)
    if candidates is None:
        candidates = ordered(two.op, MOST_ASKED) if two.op in RULES else ()
    taken: Iterable[TellingCase] = (one for one in candidates if runs is None or runs(one.bound.call))
    if like is not None:
        sizes = _remainders(like)
        taken = sorted(taken, key=lambda one: -sum(map(eq, sizes, _remainders(one.bound))))
    elements = tried = 0
    best = Apart(two)
    for candidate in islice(taken, MOST_TRIED):
        if elements + candidate.elements > most:
            continue
        elements, tried = elements + candidate.elements, tried + 1
        found = _outcomes(candidate.bound, two.free)
        if len(found) > max(1, len(best.outcomes)):
            unit = "byte" if candidate.bound.call.out.is_int8 else "element"
            best = Apart(two, candidate.name, found, unit=unit)
        if len(found) == len(two.free):
            break
    return replace(best, tried=tried)


def _remainders(bound: BoundCase) -> list[int]:
    """What the sizes of all tensors leave beyond whole words of four."""
    descs = (*bound.call.descs.values(), bound.call.out)
    return [size % 4 for desc in descs for size in desc.sizes_whcn]


def _outcomes(bound: BoundCase, causes: Sequence[Rival]) -> tuple[Predicted, ...]:
    """What the causes predict of a case without its differences; those that predict nothing of it are left out."""
    expected = bound.call.expected(bound.inputs)
    defined = bound.call.device_defined() if bound.call.out.is_int8 else np.ones(len(cells(expected)), bool)
    right = np.where(defined, cells(expected), 0)
    groups: list[tuple[np.ndarray, list[Rival]]] = []
    for cause in causes:
        found = search.again(Evidence(expected, expected, defined, bound), cause.name, cause.detail)
        if found is None:
            continue
        found = np.where(defined, found, 0)
        same = next((members for one, members in groups if np.array_equal(one, found)), None)
        if same is None:
            groups.append((found, [cause]))
        else:
            same.append(cause)
    return tuple(Predicted(tuple(members), int(np.count_nonzero(one != right))) for one, members in groups)


#: Of how many kernels two causes are told apart; each may take a second.
MOST_APART = 3
#: Likely causes of a case, and of a kernel, that are said; the columns of a table of them.
MOST_CAUSES = 3
COLUMNS = ("predicts", "cause", "to tell apart")
#: Says whether the kernel in question computes a call.
Runs = Callable[[Call], bool]


@dataclass(frozen=True)
class WrongCase:
    """A wrong case of a kernel, and its causes, best first; ``sought``: whether any were looked for."""

    name: str
    causes: tuple[Cause, ...] = ()
    sought: bool = True
    bound: BoundCase | None = None


@dataclass(frozen=True)
class KernelCauses:
    """What is wrong with one kernel: ``wrong`` cases, of ``sought`` of which causes were looked for.

    ``case`` is the first one in which the first cause predicts every byte, or else explains a part.
    """

    operator: Annotated[str, "Name of the operator; `chains` for chains that say none."]
    executor: Annotated[str, "The executor; empty for buffers from a device."]
    wrong: Annotated[int, "Cases that are wrong, or failed."]
    sought: Annotated[int, "Those of which a cause was sought."]
    causes: Annotated[tuple[Agreed, ...], "The likely causes, best first."] = ()
    case: Annotated[str, "The first wrong case that the first cause explains; empty without one."] = ""
    apart: Annotated[
        Apart | None, "Causes that fit equally well, and the case that tells them apart; null without two."
    ] = None

    @property
    def name(self) -> str:
        return f"{self.operator} on {self.executor}" if self.executor else self.operator

    @property
    def told(self) -> bool:
        """Whether a cause predicts all cases of which one was sought, and was not read off them."""
        return any(
            row.exact == row.of and not (row.cause.weak or row.cause.fitted or row.cause.asked)
            for row in self.causes[:MOST_CAUSES]
        )

    @property
    def head(self) -> str:
        """What stands above its table."""
        some = "" if self.sought == self.wrong else f", causes were looked for in {self.sought}"
        return f"{self.name}: {counted(self.wrong, 'wrong case')}{some}"

    @property
    def rows(self) -> Iterator[tuple[str, str, str]]:
        """The rows of its table, a cause in each, as `COLUMNS` has them."""
        rivals = set() if self.apart is None else {cause.name for cause in self.apart.rivals.causes}
        if not self.causes:
            yield f"0 of {self.sought}", "no known cause fits" if self.sought else "none was looked for", ""
        for cause in self.causes[:MOST_CAUSES]:
            case = self.apart.case if self.apart is not None and cause.name in rivals else ""
            yield f"{cause.fit} of {self.sought}", cause.brief, case
        if len(self.causes) > MOST_CAUSES:
            yield "", choices.more(len(self.causes) - MOST_CAUSES, choices.IN_JSON), ""


def of_kernels(
    cases: Mapping[tuple[str, str], Sequence[WrongCase]],
    runs: Callable[[str], Runs | None] = lambda executor: None,
) -> list[KernelCauses]:
    """What is wrong with each kernel, by its wrong cases. Keys are names of operators and executors.

    ``runs``: by the name of an executor, what says which calls its kernel computes.
    """
    found: list[KernelCauses] = []
    for (op, executor), wrong in cases.items():
        left = MOST_APART - sum(row.apart is not None for row in found)
        found.append(of_kernel(op, executor, wrong, runs(executor) if left else None, tell=bool(left)))
    return found


def of_kernel(
    op: str,
    executor: str,
    wrong: Sequence[WrongCase],
    runs: Runs | None = None,
    most: int = MOST_ELEMENTS,
    tell: bool = True,
) -> KernelCauses:
    """What is wrong with one kernel; see `of_kernels`. Only if ``tell``, equally good causes are told apart.

    ``most`` bounds the elements of the cases among which one is sought that tells them apart.
    """
    sought = [case for case in wrong if case.sought]
    causes = tuple(agreed(sought))
    likeliest = causes[0].name if causes else None
    fit = [(case, cause) for case in sought for cause in case.causes if cause.name == likeliest]
    shown = next((case for case, cause in fit if cause.exact), next((case for case, _ in fit), None))
    two = None if shown is None or not tell else rivals(op, shown.causes, causes)
    apart = None if two is None or shown is None else told(two, most=most, runs=runs, like=shown.bound)
    name = "" if shown is None else shown.name
    return KernelCauses(op, executor, len(wrong), len(sought), causes, name, apart)


def likely(causes: Sequence[Cause]) -> Iterator[str]:
    """The first causes of a case, a line for each, and how many more there are."""
    yield from (f"likely cause: {cause}" for cause in causes[:MOST_CAUSES])
    if len(causes) > MOST_CAUSES:
        yield choices.more(len(causes) - MOST_CAUSES, choices.IN_JSON)


def table_of(found: Sequence[KernelCauses]) -> list[tuple[str, ...]]:
    """One table for a page, its head first: what is wrong with each kernel."""
    rows = [("" if number else row.name, *cells) for row in found for number, cells in enumerate(row.rows)]
    return [("kernel", *COLUMNS), *rows] if rows else []

"""The wrong cases of each kernel, summed up: which cause predicts how many of them, and which case tells two apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from refsim.bytediff.consensus import Agreed, agreed
from refsim.bytediff.rank import Cause
from refsim.core import choices
from refsim.core.counted import counted
from refsim.golden.apart import MOST_ELEMENTS, Apart, rivals, told
from refsim.ops.base.binding import BoundCase
from refsim.ops.base.spec import Call

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

    @classmethod
    def of(cls, name: str, detail: Mapping[str, Any]) -> WrongCase:
        """The case whose causes stand in plain data, if they were looked for."""
        return cls(name, tuple(map(Cause.of, detail.get("causes", ()))), "causes" in detail)


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

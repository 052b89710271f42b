"""What `refsim bisect` found, as a value, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from refsim.bytediff import Report
from refsim.cli.kit.verb import again
from refsim.core import choices
from refsim.core.counted import counted, form
from refsim.core.plain import FLAT
from refsim.core.result import Command, Text
from refsim.device.bisect import Bisected
from refsim.device.complete import CompleteComparison
from refsim.device.dumped import GIVEN, Row
from refsim.golden.told import ToldReport
from refsim.graph.describe import NodeOutput
from refsim.graph.origin import Origins

COLUMNS = ("delegate", "node", "operator", "output", "run", "alone")
#: The options that the command that explains another operator does without.
ONCE = {"--node": True, "-n": True, "--html": True, "--node-data": True}
Verdict = Literal["same", "wrong", "wrong inputs", "not dumped", "does not fit"]


@dataclass(frozen=True)
class ComparedBuffer:
    """How a buffer compares."""

    same: Annotated[bool, "Whether it is the same."]
    differing: Annotated[int, "Elements that differ."]
    illegal: Annotated[int, "Those of them that --profile does not allow."]

    @classmethod
    def of(cls, report: Report | None) -> ComparedBuffer | None:
        return None if report is None else cls(report.same, report.differing, report.illegal)

    def __str__(self) -> str:
        return "same" if self.same else f"different {self.illegal}"


@dataclass(frozen=True)
class BisectNode(NodeOutput):
    """One int8 operator, quantize or dequantize."""

    verdict: Annotated[
        Verdict,
        "`wrong`: the operator itself is; `wrong inputs`: it only got wrong ones; `does not fit`: see `unfit`.",
    ]
    unfit: Annotated[str, "As what other tensor the buffer was recorded; empty if it fits."]
    run: Annotated[
        ComparedBuffer | None, "The dumped buffer against the right one; null if it was not dumped."
    ]
    alone: Annotated[
        ComparedBuffer | None,
        "Against what the operator makes of its dumped inputs; null if these were not dumped.",
    ]

    @classmethod
    def of(cls, row: Row) -> BisectNode:
        run, alone = ComparedBuffer.of(row.run), ComparedBuffer.of(row.alone)
        return cls(row.delegate, row.node, row.operator, row.value, verdict(row), row.unfit, run, alone)

    def cells(self) -> list[object]:
        run = self.run or self.unfit or "not dumped"
        return [self.delegate, self.node, self.operator, self.value, run, self.alone or "-"]


def verdict(row: Row) -> Verdict:
    if row.run is None:
        return "does not fit" if row.unfit else "not dumped"
    return "wrong" if row.wrong else "same" if row.run.same else "wrong inputs"


@dataclass(frozen=True, kw_only=True)
class BisectedFile(CompleteComparison):
    """The first operator of a device's run that goes wrong."""

    actual: Annotated[str, "The dump, or the executor that was run."]
    nodes: Annotated[Sequence[BisectNode], "The operators, in the order of execution."]
    first: Annotated[str | None, "The first value that differs in the run."]
    wrong: Annotated[Sequence[str], "The outputs of operators that are wrong themselves."]
    legal: Annotated[
        Sequence[str],
        "Values that differ, if the profile that was given allows each for the inputs of its operator; else empty.",
    ]
    causes: Annotated[Mapping[str, str], "Known defects of ET-VK's kernels, by output."]
    told: Annotated[ToldReport, FLAT]
    made: Annotated[Origins, FLAT]
    found: Bisected
    dumped: bool

    def text(self) -> Text:
        rows = [(node.at, node.cells()) for node in self.nodes]
        yield self.made.table(COLUMNS, rows, drop=("delegate",))
        yield from self.made.summary()
        yield _dumped(self.found.rows)
        if self.dumped:
            yield self.aimed.line()
        yield from self.whole.lines()
        yield from self._first()
        yield from self._wrong()
        yield from self.told.text()
        yield from self._others()
        doubted = self.found.doubted
        if doubted is not None and not self.wrong:
            yield (
                f"no operator is called wrong: node {doubted.node} {doubted.operator} is right for other inputs; give "
                "those of the device's run with -i, or dump them too"
            )
        if not self.differs:
            yield ("right: " if self.whole.enough else "") + self._closing()

    def _first(self) -> Iterator[str]:
        """The first operator whose buffer is not the right run's, and those before it that the profile excuses."""
        first, profile = self.found.first, self.found.profile
        if first is None:
            return
        before = [] if profile is None else self.found.allowed_before(first)
        beyond = f" otherwise than profile {profile.name} allows" if profile is not None and before else ""
        yield f"first that diverges{beyond}: node {first.node} {first.operator}, {first.value}"
        if profile is not None and before:
            nodes = ", ".join(f"node {row.node} {row.operator}" for row in before)
            differ = form(len(before), "differs", "differ")
            yield f"before it {nodes} {differ}, as profile {profile.name} allows"

    def _wrong(self) -> Iterator[str]:
        for row in self.found.rows:
            if row.wrong:
                how = f"on {GIVEN}" if row.given else "on its own dumped inputs"
                how = how if row.alone is not None else "its inputs were not all dumped"
                yield f"wrong: node {row.node} {row.operator}, {row.value} ({how})"
                yield from self.made.made_by(*row.at)
                if row.cause:
                    yield f"cause: {row.cause}"
            elif row.cause:
                yield f"not judged: node {row.node} {row.operator}, {row.value}: {row.cause}"

    def _others(self) -> Iterator[str]:
        """The command that explains the next of the wrong operators that no report is about, and the others."""
        rows = [row for row in self.found.wrong if row is not self.found.chosen]
        if rows:
            first, *more = rows
            command = again(ONCE, "--node", f"{first.delegate}:{first.node}")
            yield Command(f"explain node {first.node} {first.operator}: {command}")
            if more:
                others = choices.listed(f"{row.delegate}:{row.node}" for row in more)
                yield f"explain the other wrong operators: the same with --node {others}"

    def _closing(self) -> str:
        """The verdict where no operator is wrong."""
        if self.legal and self.found.profile is not None:
            differ = counted(len(self.legal), "buffer", "differ")
            return f"{differ} from the right run, and profile {self.found.profile.name} allows that in each operator"
        count = len(self.found.compared)
        return f"{counted(count, 'compared buffer')} {form(count, 'is', 'are')} the same"


def _dumped(rows: Sequence[Row]) -> str:
    """How many buffers there were to compare."""
    held = [row.is_int8 for row in rows if row.run is not None or row.unfit]
    int8, floats = sum(held), len(held) - sum(held)
    unfit = sum(bool(row.unfit) for row in rows)
    text = f"{int8} of {counted(sum(row.is_int8 for row in rows), 'int8 buffer')} dumped"
    text += f", and {counted(floats, 'float buffer')}" if floats else ""
    return text + (f"; {unfit} {form(unfit, 'does', 'do')} not fit" if unfit else "")

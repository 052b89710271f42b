"""One file on two executors: every buffer of both runs, and whether kernels of another build wrote it rightly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from refsim.bytediff import Report, diff
from refsim.bytediff.invocations import Geometry
from refsim.core.buffer import PackedBuffer, raw_of
from refsim.core.meanings import DifferentBytes, SizeInBytes
from refsim.exec.executor import YOURS, Executor, Source
from refsim.exec.model import Model
from refsim.exec.trace import Traced, trace, unwatched
from refsim.golden.judge import KNOWN_DEFECT, LEGAL, SAME, WRONG, Judged, judged
from refsim.graph.describe import NodeOutput
from refsim.ops.base.binding import BoundCase

Held = PackedBuffer | np.ndarray


@dataclass(frozen=True)
class ComparedRow(NodeOutput):
    """One buffer of both runs. ``bound`` is the call that wrote it on the first executor."""

    bytes: SizeInBytes
    different: DifferentBytes
    first: Held
    second: Held
    bound: BoundCase | None
    source: Annotated[
        Source | None, "Where its kernels came from, if kernels of another build may have run."
    ] = None
    judged: Annotated[
        Judged | None,
        "Whether what these wrote is right for the inputs that they had; null if it needs no judgement.",
    ] = None
    excused: Annotated[bool, "Whether a known defect of upstream's kernels explains the difference."] = False

    @property
    def kernels(self) -> str:
        return "-" if self.source is None else str(self.source)

    @property
    def verdict(self) -> str:
        if self.judged is None:
            return "-"
        allows = self.judged.verdict == LEGAL
        return f"{self.judged}; --profile {self.judged.profiles[0]} allows it" if allows else str(self.judged)

    def report(self, title: str, limit: int, geometry: Geometry | None) -> Report | None:
        """The diff of both; None if they are not packed or float32 ones. ``geometry``: the second's launch."""
        if not (isinstance(self.first, PackedBuffer) and isinstance(self.second, PackedBuffer)):
            return None
        title = f"{self.value} {self.first.desc}, {title}"
        return diff(self.first, self.second, call=self.bound, limit=limit, title=title, geometry=geometry)


@dataclass(frozen=True)
class TwoRuns:
    """What two executors gave."""

    buffers: Annotated[tuple[ComparedRow, ...], "The buffers, in the order of execution."]
    guards: Annotated[tuple[str, ...], "Errors about writes outside of an output, in words."]
    unwatched: Annotated[
        dict[str, list[str]],
        "By executor that prepares whole graphs: outputs that are others in a run that nobody watches.",
    ]

    @property
    def wrong(self) -> ComparedRow | None:
        """The first buffer that differs and that no known defect explains."""
        return next((row for row in self.buffers if row.different and not row.excused), None)

    @property
    def first(
        self,
    ) -> Annotated[str | None, "The first buffer that differs and that no known defect explains."]:
        return None if self.wrong is None else self.wrong.value

    @property
    def same(self) -> bool:
        return self.wrong is None and not self.guards and not any(self.unwatched.values())


def two_runs(
    model: Model, inputs: Sequence[np.ndarray], runners: Mapping[str, Executor], tell: Callable[[], None]
) -> TwoRuns:
    """Run a model on two executors, by their names; ``tell`` is called after each operator."""
    runs: list[dict[str, tuple[Traced, Held]]] = []
    apart: dict[str, list[str]] = {}
    for name, runner in runners.items():
        kept: dict[str, tuple[Traced, Held]] = {}

        def visit(traced: Traced, kept: dict[str, tuple[Traced, Held]] = kept) -> None:
            kept.update((value, (traced, held)) for value, held in traced.outputs.items())
            tell()

        outputs = trace(model, inputs, runner, visit, past_guards=True)
        runs.append(kept)
        if (again := unwatched(model, inputs, runner, outputs)) is not None:
            apart[name] = again[1]
    rows = [_row(value, traced, held, runs[1][value][1]) for value, (traced, held) in runs[0].items()]
    rows = list(_judged(rows, runs, list(runners.values())))
    guards = dict.fromkeys(traced.outside for run in runs for traced, _ in run.values() if traced.outside)
    return TwoRuns(tuple(rows), tuple(guards), apart)


def _row(name: str, traced: Traced, a: Held, b: Held) -> ComparedRow:
    first, second = raw_of(a), raw_of(b)
    different = int((first != second).sum()) if len(first) == len(second) else max(len(first), len(second))
    node = traced.node
    return ComparedRow(
        traced.delegate, node.number, node.operator, name, len(first), different, a, b, traced.bound
    )


def _judged(
    rows: Sequence[ComparedRow], runs: Sequence[dict[str, tuple[Traced, Held]]], runners: Sequence[Executor]
) -> Iterator[ComparedRow]:
    """Say where kernels came from, and whether what they wrote is right for the inputs that they had."""
    excused = False  # whether a known defect came before: it changes what others compute
    for row in rows:
        own: Source | None = None
        found: Judged | None = None
        for run, runner in zip(runs, runners, strict=True):
            traced, held = run[row.value]
            if not runner.foreign or traced.bound is None or not isinstance(held, PackedBuffer):
                continue
            own = runner.source(traced.bound.call)
            if not row.different or own.whose != YOURS:
                continue
            bound = replace(traced.bound, call=runner.meant(traced.bound.call))
            found = judged(bound, held, profiles=(), defects=own.forgiven)
            if found.verdict == WRONG:
                found = judged(bound, held, defects=own.forgiven)
        follows = row.different and excused and (found is None or found.verdict == SAME)
        here = follows or (found is not None and found.verdict == KNOWN_DEFECT)
        yield replace(row, source=own, judged=found, excused=here)
        excused |= here

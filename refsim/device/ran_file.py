"""A run of a file as a value, and its text."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from refsim.core.counted import counted, form
from refsim.core.meanings import DtypeName
from refsim.core.plain import FLAT
from refsim.core.result import Command, Text, shape_text
from refsim.device.complete import CompleteComparison, named, unwatched_lines
from refsim.device.execution import Execution, Misshaped
from refsim.device.losses import RunAccuracy
from refsim.exec.executor import YOURS
from refsim.exec.plan_rows import PlanMemory
from refsim.graph.origin import Origins

COLUMNS = ("delegate", "node", "operator", "kernels", "output", "shape", "layout", "bytes")
#: What a narrow terminal does without, first things first: the output's name has the delegate's number.
DROP = ("delegate", "kernels", "layout", "shape", "bytes")
#: How the names of the executors begin that need no device.
CPU = "cpu"
#: The dump that a next step asks for, and what makes one.
ANY_DUMP = "DIR"
HOW_DUMPED = "refsim run --dump writes one; of a run on a device, refsim expose and then refsim collect"


@dataclass(frozen=True)
class RunOutput:
    """An output of the program."""

    output: Annotated[str, "out0, out1, ..."]
    shape: Annotated[Sequence[int], "The sizes, outermost dim first."]
    dtype: DtypeName
    same: Annotated[
        bool | None, "Whether it is as expected and on all executors the same; null if nothing was compared."
    ]

    def text(self, expect: str | None) -> str:
        text = f"{self.output} {self.dtype} {shape_text(self.shape)}"
        if self.same is None:
            return text
        against = f"as in {expect}" if expect else "on all executors"
        return f"{text}: {'the same bits' if self.same else 'DIFFERENT bits, not'} {against}"


@dataclass(frozen=True, kw_only=True)
class RanFile(CompleteComparison):
    """A run of a file. ``words``: the file, its inputs and its target, as a command line has them."""

    result: Annotated[Execution, FLAT]
    outputs: Annotated[Sequence[RunOutput], "The outputs."]
    upstream: Annotated[
        Sequence[Misshaped],
        "Of a shape below the bound: the operators that ExecuTorch's runtime does not resize.",
    ]
    golden: Annotated[str | None, "What was compared with."]
    memory: Annotated[Mapping[int, PlanMemory] | None, "With --memory, by delegate: what executor cpu holds."]
    accuracy: Annotated[RunAccuracy | None, "With --float: what the run loses."]
    made: Annotated[Origins, FLAT]
    words: Sequence[str]
    expect: str | None
    folder: str | None

    @property
    def same(self) -> bool:
        return not self.differs and (self.golden is None or self.whole.enough)

    @property
    def status(self) -> int:
        return super().status if self.golden is not None else int(self.differs)

    def text(self) -> Text:
        yield from table(self.result, self.golden, self.made)
        if self.golden:
            yield self.aimed.line()
            yield from self.whole.lines()
        for name in self.result.executors:
            yield steps_text(self.result, name)
            yield from host_lines(self.result, name)
        yield from (one.text(self.expect) for one in self.outputs)
        for row in self.upstream:
            yield f"ExecuTorch differs at this shape: node {row.node} {row.operator}: {row.what}"
        yield from unwatched_lines(self.result.unwatched)
        if self.differs:
            said = next_step(self.result, self.words, self.golden)
            yield Command(said)
            if said.endswith(f" {ANY_DUMP}"):
                yield f"{ANY_DUMP}: {HOW_DUMPED}"
        if self.accuracy is not None:
            yield from self.accuracy.text()
        for number, found in (self.memory or {}).items():
            yield f"memory of delegate {number} as a whole: {found}"
        if self.folder is not None:
            yield f"{counted(len(self.result.dumped), 'buffer')} written to {self.folder}"


def outputs_of(result: Execution, wanted: Sequence[np.ndarray] | None) -> list[RunOutput]:
    """Whether the bits of each output are as expected, and equal on all executors."""
    first, *others = result.results.values()
    found = []
    for number, array in enumerate(first):
        against = [run[number] for run in others] + ([wanted[number]] if wanted is not None else [])
        same = all(array.tobytes() == other.tobytes() for other in against) if against else None
        found.append(RunOutput(f"out{number}", array.shape, str(array.dtype), same))
    return found


def table(result: Execution, golden: str | None, made: Origins) -> Text:
    """The table of operators, and what came of the comparison."""
    executors = list(result.results)
    foreign = [name for name in executors if result.runners[name].foreign]
    heads = [*(f"{name} ms" for name in executors), *(f"{name} kernels" for name in foreign)]
    if golden:
        heads += ["golden"] if len(executors) == 1 else [f"{name} golden" for name in executors]
    rows = []
    for row in result.nodes:
        cells: list[object] = [*row.cells(), *(row.time(name) for name in executors)]
        cells += [row.sources.get(name, "-") for name in foreign]
        cells += [row.golden.get(name, "-") for name in executors] if golden else []
        rows.append((row.at, cells))
    more = (f"{name} kernels" for name in foreign)  # the lines below the table sum them up
    yield made.table((*COLUMNS, *heads), rows, (*DROP, *more))
    yield from made.summary()
    for name in foreign:
        yield from _sources(result, name)
    if golden:
        yield _golden(result, golden)


def steps_text(result: Execution, executor: str) -> str:
    """How many steps an executor took, and what kept it from taking fewer."""
    steps = {(row.delegate, row.steps[executor][0]) for row in result.nodes}
    nodes = {row.at for row in result.nodes}
    text = f"{executor}: {counted(len(nodes), 'operator')} in {counted(len(steps), 'step')}"
    watched = sum(map(len, result.watched.values()))
    if not watched:
        return text
    kept = form(watched, "was kept, and its operator ran", "were kept, and their operators ran")
    return f"{text}; {counted(watched, 'buffer')} {kept} alone"


def host_lines(result: Execution, executor: str) -> Iterator[str]:
    """Which operators the host computed in place of the executor's device, how long that took, and why it did."""
    rows = [row for row in result.nodes if executor in row.on_host]
    if not rows:
        return
    nodes = {row.at: row for row in reversed(rows)}
    took = sum(row.ms[executor] for row in rows)
    ran = form(len(nodes), "operator ran", "operators ran")
    yield f"{executor}: {len(nodes)} {ran} on the host, {took:.3f} ms, and not on the device:"
    for why in dict.fromkeys(row.on_host[executor] for row in rows):
        names = Counter(row.operator for row in reversed(nodes.values()) if row.on_host[executor] == why)
        yield f"  {', '.join(f'{name} x {n}' if n > 1 else name for name, n in names.items())}: {why}"


def _sources(result: Execution, executor: str) -> Iterator[str]:
    """How many operators ran on kernels of another build, why others did not, and what such kernels are known for."""
    found = {row.at: row for row in result.nodes if executor in row.sources}
    yours = sum(row.sources[executor].whose == YOURS for row in found.values())
    yield f"{executor}: {yours} of {counted(len(found), 'operator')} ran on your kernels"
    for why in dict.fromkeys(row.sources[executor].why for row in found.values()):
        if why:
            names = dict.fromkeys(row.operator for row in found.values() if row.sources[executor].why == why)
            yield f"{executor}: ours for {', '.join(names)}: {why}"
    for row in found.values():
        source = row.sources[executor]
        if source.whose == YOURS and source.forgiven and row.known:
            yield f"{executor}: node {row.node} {row.operator}: known defect of upstream: {', '.join(row.known)}"


def _golden(result: Execution, golden: str) -> str:
    """One sentence about all buffers."""
    checks = [check for row in result.nodes for check in row.golden.values()]
    compared, different = sum(c.compared for c in checks), sum(c.different for c in checks)
    count = sum(bool(row.golden) for row in result.nodes)
    on = "" if len(result.results) == 1 else f" on each of {', '.join(result.results)}"
    compared //= len(result.results)
    what = f"{counted(count, 'buffer')}, {counted(compared, 'byte')} compared{on} with {golden}"
    text = (
        f"{what}: {counted(different, 'byte', 'differ')}"
        if compared
        else f"nothing was compared{on} with {golden}"
    )
    return text + (
        f"; not in this run: {named(result.golden_without_buffer)}" if result.golden_without_buffer else ""
    )


def next_step(result: Execution, words: Sequence[str], golden: str | None) -> str:
    """The command that says which operator gave other bytes; ``words``: the file, its inputs and its target."""
    (name, first), *others = result.results.items()
    parts = (
        n for n, run in others if any(a.tobytes() != b.tobytes() for a, b in zip(first, run, strict=True))
    )
    if (other := next(parts, None)) is not None:
        return f"which operator: {_command('compare', *words, '-x', name, '-x', other)}"
    if result.different and golden is not None:
        return f"which operator: {_command('bisect', *words, '--actual', golden)}"
    if (device := next((n for n in result.results if not n.startswith(CPU)), None)) is not None:
        return f"which operator: {_command('bisect', *words, '-x', device)}"
    command = _command("bisect", *words, "--actual", ANY_DUMP)
    return f"which operator, if {ANY_DUMP} is a dump of the other run: {command}"


def _command(*words: str) -> str:
    return shlex.join(["refsim", *words])

"""Run a file many times on one executor, and say whether all runs give the same bytes, and where they part if not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import click
import numpy as np

from refsim.bytediff.versions import Judgement, judge
from refsim.cli.kit.options import (
    EXECUTORS,
    executor_profile_option,
    html_option,
    inputs_options,
    limit_option,
    threads_option,
)
from refsim.cli.kit.report import write_html
from refsim.cli.kit.target import GivenInputs, target_option
from refsim.cli.kit.verb import verb
from refsim.core import choices
from refsim.core.buffer import PackedBuffer
from refsim.core.counted import counted
from refsim.core.doing import progress
from refsim.core.meanings import OperatorName, SizeInBytes
from refsim.core.plain import FLAT, Column
from refsim.core.qmath import Profile
from refsim.core.result import Table, Text
from refsim.device.complete import CompleteComparison, Completeness
from refsim.device.opened import opened
from refsim.exec.again import Again
from refsim.exec.factory import executor_named
from refsim.exec.repeat import Buffer, Repeated, repeat
from refsim.exec.share import shares
from refsim.formats.targets import TargetRow
from refsim.golden.told import ToldReport

MOST_COUNTS = 8
MOST_RUNS = 10_000  # a digest of each buffer and run stays in memory


@dataclass(frozen=True)
class RepeatedOutput:
    """An output of the program."""

    output: Annotated[str, "out0, out1, ..."]
    distinct: Annotated[int, "How many different contents it had."]


@dataclass(frozen=True)
class RepeatRow:
    """One buffer in all runs."""

    delegate: Annotated[
        int | None, "Number of the delegate; null for an output of the program.", Column(drop=1)
    ]
    node: Annotated[
        int | None,
        "Number of the node; null for an input of a delegate, or an output of the program.",
        Column(),
    ]
    operator: Annotated[OperatorName, Column()]
    value: Annotated[str, "The value's name.", Column("output")]
    bytes: Annotated[SizeInBytes, Column(drop=2)]
    distinct: Annotated[int, "How many different contents it had.", Column()]


@dataclass(frozen=True)
class RepeatedContent:
    """A content of the first buffer that differs."""

    runs: Annotated[int, "In how many runs it was there."]
    first_run: Annotated[int, "The first of them, counted from 0."]


@dataclass(frozen=True)
class FirstParted(RepeatRow):
    """The first buffer that differs."""

    counts: Annotated[Sequence[int], "In how many runs each content was there."]
    examples: Annotated[Sequence[RepeatedContent], "The most common contents."]
    judgement: Annotated[Judgement | None, "What is known of these; null for a buffer that is not packed."]


@dataclass(frozen=True, kw_only=True)
class RepeatedFile(CompleteComparison):
    """Many runs with the same inputs."""

    executor: Annotated[str, "The executor."]
    runs: Annotated[int, "How many runs."]
    results: Annotated[Sequence[int], "How many runs gave each distinct result, in all buffers."]
    by_outputs: Annotated[Sequence[int], "The same, in the outputs alone."]
    outputs: Annotated[Sequence[RepeatedOutput], "The outputs."]
    buffers: Annotated[Sequence[RepeatRow], "The buffers, in the order of execution."]
    first: Annotated[FirstParted | None, "The first buffer that differs."]
    told: Annotated[ToldReport, FLAT]
    found: Repeated

    def text(self) -> Text:
        yield Table.of(RepeatRow, self.buffers)
        yield from self._lines()
        yield from self.whole.lines()
        yield from self.told.text()

    def _lines(self) -> Iterator[str]:
        found, runs = self.found, f"{counted(self.runs, 'run')} on {self.executor}"
        if found.same:
            yield f"{runs}: the same bytes in all of them"
            return
        yield f"{runs}: {counted(len(self.results), 'distinct result')}, {len(self.by_outputs)} of the outputs"
        for output in found.outputs:
            yield f"{output.name}: {_counts(output)}"
        first, buffer = self.first, found.first
        assert first is not None and buffer is not None  # the runs differ in some buffer, or in an output
        node = "" if first.node is None else f"node {first.node} "
        yield f"first: {node}{first.operator}, {first.value}: {_counts(buffer)}"
        if first.judgement is not None:
            yield from _sentences(found, first.judgement)
        elif found.examples:
            yield f"  {_bytes_that_flip(found)} of {counted(first.bytes, 'byte', 'flip')}"


@verb("repeat", "model.pte --random 0 -x gpu -n 100")
@click.argument("file")
@click.option(
    "--executor",
    "-x",
    "name",
    metavar="NAME",
    default="cpu",
    show_default=True,
    help=f"{EXECUTORS}.",
)
@click.option(
    "--runs",
    "-n",
    type=click.IntRange(2, MOST_RUNS),
    default=100,
    show_default=True,
    help="How many times to run.",
)
@inputs_options
@target_option()
@executor_profile_option
@threads_option
@limit_option
@html_option
def command(
    file: str,
    name: str,
    runs: int,
    inputs: str | None,
    seed: int | None,
    family: TargetRow | None,
    profile: Profile | None,
    threads: int,
    limit: int,
    html: str | None,
) -> RepeatedFile:
    """Run FILE many times on the same inputs, and compare all bytes of every buffer between the runs.

    If they differ, the verb names the first operator whose results differ, the elements that change, and the result
    that is right.
    """
    asked = GivenInputs(inputs, seed)
    aimed = opened(file, family, profile, shaped=asked.at)
    model = aimed.model
    given = asked.of(model)
    executor = executor_named(name, threads)
    with progress("run", runs) as tell:
        found = repeat(model, given, executor, runs, tell)
    judged = _judged(found, limit)
    told = ToldReport.of(None if judged is None else judged.report, name, executor)
    write_html(told, html)
    held = [buffer.name for buffer in (*found.buffers, *found.outputs) if buffer.nbytes]
    whole = Completeness(file, held, frozenset(held), own=shares(model, {name: executor}))
    first = None if found.first is None else _first(found, found.first, judged)
    return RepeatedFile(
        file=file, aimed=aimed, whole=whole, differs=not found.same, executor=name, runs=found.runs,
        results=list(map(len, found.results)), by_outputs=list(map(len, found.by_outputs)),
        outputs=[RepeatedOutput(b.name, len(b.results)) for b in found.outputs],
        buffers=[RepeatRow(*_about(b)) for b in found.buffers], first=first, told=told, found=found,
    )  # fmt: skip


def _about(buffer: Buffer) -> tuple[int | None, int | None, str, str, int, int]:
    node = None if buffer.node is None else buffer.node.number
    return (buffer.delegate, node, buffer.operator, buffer.name, buffer.nbytes, len(buffer.results))


def _first(found: Repeated, first: Buffer, judged: Judgement | None) -> FirstParted:
    counts = [len(members) for members in first.results.values()]
    examples = [RepeatedContent(len(one.runs), one.runs[0]) for one in found.examples]
    return FirstParted(*_about(first), counts, examples, judged)


def _judged(found: Repeated, limit: int) -> Judgement | None:
    """None if all runs are the same, or if the first buffer that differs is not a packed or float32 one."""
    held = [example.held for example in found.examples]
    versions = [buffer for buffer in held if isinstance(buffer, PackedBuffer)]
    if found.first is None or not versions or len(versions) < len(held):
        return None
    title = f"{found.first.name} {versions[0].desc}, of the most common result that is wrong"
    seen = Again(len(found.first.results), found.runs).told
    return judge(versions, found.bound, limit=limit, title=title, seen=seen)


def _counts(buffer: Buffer) -> str:
    counts = [len(members) for members in buffer.results.values()]
    if len(counts) == 1:
        return "the same in all runs"
    shown = choices.first(counts, MOST_COUNTS, choices.IN_JSON)
    return f"{len(counts)} distinct results (runs: {shown})"


def _sentences(found: Repeated, judged: Judgement) -> Iterator[str]:
    padding = f", {counted(judged.padding, 'cell')} of padding too" if judged.padding else ""
    yield f"  {judged.flips} of {counted(judged.elements, 'element', 'flip')}{padding}"
    yield from (f"  {line}" for line in judged.pattern)
    if found.bound is None:
        yield "  which of them is right is not known: no q8ta kernel wrote this buffer"
        return
    for number, (example, version) in enumerate(zip(found.examples, judged.versions, strict=True), 1):
        seen = f"in {len(example.runs)} of {counted(found.runs, 'run')}"
        runs = f"result {number}, {seen}, first in run {example.runs[0]}"
        how = f" under {', '.join(version.profiles)}" if version.verdict == "legal" else ""
        wrong = f", {counted(version.wrong or 0, 'cell')}" if version.verdict == "wrong" else ""
        yield f"  {runs}: {version.verdict}{how}{wrong}"


def _bytes_that_flip(found: Repeated) -> int:
    raws = [np.frombuffer(np.asarray(e.held).tobytes(), np.uint8) for e in found.examples]
    return int((np.stack(raws) != raws[0]).any(axis=0).sum())

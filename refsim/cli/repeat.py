"""Run a file many times on one executor, and say whether all runs give the same bytes, and where they part if not."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import click
import numpy as np

from refsim.bytediff.versions import Judgement, judge
from refsim.cli.kit.apart import Telling
from refsim.cli.kit.buffers import GivenInputs, inputs_options, print_report, write_html
from refsim.cli.kit.complete import Completeness
from refsim.cli.kit.options import (
    EXECUTORS,
    executor_profile_option,
    html_option,
    limit_option,
    threads_option,
)
from refsim.cli.kit.progress import progress
from refsim.cli.kit.target import opened, target_option
from refsim.cli.kit.text import print_table, say_all
from refsim.cli.kit.verb import Result, verb
from refsim.core import choices
from refsim.core.buffer import PackedBuffer
from refsim.core.counted import counted
from refsim.core.qmath import Profile
from refsim.exec.again import Again
from refsim.exec.factory import executor_named
from refsim.exec.repeat import Buffer, Repeated, repeat
from refsim.exec.share import as_json as as_json_of
from refsim.exec.share import shares
from refsim.formats.targets import TargetRow

COLUMNS = ("delegate", "node", "operator", "output", "bytes", "distinct")
MOST_COUNTS = 8
MOST_RUNS = 10_000  # a digest of each buffer and run stays in memory


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
) -> Result:
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
    report = None if judged is None else judged.report
    telling = Telling(name, executor)
    write_html(html, report, telling.texts(report))
    held = [buffer.name for buffer in (*found.buffers, *found.outputs) if buffer.nbytes]
    whole = Completeness(file, held, frozenset(held), own=shares(model, {name: executor}))
    content = {
        "file": file, "executor": name, **aimed.as_json(), "runs": found.runs,
        "same": found.same and whole.enough,
        "results": list(map(len, found.results)), "by_outputs": list(map(len, found.by_outputs)),
        "outputs": [{"output": b.name, "distinct": len(b.results)} for b in found.outputs],
        "buffers": [_facts(b) for b in found.buffers],
        "first": None if found.first is None else _first(found, found.first, judged),
        "report": None if report is None else report.as_json(), "apart": telling.as_json(report),
        **as_json_of(whole.own),
    }  # fmt: skip
    show = partial(_show, name, found, judged, whole, telling)
    return Result(content, show, partial(whole.status, found.same))


def _show(
    name: str, found: Repeated, judged: Judgement | None, whole: Completeness, telling: Telling
) -> None:
    print_table(COLUMNS, [_cells(buffer) for buffer in found.buffers], drop=("delegate", "bytes"))
    say_all((*_lines(name, found, judged), *whole.lines()))
    if judged is not None and judged.report is not None:
        print_report(judged.report, telling)


def _cells(buffer: Buffer) -> list[object]:
    node = None if buffer.node is None else buffer.node.number
    return [buffer.delegate, node, buffer.operator, buffer.name, buffer.nbytes, len(buffer.results)]


def _facts(buffer: Buffer) -> dict[str, Any]:
    """The same as plain data."""
    keys = ("delegate", "node", "operator", "value", "bytes", "distinct")
    return dict(zip(keys, _cells(buffer), strict=True))


def _judged(found: Repeated, limit: int) -> Judgement | None:
    """None if all runs are the same, or if the first buffer that differs is not a packed or float32 one."""
    held = [example.held for example in found.examples]
    versions = [buffer for buffer in held if isinstance(buffer, PackedBuffer)]
    if found.first is None or not versions or len(versions) < len(held):
        return None
    title = f"{found.first.name} {versions[0].desc}, of the most common result that is wrong"
    seen = Again(len(found.first.results), found.runs).told
    return judge(versions, found.bound, limit=limit, title=title, seen=seen)


def _first(found: Repeated, first: Buffer, judged: Judgement | None) -> dict[str, Any]:
    return _facts(first) | {
        "counts": [len(members) for members in first.results.values()],
        "examples": [{"runs": len(e.runs), "first_run": e.runs[0]} for e in found.examples],
        "judgement": None if judged is None else judged.as_json(),
    }


def _lines(name: str, found: Repeated, judged: Judgement | None) -> Iterator[str]:
    if found.same:
        yield f"{counted(found.runs, 'run')} on {name}: the same bytes in all of them"
        return
    yield (
        f"{counted(found.runs, 'run')} on {name}: {counted(len(found.results), 'distinct result')}, "
        f"{len(found.by_outputs)} of the outputs"
    )
    for output in found.outputs:
        yield f"{output.name}: {_counts(output)}"
    first = found.first
    assert first is not None  # the runs differ in some buffer, or in an output
    node = "" if first.node is None else f"node {first.node.number} "
    yield f"first: {node}{first.operator}, {first.name}: {_counts(first)}"
    if judged is not None:
        yield from _sentences(found, judged)
    elif found.examples:
        yield f"  {_bytes_that_flip(found)} of {counted(first.nbytes, 'byte', 'flip')}"


def _counts(buffer: Buffer) -> str:
    counts = [len(members) for members in buffer.results.values()]
    if len(counts) == 1:
        return "the same in all runs"
    shown = choices.first(counts, MOST_COUNTS, choices.IN_JSON)
    return f"{len(counts)} distinct results (runs: {shown})"


def _sentences(found: Repeated, judged: Judgement) -> Iterator[str]:
    padding = f", {counted(judged.padding, 'cell')} of padding too" if judged.padding else ""
    yield f"  {judged.flips} of {counted(judged.elements, 'element', 'flip')}{padding}"
    if judged.region is not None:
        yield f"  {judged.region}"
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

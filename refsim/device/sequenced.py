"""A table of runs at several shapes, as one process of ExecuTorch's would give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from refsim.core.result import Comparison, Table, Text, shape_text
from refsim.device.opened import Opened, OpenedFile
from refsim.exec.factory import executor_named
from refsim.exec.sequence import sequence

COLUMNS = ("run", "inputs", "output", "shape", "should be", "wrong", "stale", "unwritten", "alone")


@dataclass(frozen=True)
class SequenceOutput:
    """An output of a run."""

    shape: Annotated[Sequence[int], "The shape that ExecuTorch's runtime gives it."]
    meant: Annotated[Sequence[int], "The shape that the program means."]
    wrong: Annotated[int, "Elements of that shape that have other bits."]
    stale: Annotated[int, "Elements beside these."]
    unwritten: Annotated[int, "Elements that depend on memory into which no run wrote."]


@dataclass(frozen=True)
class SequenceRun:
    """One run of a sequence."""

    inputs: Annotated[str, "The file of its inputs."]
    shapes: Annotated[Sequence[Sequence[int]], "Their shapes."]
    outputs: Annotated[Sequence[SequenceOutput], "Its outputs; none if the runtime throws."]
    as_alone: Annotated[bool, "Whether a process that runs nothing else gives the same."]
    stopped: Annotated[str | None, "Why the runtime throws."]
    right: Annotated[bool, "Whether every output is what the program means."]

    def rows(self, number: int) -> list[list[object]]:
        head = [number, " ".join(map(shape_text, self.shapes))]
        last = "the same" if self.as_alone else "otherwise"
        return [
            [*head, f"out{k}", shape_text(o.shape), shape_text(o.meant), o.wrong, o.stale, o.unwritten, last]
            for k, o in enumerate(self.outputs)
        ] or [[*head, "throws", "-", "-", "-", "-", "-", last]]


@dataclass(frozen=True, kw_only=True)
class RanSequence(OpenedFile, Comparison):
    """With --sequence: runs at several shapes, one after another."""

    executors: Annotated[Sequence[str], "The executor."]
    sequence: Annotated[Sequence[SequenceRun], "The runs, in their order."]

    def text(self) -> Text:
        yield Table(COLUMNS, [row for number, run in enumerate(self.sequence) for row in run.rows(number)])
        yield from dict.fromkeys(run.stopped for run in self.sequence if run.stopped)


def run_sequence(
    file: str, aimed: Opened, paths: Sequence[str], many: Sequence[Sequence[np.ndarray]], executor: str
) -> RanSequence:
    """What runs with the inputs of these files, ``many``, give, one after another."""
    runs = []
    steps = sequence(aimed.model, many, executor_named(executor))
    for path, inputs, step in zip(paths, many, steps, strict=True):
        outputs = [
            SequenceOutput(found.shape, need.shape, step.wrong(k), step.stale(k), int(step.never[k].sum()))
            for k, (found, need) in enumerate(zip(step.outputs, step.meant, strict=False))
        ]
        shapes = [array.shape for array in inputs]
        runs.append(SequenceRun(path, shapes, outputs, step.as_alone, step.stopped or None, step.right))
    same = all(run.right for run in runs)
    return RanSequence(file=file, aimed=aimed, executors=[executor], sequence=runs, same=same)

"""What a whole buffer would hold by an edit: in plain Python where that is little work, else by a compiled copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refsim.bytediff.search.bench import Bench, Out, ReadWords, Step
from refsim.bytediff.search.candidate import Candidate
from refsim.bytediff.search.device import loaded
from refsim.bytediff.search.schema import Entry, KernelEdit
from refsim.core import jit
from refsim.core.buffer import with_outside
from refsim.core.launch import Triple


def predicted(
    bench: Bench, row: Candidate, fills: tuple[int, ...], actual: np.ndarray, limit: int
) -> np.ndarray | None:
    """The words of the output buffer if a candidate were true; None if its kernel fails.

    ``limit``: more steps of loops are not taken in plain Python. ``fills`` are what words may hold that nobody wrote.
    """
    held: dict[str, np.ndarray] = {}
    for at, step in enumerate(bench.steps):
        inputs = {name: held[name] if name in held else bench.arrays[name] for name in step.inputs}
        words, written = _run(bench, at, row, inputs, limit)
        if words is None:
            return None
        if at == len(bench.steps) - 1:
            fill = max(fills, key=lambda value: int((actual[~written] == value).sum()), default=0)
            return np.where(written, words, np.int32(fill))
        held[step.output] = words
    return None


def _run(
    bench: Bench, at: int, row: Candidate, inputs: dict[str, np.ndarray], limit: int
) -> tuple[np.ndarray | None, np.ndarray]:
    """(words, which were written) of one step; no words if it fails."""
    step, device = bench.steps[at], row.device
    edited = row.edit is not None and at == row.step
    if device is not None and device.holds(at):
        edited = True
        inputs = {
            name: loaded(words, device.read[name], bench.guards) if name in device.read else words
            for name, words in inputs.items()
        }
    edits = (row.edit, row.entry, row.also) if at == row.step else (None, None, None)
    reached = step.reached(device if edited else None)
    launch = reached, *bench.launched(at, device)
    if not edited and not step.schema.instead:
        return _compiled(step.kernel.run, step, launch, inputs)
    try:
        if bench.cost <= limit:
            read = {name: bench.read(name, words) for name, words in inputs.items()}
            return _plain(step, edits, launch, read, limit)
        right = edits[0] is None and not step.schema.instead
        if device is not None and right and device.keeps_indices:
            return _compiled(step.kernel.run, step, launch, inputs)
        around = {name: with_outside(words, bench.guards) for name, words in inputs.items()}
        return _compiled(step.schema.built(*edits), step, launch, around)
    except Exception:  # whatever stops a wrong kernel: it predicts nothing
        return None, np.zeros(0, bool)


#: The edits of a kernel, as `KernelSchema.select` takes them.
Edits = tuple[KernelEdit | None, Entry | None, KernelEdit | None]
#: How many work items, specialization words, and push words.
Launched = tuple[Triple, Sequence[int], Sequence[int]]


def _plain(
    step: Step, edits: Edits, launch: Launched, inputs: dict[str, ReadWords], limit: int
) -> tuple[np.ndarray, np.ndarray]:
    schema = step.schema
    out = Out()
    out.size = step.launch.out.words
    schema.select(*edits)
    schema.left[0] = 4 * limit
    try:
        items = list(np.ndindex(launch[0]))
        schema.run(items, *launch[1:], *inputs.values(), out)
    finally:
        schema.select(None)
    words, written = np.zeros(out.size, np.int64), np.zeros(out.size, bool)
    for at, value in out.items():
        if 0 <= at < out.size:
            words[at], written[at] = int(value) & 0xFFFFFFFF, True
    return words.astype(np.uint32).view(np.int32), written


def _compiled(
    kernel: Any, step: Step, launch: Launched, inputs: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    jit.ready()
    reached, (spec, push) = launch[0], (np.array(launch[1], np.int64), np.array(launch[2], np.int32))
    found = []
    for before in (0, -1):
        out = np.full(step.launch.out.words, before, np.int32)
        kernel(reached, spec, push, *(np.ascontiguousarray(array) for array in inputs.values()), out)
        found.append(out)
    return found[0], found[0] == found[1]

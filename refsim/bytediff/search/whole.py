"""What a whole buffer would hold by an edit: in plain Python where that is little work, else by a compiled copy."""

from __future__ import annotations

from typing import Any

import numpy as np

from refsim.bytediff.search.bench import Bench, Out, ReadWords, Step
from refsim.bytediff.search.rewrite import BEHIND
from refsim.bytediff.search.schema import Entry, KernelEdit
from refsim.core import jit
from refsim.ops.base.registry import kernel_of


def predicted(
    bench: Bench,
    number: int,
    edit: KernelEdit,
    entry: Entry | None,
    fills: tuple[int, ...],
    actual: np.ndarray,
    limit: int,
) -> np.ndarray | None:
    """The words of the output buffer if the kernel of one step had an edit; None if it fails.

    ``limit``: more steps of loops are not taken in plain Python. ``fills`` are what words may hold that nobody wrote.
    """
    held: dict[str, np.ndarray] = {}
    for at, step in enumerate(bench.steps):
        if at < number:
            inputs = _given(bench, step, held)
            held[step.output] = _right(step, inputs)
            continue
        words, written = _run(bench, step, edit if at == number else None, entry, held, limit)
        if words is None:
            return None
        if at == len(bench.steps) - 1:
            fill = max(fills, key=lambda value: int((actual[~written] == value).sum()), default=0)
            return np.where(written, words, np.int32(fill))
        held[step.output] = words
    return None


def _given(bench: Bench, step: Step, held: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: held[name] if name in held else bench.arrays[name] for name in step.inputs}


def _right(step: Step, inputs: dict[str, Any]) -> np.ndarray:
    """The words of a step's output by the right kernel."""
    return _compiled(kernel_of(step.launch.shader).run, step, inputs)[0]


def _run(
    bench: Bench,
    step: Step,
    edit: KernelEdit | None,
    entry: Entry | None,
    held: dict[str, np.ndarray],
    limit: int,
) -> tuple[np.ndarray | None, np.ndarray]:
    """(words, which were written) of one step; no words if it fails."""
    inputs = _given(bench, step, held)
    if edit is None:
        return _compiled(kernel_of(step.launch.shader).run, step, inputs)
    nothing = np.zeros(0, bool)
    try:
        if bench.cost <= limit:
            return _plain(step, edit, entry, inputs, limit)
        padded = {name: np.append(array, np.zeros(BEHIND, np.int32)) for name, array in inputs.items()}
        return _compiled(step.schema.built(edit, entry), step, padded)
    except Exception:  # whatever stops a wrong kernel: it predicts nothing
        return None, nothing


def _plain(
    step: Step, edit: KernelEdit, entry: Entry | None, inputs: dict[str, Any], limit: int
) -> tuple[np.ndarray, np.ndarray]:
    schema = step.schema
    out = Out()
    out.size = step.launch.out.words
    schema.select(edit, entry)
    schema.left[0] = 4 * limit
    try:
        schema.run(step.items, step.spec, step.push, *(ReadWords.of(array) for array in inputs.values()), out)
    finally:
        schema.select(None)
    words, written = np.zeros(out.size, np.int64), np.zeros(out.size, bool)
    for at, value in out.items():
        if 0 <= at < out.size:
            words[at], written[at] = int(value) & 0xFFFFFFFF, True
    return words.astype(np.uint32).view(np.int32), written


def _compiled(kernel: Any, step: Step, inputs: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    jit.ready()
    x, y, z = step.launch.reached
    spec, push = np.array(step.spec, np.int64), np.array(step.push, np.int32)
    found = []
    for before in (0, -1):
        out = np.full(step.launch.out.words, before, np.int32)
        kernel((z, y, x), spec, push, *(np.ascontiguousarray(array) for array in inputs.values()), out)
        found.append(out)
    return found[0], found[0] == found[1]

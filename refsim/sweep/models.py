"""Whole models on random inputs: each buffer against the definitions, and the outputs of a run that nobody watches.

The second is what executors may compute in fewer steps and in other layouts than the graph has.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from refsim.core.buffer import PackedBuffer
from refsim.core.errors import MissingDependencyError, RefsimError, UnknownOperatorError
from refsim.core.qmath import Profile
from refsim.exec.definition import Definition
from refsim.exec.executor import Executor
from refsim.exec.model import Model, load
from refsim.exec.trace import Traced, trace
from refsim.formats.cases import contents
from refsim.formats.dumps import value_name
from refsim.golden.check import DIFFERENT, ERROR
from refsim.golden.judge import SAME
from refsim.graph.interpreter import Event
from refsim.ops.base.target import Target
from refsim.sweep.executors import Executors
from refsim.sweep.outcome import REFUSED, Failure, Outcome
from refsim.sweep.plan import Chunk, Variant

Held = PackedBuffer | np.ndarray
FOREIGN = "kernels of another build are compared call by call only"


class _Different(Exception):
    """A buffer with other bytes; ends the run."""


class ModelRunner:
    """One model after another, with the executors that hold what they prepacked for it."""

    def __init__(self) -> None:
        self._key: tuple[str, Profile] | None = None
        self._model: Model | None = None
        self._executors = Executors()

    def run(self, chunk: Chunk, runners: Mapping[Variant, Executor]) -> list[Outcome]:
        """An outcome for each variant. What a runner refuses as a whole is decided by ``runners``."""
        found = {v: Outcome(chunk.subject, chunk.first, chunk.count, v) for v in chunk.variants}
        # in this order each model is loaded once
        for number in sorted(chunk.numbers, key=lambda k: k % len(chunk.profiles)):
            seed, profile = chunk.draw(number)
            try:
                model = self._load(chunk.subject, profile)
                inputs = model.random_inputs(seed)
                nodes: list[Traced] = []
                outputs = trace(model, inputs, Definition(), nodes.append)
            except (MissingDependencyError, UnknownOperatorError) as error:
                for outcome in found.values():
                    outcome.statuses[REFUSED] += 1
                    outcome.reasons[str(error)] += 1
                continue
            except RefsimError as error:
                for variant, outcome in found.items():
                    outcome.fail(
                        Failure(chunk.subject, seed, profile.name, variant, ERROR, f"define: {error}")
                    )
                continue
            for variant, outcome in found.items():
                if runners[variant].foreign:
                    outcome.statuses[REFUSED] += 1
                    outcome.reasons[FOREIGN] += 1
                    continue
                begin = time.perf_counter()
                status, message, at = _compared(model, inputs, self._executors[variant], nodes, outputs)
                outcome.seconds += time.perf_counter() - begin
                outcome.nbytes += sum(_bytes(held) for node in nodes for held in node.outputs.values())
                if status == SAME:
                    outcome.statuses[SAME] += 1
                    continue
                outcome.fail(
                    Failure(
                        chunk.subject, seed, profile.name, variant, status, message,
                        f"{chunk.subject} --random {seed} --profile {profile.name}", _files(at),
                    )
                )  # fmt: skip
        return list(found.values())

    def _load(self, path: str, profile: Profile) -> Model:
        if self._key != (path, profile) or self._model is None:
            self._executors.close()
            self._model, self._key = load(path, Target(profile)), (path, profile)
        return self._model


def _compared(
    model: Model, inputs: list[np.ndarray], executor: Executor, nodes: list[Traced], outputs: list[np.ndarray]
) -> tuple[str, str, Traced | None]:
    """(status, why, the node whose bytes are different)."""
    expected = {name: (node, held) for node in nodes for name, held in node.outputs.items()}
    wrong: list[Traced] = []

    def look(event: Event) -> None:
        for value, held in event.outputs.items():
            node, right = expected[value_name(event.delegate, value)]
            if not _equal(held, right):
                wrong.append(node)
                raise _Different

    try:
        model.run(inputs, executor, look)
        alone = model.run(inputs, executor)
    except _Different:
        return DIFFERENT, f"{wrong[0].node} writes other bytes to {wrong[0].output}", wrong[0]
    except Exception as error:  # an executor's defect fails its configuration, not the sweep
        return ERROR, f"{type(error).__name__}: {error}", None
    for number, (ours, right) in enumerate(zip(alone, outputs, strict=True)):
        if not _equal(ours, right):
            return DIFFERENT, f"output {number} of a run that nobody watches", None
    return SAME, "", None


def _equal(one: Held, other: Held) -> bool:
    if isinstance(one, PackedBuffer) or isinstance(other, PackedBuffer):
        return bool(one == other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _bytes(held: Held) -> int:
    return held.desc.nbytes if isinstance(held, PackedBuffer) else int(held.nbytes)


def _files(node: Traced | None) -> dict[str, bytes]:
    """The call of a node as a case, with the inputs that it has by definition."""
    if node is None or node.bound is None:
        return {}
    bound: Any = node.bound
    return contents(bound, bound.call.expected(bound.inputs), f"sweep: {node.node}")

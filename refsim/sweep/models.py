"""Whole models and random graphs: every plan that can run, against the definitions.

An executor may compute what nobody watches in fewer steps and in other layouts than the graph has. So each runs
watched, watched in part, and as users run it, after a run on other inputs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from refsim.core import doing
from refsim.core.buffer import PackedBuffer, raw_of
from refsim.core.errors import MissingDependencyError, RefsimError, UnknownOperatorError
from refsim.core.qmath import Profile
from refsim.core.rng import Rng
from refsim.exec.executor import Definition, Executor
from refsim.exec.model import Model, load
from refsim.exec.trace import Traced, trace
from refsim.formats.cases import contents
from refsim.formats.dumps import value_name
from refsim.golden.chain import ChainCase
from refsim.golden.check import DIFFERENT, ERROR
from refsim.golden.judge import SAME
from refsim.graph.interpreter import Event, Observer
from refsim.ops.base.target import Target
from refsim.sweep.executors import Executors, refusal
from refsim.sweep.graphs import cut, draw, told
from refsim.sweep.outcome import Outcome
from refsim.sweep.plan import Chunk, SweepVariant

Held = PackedBuffer | np.ndarray
Inputs = list[np.ndarray]
#: How a configuration ended, why, and the node whose bytes are different.
Verdict = tuple[str, str, Traced | None]
FOREIGN = "kernels of another build are compared call by call only"


class _Different(Exception):
    """A buffer with other bytes; ends the run."""


@dataclass(frozen=True)
class DrawnModel:
    """A model with the inputs of a configuration, those of a run before it, and what it gives by definition."""

    model: Model
    inputs: list[np.ndarray]
    others: list[np.ndarray]
    nodes: list[Traced]
    outputs: list[np.ndarray]
    seed: int
    chain: ChainCase | None = None
    smaller: DrawnModel | None = None

    @classmethod
    def of(
        cls, model: Model, inputs: Inputs, others: Inputs, seed: int, chain: ChainCase | None = None
    ) -> DrawnModel:
        nodes: list[Traced] = []
        outputs = trace(model, inputs, Definition(), nodes.append)
        return cls(model, inputs, others, nodes, outputs, seed, chain)

    @property
    def text(self) -> str:
        """What it is, and how it is had again."""
        if self.chain is None:
            return f"{self.model.path} --random {self.seed}"
        return f"{told(self.chain)} (refsim.sweep.graphs.draw({self.seed}))"


class ModelRunner:
    """One model after another, with the executors that hold what they prepacked for it."""

    def __init__(self) -> None:
        self._key: tuple[str, Profile] | None = None
        self._model: Model | None = None
        self._executors = Executors()

    def run(self, chunk: Chunk, runners: Mapping[SweepVariant, Executor]) -> list[Outcome]:
        """An outcome for each variant. What a runner refuses as a whole is decided by ``runners``."""
        found = {v: Outcome(chunk.subject, chunk.first, chunk.count, v) for v in chunk.variants}
        # in this order each model is loaded once
        for number in sorted(chunk.numbers, key=lambda k: k % len(chunk.profiles)):
            seed, profile = at = chunk.draw(number)
            try:
                drawn = self._model_of(chunk.subject, seed, profile) if chunk.model else _graph(seed, profile)
            except (MissingDependencyError, UnknownOperatorError) as error:
                for outcome in found.values():
                    outcome.refuse(str(error))
                continue
            except RefsimError as error:
                for outcome in found.values():
                    outcome.fail(at, ERROR, f"define: {error}")
                continue
            for variant, outcome in found.items():
                executor = self._executors[variant] if chunk.model else runners[variant]
                if why := _refused(drawn.model, executor):
                    outcome.refuse(why)
                    continue
                _on(chunk, drawn, profile, executor, outcome)
        return list(found.values())

    def _model_of(self, path: str, seed: int, profile: Profile) -> DrawnModel:
        if self._key != (path, profile) or self._model is None:
            self._executors.close()
            self._model, self._key = load(path, Target(profile)), (path, profile)
        model = self._model
        return DrawnModel.of(model, model.random_inputs(seed), model.random_inputs(seed + 1), seed)


def _graph(seed: int, profile: Profile, chain: ChainCase | None = None) -> DrawnModel:
    """A random graph, or a part of it, as a model."""
    chain = chain or draw(seed)
    made = [
        DrawnModel.of(Model(graph.where, {0: graph}), [at.data()], [at.data(other=True)], seed, at)
        for at, graph in chain.shapes(f"graph {seed}", Target(profile))
    ]
    return replace(made[0], smaller=made[1]) if made[1:] else made[0]


def _refused(model: Model, executor: Executor) -> str:
    """Why an executor does not take a model, or nothing. Of most, its profile alone decides."""
    if executor.foreign:
        return FOREIGN
    first = next((node.prepared for _, node in model.nodes() if node.prepared is not None), None)
    return "" if first is None else refusal(executor, first)


def _on(chunk: Chunk, drawn: DrawnModel, profile: Profile, executor: Executor, outcome: Outcome) -> None:
    begin = time.perf_counter()
    status, message, at = _at_its_shapes(drawn, executor)
    for _ in range(chunk.repeats):
        if status == SAME:
            status, message, at = _at_its_shapes(drawn, executor)
    outcome.seconds += time.perf_counter() - begin
    outcome.nbytes += sum(raw_of(held).size for node in drawn.nodes for held in node.outputs.values())
    if status == SAME:
        outcome.statuses[SAME] += 1
    else:
        if drawn.chain is not None and chunk.shrink:
            drawn, (status, message, at) = _smallest(drawn, profile, executor, (status, message, at))
        outcome.fail((drawn.seed, profile), status, message, drawn.text, _files(at))
    if drawn.chain is not None:
        for graph in drawn.model.graphs.values():
            executor.forget(graph)


def _smallest(
    drawn: DrawnModel, profile: Profile, executor: Executor, found: Verdict
) -> tuple[DrawnModel, Verdict]:
    """The fewest first nodes of a graph of which a run fails too, and how; else all of them."""
    assert drawn.chain is not None
    for chain in cut(drawn.chain):
        part = _graph(drawn.seed, profile, chain)
        again = _at_its_shapes(part, executor)
        if again[0] == found[0]:
            return part, again
    return drawn, found


def _at_its_shapes(drawn: DrawnModel, executor: Executor) -> Verdict:
    """As `compared`, then at the smaller shape in the same memory, then at the first again."""
    found = compared(drawn, executor)
    if drawn.smaller is None:
        return found
    for one in (drawn.smaller, drawn):
        if found[0] != SAME:
            break
        status, message, at = compared(one, executor)
        shape = "x".join(map(str, one.inputs[0].shape))
        found = status, f"{message}, at {shape} after another shape" if message else "", at
    return found


def compared(drawn: DrawnModel, executor: Executor) -> Verdict:
    """(status, why, the node whose bytes are different)."""
    expected = {name: (node, held) for node in drawn.nodes for name, held in node.outputs.items()}
    rng = Rng(drawn.seed)
    some = {name for name in expected if rng.chance(30)}
    wrong: list[Traced] = []

    def look(event: Event) -> None:
        for value, held in event.outputs.items():
            node, right = expected[value_name(event.delegate, value)]
            if not _equal(held, right):
                wrong.append(node)
                raise _Different

    observers = {
        "of which every buffer is watched": Observer(look),
        "of which some buffers are watched": Observer(look, lambda d, value: value_name(d, value) in some),
        "that nobody watches": None,
    }
    try:
        for how, observe in observers.items():
            if observe is None:
                drawn.model.run(drawn.others, executor)
            for number, ours in enumerate(drawn.model.run(drawn.inputs, executor, observe)):
                if not _equal(ours, drawn.outputs[number]):
                    return DIFFERENT, f"output {number} of a run {how}", None
    except _Different:
        return DIFFERENT, f"{wrong[0].node} writes other bytes to {wrong[0].output}", wrong[0]
    except Exception as error:  # an executor's defect fails its configuration, not the sweep
        return ERROR, doing.told(error), None
    return SAME, "", None


def _equal(one: Held, other: Held) -> bool:
    if isinstance(one, PackedBuffer) or isinstance(other, PackedBuffer):
        return bool(one == other)
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _files(node: Traced | None) -> dict[str, bytes]:
    """The call of a node as a case, with the inputs that it has by definition."""
    if node is None or node.bound is None:
        return {}
    bound: Any = node.bound
    return contents(bound, bound.call.expected(bound.inputs), f"sweep: {node.node}")

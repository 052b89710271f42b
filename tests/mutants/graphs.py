"""Whole graphs in a mutated copy: bundled models on an executor, and networks through the lowering."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from mutants.mutant import Mutant
from mutants.outcome import CRASHED, SURVIVED, Outcome, differs, refused
from mutants.tree import CHECKOUT, execute
from refsim.bytediff import diff
from refsim.core.buffer import PackedBuffer, offsets
from refsim.core.errors import MissingDependencyError, RefsimError
from refsim.core.extras import TORCH_FIX
from refsim.exec.factory import executor_named
from refsim.exec.model import load
from refsim.exec.trace import Traced, bound_of, trace
from refsim.formats.dumps import value_name
from refsim.formats.vkgraph.read import read_blob
from refsim.graph.build import build
from refsim.graph.graph import Graph
from refsim.graph.interpreter import run_node, stored
from refsim.ops.base.binding import BoundCase

MODELS = "tests/data/models"


@dataclass(frozen=True)
class Held:
    """A buffer of a graph: its value's name, the call that wrote it, and its bytes."""

    name: str
    bound: BoundCase
    buffer: PackedBuffer


# --- bundled models on an executor -----------------------------------------------------------------------


@cache
def _inputs(name: str, seed: int) -> tuple[np.ndarray, ...]:
    """What a model's recording was made with (seed 0), or that shuffled."""
    with np.load(CHECKOUT / MODELS / f"{name}.io.npz") as held:
        arrays = [held[key] for key in sorted(held.files) if key.startswith("in")]
    draw = np.random.default_rng(seed)
    return tuple(a if not seed else draw.permutation(a.reshape(-1)).reshape(a.shape) for a in arrays)


@cache
def _right(name: str, seed: int) -> tuple[Held, ...]:
    """Every int8 operator's call and output, in execution order."""
    found: list[Held] = []

    def visit(traced: Traced) -> None:
        held = traced.outputs[traced.output]
        if traced.bound is not None and isinstance(held, PackedBuffer):
            found.append(Held(traced.output, traced.bound, held))

    model = load(CHECKOUT / MODELS / f"{name}.pte")
    trace(model, _inputs(name, seed), executor_named("cpu"), visit)
    return tuple(found)


def run_model(mutant: Mutant, root: Path) -> Outcome:
    """Run a bundled model in the copy at ``root`` and judge the first value that is wrong."""
    folder = root / "model"
    folder.mkdir()
    for name, seed in (("before", 1), ("inputs", 0)):
        arrays = {f"in{i}": array for i, array in enumerate(_inputs(mutant.subject, seed))}
        np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]
    file = str(CHECKOUT / MODELS / f"{mutant.subject}.pte")
    message = execute(root, folder, "model", mutant.executor, file)
    right = _right(mutant.subject, 0)
    others = {held.name: held.buffer.raw for held in right}
    others |= {f"{held.name} of the run before": held.buffer.raw for held in _right(mutant.subject, 1)}
    for number, held in enumerate(right, 1):
        case = f"{mutant.subject}/{held.name}"
        actual = _written(folder / held.name, held.buffer)
        if actual is None:
            return _ended(mutant, case, number, folder, message)
        if not np.array_equal(actual.raw, held.buffer.raw):
            mine = {name: raw for name, raw in others.items() if name != held.name}
            report = diff(
                held.buffer, actual, call=held.bound, previous=_before(right, held), others=mine, limit=1
            )
            return differs(mutant, case, number, report)
    return Outcome(mutant, SURVIVED, tried=len(right), message=message)


def _before(right: tuple[Held, ...], held: Held) -> BoundCase | None:
    """The call before on the same operator, else the one before."""
    earlier = right[: right.index(held)]
    same = [other for other in earlier if other.bound.call.op is held.bound.call.op]
    return next((other.bound for other in reversed(same or earlier)), None)


def _written(path: Path, right: PackedBuffer) -> PackedBuffer | None:
    """What the copy left of a value: its raw bytes, or its elements alone, the padding taken to be right."""
    raw, array = path.with_suffix(".bin"), path.with_suffix(".npy")
    if raw.exists():
        return PackedBuffer.from_raw(raw.read_bytes(), right.desc.shape, right.desc.layout)
    if not array.exists():
        return None
    return elements(right, np.load(array))


def elements(right: PackedBuffer, array: np.ndarray) -> PackedBuffer:
    """A buffer of these elements, with the padding of the right one."""
    actual = PackedBuffer.from_raw(right.raw.tobytes(), right.desc.shape, right.desc.layout)
    places = offsets(right.desc)
    actual.data[places] = array.reshape(places.shape)
    return actual


def _ended(mutant: Mutant, case: str, number: int, folder: Path, message: str) -> Outcome:
    error = folder / "error"
    if error.exists():
        return refused(mutant, case, number, error.read_text())
    return Outcome(mutant, CRASHED, case, number, message=message)


# --- networks through the lowering -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Fused:
    """An operator of a lowered network, and its output in a run; found again by the quantize that it replaces."""

    operator: str
    held: Held | None
    producer: BoundCase | None


@cache
def _lowered_right(network: str) -> Mapping[str, _Fused]:
    with TemporaryDirectory(prefix="refsim-lowered-") as scratch:
        folder = Path(scratch) / "network"
        folder.mkdir()
        message = execute(CHECKOUT, folder, "network", network)
        if not (folder / "lowered.json").exists():
            raise MissingDependencyError(
                f"network {network}", "cannot be lowered", got=message, need=TORCH_FIX
            )
        return _lowered(folder)


def _lowered(folder: Path) -> Mapping[str, _Fused]:
    """What a lowering left in a folder, run on random inputs. Raises what reading or running it raises."""
    facts: dict[str, Any] = json.loads((folder / "lowered.json").read_text())
    runs: dict[int, dict[int, tuple[Held, BoundCase | None]]] = {}
    found = {}
    for number, quantize, operator, value in facts["fused"]:
        if number not in runs:
            graph = build(read_blob((folder / f"{number}.blob").read_bytes()), f"delegate {number}")
            runs[number] = dict(_run(graph, number))
        held, producer = runs[number].get(value, (None, None))
        found[f"{number}: {quantize}"] = _Fused(operator, held, producer)
    return found


def _run(graph: Graph, number: int) -> Iterator[tuple[int, tuple[Held, BoundCase | None]]]:
    """(value, (what an int8 operator wrote there, the call that wrote its first input)) on random inputs."""
    executor, draw = executor_named("cpu"), np.random.default_rng(number)
    values: dict[int, Any] = {t.id: t.data for t in graph.tensors.values() if t.data is not None}
    for value in graph.inputs:
        tensor = graph.tensors[value]
        array = draw.standard_normal(tensor.shape) * (50 if tensor.dtype == np.int8 else 1)
        values[value] = stored(graph, value, array.astype(tensor.dtype), graph.where)
    calls: dict[int, BoundCase] = {}
    for node in graph.nodes:
        values |= run_node(graph, node, values, executor)
        if node.call is None:
            continue
        (out,) = node.outputs
        inputs = {name: values[value] for name, value in node.inputs.items()}
        calls[out] = bound_of(node.call, inputs)
        producer = calls.get(next(iter(node.inputs.values())))
        yield out, (Held(value_name(number, out), calls[out], values[out]), producer)


NOT_FUSED, OTHER_OPERATOR = "not fused", "another operator"


def run_network(mutant: Mutant, root: Path) -> Outcome:
    """Lower a network with the copy at ``root``, and compare the graph and its run with the right ones.

    An error while the graph is read or run, and what the lowering's own check against torch finds, kill too.
    """
    right = _lowered_right(mutant.subject)
    folder = root / "network"
    folder.mkdir()
    message = execute(root, folder, "network", mutant.subject)
    if not (folder / "lowered.json").exists():
        return _ended(mutant, mutant.subject, 1, folder, message)
    facts: dict[str, Any] = json.loads((folder / "lowered.json").read_text())
    checked = "; ".join(facts.get("wrong", []))
    try:
        wrong = _lowered(folder)
    except RefsimError as error:
        return refused(mutant, mutant.subject, 1, f"{type(error).__name__}: {error}")
    for number, (key, good) in enumerate(right.items(), 1):
        case = f"{mutant.subject}/{key}"
        if key not in wrong:
            said = "; ".join(filter(None, [good.operator, *facts["unfused"], checked]))
            return refused(mutant, case, number, f"{NOT_FUSED}: {said}")
        bad = wrong[key]
        if bad.operator != good.operator:
            return refused(
                mutant, case, number, f"{OTHER_OPERATOR}: {bad.operator} instead of {good.operator}"
            )
        if good.held is None or bad.held is None:
            continue
        if good.held.buffer != bad.held.buffer:
            report = diff(
                good.held.buffer.raw, bad.held.buffer.raw, good.held.buffer.desc.layout,
                good.held.buffer.desc.shape, call=good.held.bound, previous=good.producer, limit=1,
            )  # fmt: skip
            return differs(mutant, case, number, report)
    if (folder / "error").exists():
        return _ended(mutant, mutant.subject, 1, folder, message)
    if checked:
        return refused(mutant, mutant.subject, 1, checked)
    return Outcome(mutant, SURVIVED, tried=len(right), message=message)

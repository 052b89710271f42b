"""One chain of the corpus on some executors: as a whole, joined as they like, and with every value between observed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from refsim.core.buffer import PackedBuffer, raw_of
from refsim.core.errors import RefsimError
from refsim.core.qmath import CANONICAL, Profile
from refsim.exec.executor import Executor
from refsim.golden import chain
from refsim.golden.chain import ChainCase, ChainEntry, Values
from refsim.golden.check import DEFINE, DIFFERENT, ERROR, REFUSED, Checked, compared, defined
from refsim.golden.judge import SAME
from refsim.graph.graph import Graph, Node
from refsim.graph.interpreter import logical, stored
from refsim.ops.base.binding import BoundCase, bound_of
from refsim.ops.base.target import Target

#: What is said of a wrong chain whose values are right if every one is observed.
JOINED = "right if every value is observed, wrong in a run as a whole"
APART = "a chain: graphs run operator by operator there"


def check_chain(
    entry: ChainEntry, executors: Mapping[str, Executor], profile: Profile | None = None
) -> Iterator[Checked]:
    """Compare the definitions with the digest, under the canonical profile; then each executor with the definitions.

    Executors of kernels that are not refsim's refuse: they run a graph operator by operator, and cases show those.
    """
    try:
        shapes = entry.chain.shapes(entry.name, Target(profile or CANONICAL))
        runs = [(one, graph, *chain.defined(graph, one.data())) for one, graph in shapes]
    except RefsimError as error:
        yield Checked(entry.name, DEFINE, ERROR, str(error))
        return
    found = chain.digest([array for run in runs for array in run[2]])
    yield defined(entry.name, found if profile in (None, CANONICAL) else entry.sha256, entry.sha256)
    for name, executor in executors.items():
        if executor.foreign:
            yield Checked(entry.name, name, REFUSED, APART)
        else:
            again = runs[:1] if entry.chain.smaller else []
            checked = [_run(entry, name, executor, *run) for run in (*runs, *again)]
            yield next((one for one in checked if one.status != SAME), checked[0])


def _run(
    entry: ChainEntry, name: str, executor: Executor,
    at: ChainCase, graph: Graph, outputs: list[np.ndarray], values: Values,
) -> Checked:  # fmt: skip
    try:
        found = _observed(graph, values, chain.watched(at, graph, executor))
        whole = chain.outputs_of(at, graph, executor)
        wrong = [
            value
            for value, ours, theirs in zip(graph.outputs, outputs, whole, strict=True)
            if ours.tobytes() != theirs.tobytes()
        ]
        if wrong and not found:
            found = _joined(at, graph, executor, values) or {"message": f"value {wrong[0]} differs"}
            found = {**found, "message": f"{found['message']}: {JOINED}"}
        if found and entry.chain.smaller:
            found = {**found, "message": f"{found['message']}, at {'x'.join(map(str, at.shape))}"}
    except RefsimError as error:
        return Checked(entry.name, name, ERROR, str(error))
    return Checked(entry.name, name, DIFFERENT if found else SAME, **found)


def _observed(graph: Graph, values: Values, seen: Values) -> dict[str, Any]:
    """The first operator of an observed run whose output is not as defined; nothing if there is none."""
    for node in graph.nodes:
        for value in node.outputs:
            if found := _compared(graph, (node,), value, values, seen[value]):
                return found
    return {}


def _joined(at: ChainCase, graph: Graph, executor: Executor, values: Values) -> dict[str, Any]:
    """The first wrong step if each value is an output in turn: operators are joined as far as they can be."""
    for value in (value for node in graph.nodes for value in node.outputs):
        array, step = chain.joined(at, graph, executor, value)
        held = {
            value: stored(graph, value, logical(graph, values, value), graph.where)
        }  # its padding is nobody's
        actual = stored(graph, value, array, graph.where)
        if found := _compared(graph, step.nodes, value, {**values, **held}, actual):
            by = f", computed by {step.by}" if step.by else ""
            return {**found, "message": found["message"] + by}
    return {}


def _compared(
    graph: Graph,
    step: Sequence[Node],
    value: int,
    values: Values,
    actual: PackedBuffer | np.ndarray,
) -> dict[str, Any]:
    """Nothing if a value is as the definitions give it; else its step, and what a diff says of it."""
    expected, last = values[value], step[-1]
    if np.array_equal(raw_of(expected), raw_of(actual)):
        return {}
    what = str(last) if len(step) == 1 else f"{step[0]} to {last}"
    found = {
        "message": f"{what}: value {value} differs",
        "nodes": tuple(node.number for node in step),
        "operator": last.operator,
    }
    if isinstance(expected, PackedBuffer) and isinstance(actual, PackedBuffer):
        return found | compared(_bound(graph, last, values), expected, actual)
    ours, theirs = (np.asarray(held).reshape(-1) for held in (expected, actual))
    return {**found, "differing": int((ours != theirs).sum()), "pattern": ()}


def _bound(graph: Graph, node: Node, values: Values) -> BoundCase | None:
    """The call of a node on its inputs by definition; None for a float operator."""
    if node.prepared is None:
        return None
    inputs = {name: held for name, v in node.inputs.items() if isinstance(held := values[v], PackedBuffer)}
    found = bound_of(node.prepared.call, inputs)
    return replace(found, case=replace(found.case, note=f"{graph.where}, {node}"))

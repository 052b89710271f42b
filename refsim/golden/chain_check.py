"""One chain of the corpus on some executors: as a whole, joined as they like, and with every value between observed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from refsim.core.errors import RefsimError
from refsim.core.qmath import CANONICAL, Profile
from refsim.exec.executor import Executor
from refsim.golden import chain
from refsim.golden.chain import ChainEntry, Values
from refsim.golden.check import DEFINE, DIFFERENT, ERROR, REFUSED, Result
from refsim.golden.judge import SAME
from refsim.graph.graph import Graph
from refsim.ops.base.target import Target

APART = "a chain: graphs run operator by operator there"


def check_chain(
    entry: ChainEntry, executors: Mapping[str, Executor], profile: Profile | None = None
) -> Iterator[Result]:
    """Compare the definitions with the digest, under the canonical profile; then each executor with the definitions.

    Executors of kernels that are not refsim's refuse: they run a graph operator by operator, and cases show those.
    """
    try:
        graph = entry.chain.graph(entry.name, Target(profile or CANONICAL))
        outputs, values = chain.defined(graph, entry.chain.data())
    except RefsimError as error:
        yield Result(entry.name, DEFINE, ERROR, {"message": str(error)})
        return
    found = chain.digest(outputs)
    wrong = profile in (None, CANONICAL) and found != entry.sha256
    detail = {"digest": found, "recorded": entry.sha256} if wrong else {}
    yield Result(entry.name, DEFINE, DIFFERENT if wrong else SAME, detail)
    for name, executor in executors.items():
        if executor.foreign:
            yield Result(entry.name, name, REFUSED, {"message": APART})
        else:
            yield _run(entry, name, executor, graph, outputs, values)


def _run(
    entry: ChainEntry, name: str, executor: Executor, graph: Graph, outputs: list[np.ndarray], values: Values
) -> Result:
    try:
        between = _differing(graph, values, chain.watched(entry.chain, graph, executor))
        whole = chain.outputs_of(entry.chain, graph, executor)
    except RefsimError as error:
        return Result(entry.name, name, ERROR, {"message": str(error)})
    if between:
        return Result(entry.name, name, DIFFERENT, between)
    for number, (value, ours, theirs) in enumerate(zip(graph.outputs, outputs, whole, strict=True)):
        if ours.tobytes() != theirs.tobytes():
            where = (
                f"output {number}, value {value}: right if every value is observed, wrong in a run as a whole"
            )
            return Result(entry.name, name, DIFFERENT, {"message": where, "differing": _count(ours, theirs)})
    return Result(entry.name, name, SAME)


def _differing(graph: Graph, values: Values, seen: Values) -> dict[str, Any]:
    """The first value of an observed run that is not as defined; nothing if there is none."""
    for node in graph.nodes:
        for value in node.outputs:
            ours, theirs = chain.raw(values[value]), chain.raw(seen[value])
            if not np.array_equal(ours, theirs):
                return {"message": f"{node}: value {value} differs", "differing": _count(ours, theirs)}
    return {}


def _count(ours: np.ndarray, theirs: np.ndarray) -> int:
    """How many elements have other bits; all if there are not as many."""
    same = ours.shape == theirs.shape and ours.dtype == theirs.dtype
    if not same:
        return ours.size
    mine, other = (array.reshape(-1, 1).view(np.uint8) for array in (ours, theirs))
    return int((mine != other).any(axis=1).sum())

"""What an observer is told of the values of a graph that it asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refsim.exec.cpu import EmulatedExecutor, NativeExecutor
from refsim.exec.executor import run_graph
from refsim.graph.graph import Graph
from refsim.graph.interpreter import Kept, Observer


def seen(graph: Graph, given: Sequence[np.ndarray], executor: Any, wanted: set[int]) -> dict[int, bytes]:
    """The bytes of each value that was told."""
    found = Kept()
    run_graph(graph, given, executor, 0, Observer(found, lambda delegate, value: value in wanted))
    return {value: raw for (_, value), raw in found.raw().items()}


def check_each(graph: Graph, given: Sequence[np.ndarray], threads: int) -> None:
    """Every value, asked for alone and with all others, is told as node by node."""
    outputs = {value for node in graph.nodes for value in node.outputs}
    expected = seen(graph, given, EmulatedExecutor(), outputs)
    assert expected.keys() == outputs
    for wanted in ({value} for value in outputs):
        told = seen(graph, given, NativeExecutor(threads), wanted)
        assert told == {value: expected[value] for value in wanted}
    assert seen(graph, given, NativeExecutor(threads), outputs) == expected
